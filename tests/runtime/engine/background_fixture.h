// An engine whose tunings in the background wait at a gate.
#pragma once
#include <condition_variable>
#include <mutex>
#include <string>

#include "tests/runtime/engine/engine_fixture.h"

namespace kachel::runtime {

inline constexpr int64_t kLong_ns = 60'000'000'000;

// Holds tunings up where they report progress.
class Gate {
 public:
  void open() {
    {
      std::lock_guard lock(mutex_);
      open_ = true;
    }
    changed_.notify_all();
  }
  bool pass() {
    std::unique_lock lock(mutex_);
    reached_ = true;
    changed_.notify_all();
    changed_.wait(lock, [this] { return open_; });
    return true;
  }
  void wait_until_reached() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return reached_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false, reached_ = false;
};

// 32 x 16 is the fastest, not the first listed. Notes the tiles that serve callers, whose stream is the null one.
class BackgroundFixture : public EngineFixture {
 public:
  explicit BackgroundFixture(const std::string& store_path = "", const FakeOptions& device = {})
      : EngineFixture(store_path, device) {
    options.tune_budget_ns = 600'000'000'000;
    options.progress = [this](const TuneProgress&) { return gate.pass(); };
    cost = [this](int64_t bm, int64_t bn, const FakeLaunch& launch) -> int64_t {
      std::lock_guard lock(mutex_);
      if (!launch.stream) served_ = tile_of(launch.text), compact_ = launch.text.find("compact") != launch.text.npos;
      const auto* slots = static_cast<const uint64_t*>(launch.params);
      if (launch.stream) strange_ |= *reinterpret_cast<const float*>(slots[0]) != 1.5f;
      return bm == 32 && bn == 16 ? 5'000 : 10'000 + bm + bn;
    };
  }
  std::string served() {
    std::lock_guard lock(mutex_);
    return served_;
  }
  bool served_compact() {
    std::lock_guard lock(mutex_);
    return compact_;
  }
  bool read_strange_inputs() {
    std::lock_guard lock(mutex_);
    return strange_;
  }
  void settle() {
    gate.open();
    REQUIRE(engine()->background().wait(kLong_ns));
  }
  Gate gate;

 private:
  std::mutex mutex_;
  std::string served_;
  bool compact_ = false, strange_ = false;
};

}  // namespace kachel::runtime
