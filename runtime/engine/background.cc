#include "runtime/engine/background.h"

#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <system_error>
#include <utility>

namespace kachel::runtime {
namespace {

constexpr int kNice = 10;
constexpr auto kPatience = std::chrono::seconds(2);
// Handlers run last registered first, and ours must be younger than the destructors that compilers register, some of
// them only while they first compile.
constexpr int kMostHandlers = 64;

struct Registry {
  std::mutex mutex;
  std::set<Background*> live;
};
Registry& registry() {
  static Registry& instance = *new Registry;  // used while static destructors run
  return instance;
}

}  // namespace

void Background::arm_exit() {
  static std::atomic<int> armed{0};
  if (armed.fetch_add(1, std::memory_order_relaxed) < kMostHandlers) (void)::on_exit(at_exit, nullptr);
}

void Background::at_exit(int status, void*) {
  // A child of fork() may have got it locked.
  std::unique_lock lock(registry().mutex, std::try_to_lock);
  if (!lock) return;
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  bool stopped = true;
  for (Background* background : registry().live)
    if (background->owner_ == ::getpid()) stopped &= background->stop_for_exit(deadline);
  if (stopped) return;
  std::fflush(nullptr);
  ::_exit(status);
}

bool Background::stop_for_exit(std::chrono::steady_clock::time_point deadline) {
  std::unique_lock lock(mutex_);
  if (in_job()) return true;  // a callback of the host's leaves
  stopping_ = true;
  cancelled_ = true;
  (void)new std::deque<Entry>(std::move(waiting_));  // what they own is the process's to take back
  waiting_.clear();
  changed_.notify_all();
  return changed_.wait_until(lock, deadline, [&] { return !running_; });
}

Background::Background() : owner_(::getpid()) {
  std::lock_guard lock(registry().mutex);
  registry().live.insert(this);
}

Background::~Background() {
  {
    std::lock_guard lock(registry().mutex);
    registry().live.erase(this);
  }
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
  // Handlers of the host's signals do not expect to run on a thread of ours.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error&) {
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
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
    arm_exit();
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
