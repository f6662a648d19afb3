// Work that launches leave for later: one thread of the engine's own, begun with the first job.
#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <thread>

#include "support/own_thread.h"

namespace kachel::runtime {

// Thread-safe. Jobs run one after another, in the order in which they came. A process that exits while one runs tells
// it to end and waits for that (support/own_thread.h).
class Background {
 public:
  // Ends soon once `cancelled` is set.
  using Job = std::function<void(const std::atomic<bool>& cancelled)>;

  Background() = default;
  ~Background();  // cancels everything, as cancel() does
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  // False, and the job is dropped, where the process can have no thread more.
  bool submit(const void* owner, Job job);
  // Not before so much time has passed. Meanwhile it is not pending, and nobody waits for it.
  bool submit_after(const void* owner, int64_t delay_ns, Job job);
  // Drops what of the owner's waits, tells what runs to end and waits for that, but not where a job itself calls it.
  void cancel(const void* owner) {
    cancel_if([=](const void* other) { return other == owner; });
  }
  void cancel_all() {
    cancel_if([](const void*) { return true; });
  }
  // Until nothing waits or runs; false after `timeout_ns` (< 0: never), and where a job calls it.
  bool wait(int64_t timeout_ns) const;
  size_t pending() const;
  // Whether what runs has been told to end.
  bool ends() const { return cancelled_; }

 private:
  struct Entry {
    const void* owner;
    Job job;
  };
  using Clock = std::chrono::steady_clock;
  bool stop_for_exit(ExitWatch::Deadline deadline);
  void cancel_if(const std::function<bool(const void* owner)>& meant);
  bool start();
  bool in_job() const { return std::this_thread::get_id() == thread_.get_id(); }
  void run();
  void take_due();

  mutable std::mutex mutex_;  // guards what follows
  mutable std::condition_variable changed_;
  std::deque<Entry> waiting_;
  std::multimap<Clock::time_point, Entry> timed_;
  const void* running_ = nullptr;  // its owner
  bool stopping_ = false;
  std::thread thread_;
  std::atomic<bool> cancelled_{false};  // what runs
  ExitWatch exit_{[this](ExitWatch::Deadline deadline) { return stop_for_exit(deadline); }};
};

}  // namespace kachel::runtime
