#include "runtime/engine/background.h"

#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

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
  waiting_.clear();
  changed_.notify_all();
  return changed_.wait_until(lock, deadline, [&] { return !running_; });
}

Background::~Background() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    waiting_.clear();
    cancelled_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

// With the lock held.
bool Background::start() {
  if (thread_.joinable()) return true;
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
      changed_.wait(lock, [&] { return stopping_ || !waiting_.empty(); });
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
