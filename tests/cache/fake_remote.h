// A remote store in the process: a map that several stores may share, and that can be told to misbehave.
#pragma once
#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <string>

#include "cache/remote.h"

namespace kachel::cache::testing {

// Thread-safe. Must outlive the stores that use it.
class FakeRemote {
 public:
  RemoteOptions options() {
    RemoteOptions options;
    options.get = [this](const std::string& name, const RemoteOptions::Append& append) -> RemoteAnswer {
      ++gets;
      wait();
      if (failing) return {RemoteAnswer::kFailed, "the map is told to fail"};
      std::lock_guard lock(mutex_);
      const auto found = values_.find(name);
      if (found == values_.end()) return {RemoteAnswer::kAbsent, {}};
      const std::string_view value = found->second;  // in two pieces
      append(value.substr(0, value.size() / 2)) && append(value.substr(value.size() / 2));
      return {};
    };
    options.put = [this](const std::string& name, std::string_view value) -> RemoteAnswer {
      ++puts;
      wait();
      if (failing) return {RemoteAnswer::kFailed, "the map is told to fail"};
      std::lock_guard lock(mutex_);
      values_[name] = value;
      return {};
    };
    return options;
  }

  // Calls stay inside until release().
  void hold() { held_ = true; }
  void release() {
    {
      std::lock_guard lock(mutex_);
      held_ = false;
    }
    released_.notify_all();
  }

  std::map<std::string, std::string> values() {
    std::lock_guard lock(mutex_);
    return values_;
  }
  void set(const std::string& name, const std::string& value) {
    std::lock_guard lock(mutex_);
    values_[name] = value;
  }

  std::atomic<int> gets{0}, puts{0}, inside{0};
  std::atomic<bool> failing{false};

 private:
  void wait() {
    ++inside;
    std::unique_lock lock(mutex_);
    released_.wait(lock, [&] { return !held_; });
    --inside;
  }

  std::mutex mutex_;
  std::condition_variable released_;
  std::atomic<bool> held_{false};
  std::map<std::string, std::string> values_;
};

}  // namespace kachel::cache::testing
