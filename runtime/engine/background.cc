#include "runtime/engine/background.h"

#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace kachel::runtime {
namespace {

constexpr int kNice = 10;

}  // namespace

bool Background::stop_for_exit(ExitWatch::Deadline deadline) {
  std::unique_lock lock(mutex_);
  if (in_job()) return true;  // a callback of the host's leaves
  stopping_ = true;
  cancelled_ = true;
  (void)new std::deque<Entry>(std::move(waiting_));  // what they own is the process's to take back
  (void)new std::multimap<Clock::time_point, Entry>(std::move(timed_));
  waiting_.clear();
  timed_.clear();
  changed_.notify_all();
  return changed_.wait_until(lock, deadline, [&] { return !running_; });
}

Background::~Background() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    waiting_.clear();
    timed_.clear();
    cancelled_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

// With the lock held.
bool Background::start() {
  if (thread_.joinable()) return true;
  ExitWatch::arm();  // here, too: the process may exit before the thread gets there
  thread_ = begin_thread([this] { run(); });
  return thread_.joinable();
}

bool Background::submit(const void* owner, Job job) {
  {
    std::lock_guard lock(mutex_);
    if (stopping_ || !start()) return false;
    waiting_.push_back({owner, std::move(job)});
  }
  changed_.notify_all();
  return true;
}

bool Background::submit_after(const void* owner, int64_t delay_ns, Job job) {
  constexpr int64_t kMost_ns = int64_t{1} << 58;  // the clock's range
  const auto at = Clock::now() + std::chrono::nanoseconds(std::min(delay_ns, kMost_ns));
  {
    std::lock_guard lock(mutex_);
    if (stopping_ || !start()) return false;
    timed_.emplace(at, Entry{owner, std::move(job)});
  }
  changed_.notify_all();
  return true;
}

// With the lock held.
void Background::take_due() {
  for (auto first = timed_.begin(); first != timed_.end() && first->first <= Clock::now(); first = timed_.begin()) {
    waiting_.push_back(std::move(first->second));
    timed_.erase(first);
  }
}

void Background::cancel_if(const std::function<bool(const void*)>& meant) {
  std::deque<Entry> dropped;  // what they own goes outside of the lock
  {
    std::unique_lock lock(mutex_);
    for (auto entry = waiting_.begin(); entry != waiting_.end();) {
      if (!meant(entry->owner)) {
        ++entry;
        continue;
      }
      dropped.push_back(std::move(*entry));
      entry = waiting_.erase(entry);
    }
    for (auto timed = timed_.begin(); timed != timed_.end();) {
      if (!meant(timed->second.owner)) {
        ++timed;
        continue;
      }
      dropped.push_back(std::move(timed->second));
      timed = timed_.erase(timed);
    }
    if (running_ && meant(running_)) cancelled_ = true;
    if (!in_job()) changed_.wait(lock, [&] { return !running_ || !meant(running_); });
  }
  changed_.notify_all();
}

bool Background::wait(int64_t timeout_ns) const {
  std::unique_lock lock(mutex_);
  if (in_job()) return false;
  auto idle = [&] { return waiting_.empty() && !running_; };
  if (timeout_ns >= 0) return changed_.wait_for(lock, std::chrono::nanoseconds(timeout_ns), idle);
  changed_.wait(lock, idle);
  return true;
}

size_t Background::pending() const {
  std::lock_guard lock(mutex_);
  return waiting_.size() + (running_ ? 1 : 0);
}

void Background::run() {
  // The host's threads go first, and those that compilers begin from here are as patient. A hint: it may be refused.
  (void)::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), kNice);
  (void)::pthread_setname_np(::pthread_self(), "kachel-later");
  for (;;) {
    Entry entry;
    {
      std::unique_lock lock(mutex_);
      for (take_due(); !stopping_ && waiting_.empty(); take_due()) {
        if (timed_.empty()) {
          changed_.wait(lock);
        } else {
          const auto due = timed_.begin()->first;  // which may be gone by then
          changed_.wait_until(lock, due);
        }
      }
      if (stopping_) return;
      entry = std::move(waiting_.front());
      waiting_.pop_front();
      running_ = entry.owner;
      cancelled_ = false;
    }
    ExitWatch::arm();
    entry.job(cancelled_);
    entry.job = nullptr;  // with what it owns, before its owner may go
    {
      std::lock_guard lock(mutex_);
      running_ = nullptr;
    }
    changed_.notify_all();
  }
}

}  // namespace kachel::runtime
