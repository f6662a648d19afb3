// A key-value store of the host's that machines share, asked on a thread of ours: however slow or broken it is, a get
// ends within its limit and a put does not wait.
//
// Failures open a circuit: after one, nothing of its kind is asked for a while, twice as long after each further one,
// until one succeeds; gets that are slow count as failures, since many may follow each other. While a call is overdue
// nothing is asked at all.
#pragma once
#include <sys/types.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "support/log.h"
#include "support/own_thread.h"

namespace kachel::cache {

struct RemoteAnswer {
  enum Kind { kDone, kAbsent, kFailed } kind = kDone;
  std::string why;  // of kFailed, for the log
};

struct RemoteOptions {
  // Called from one thread, one at a time. Each may be empty.
  // Appends the value, in pieces; false: it is too long, so that the rest is of no use.
  using Append = std::function<bool(std::string_view piece)>;
  std::function<RemoteAnswer(const std::string& name, const Append& append)> get;
  std::function<RemoteAnswer(const std::string& name, std::string_view value)> put;

  uint64_t wait_us = 1'000'000;               // for a value
  uint64_t slow_us = 200'000;                 // a get that takes longer serves, but counts as a failure
  uint64_t most_bytes = uint64_t{256} << 20;  // of a value, and of those that wait to be put
  uint64_t pause_us = 1'000'000;              // after a first failure
  uint64_t most_pause_us = 30'000'000;
  uint64_t close_us = 10'000'000;  // for the puts that are left, at the end
};

struct RemoteStats {
  uint64_t hits = 0, misses = 0, puts = 0;
  uint64_t errors = 0;   // calls that failed, or took too long
  uint64_t skipped = 0;  // calls that were not made, since others had failed shortly before, or for want of room
};

// Thread-safe. In a child of fork() it is let be: see Store.
class Remote {
 public:
  Remote(RemoteOptions options, Log& log);
  ~Remote();  // puts what waits to be put, if that succeeds
  Remote(const Remote&) = delete;
  Remote& operator=(const Remote&) = delete;

  // The value as it is there.
  std::optional<std::string> get(const std::string& name);
  void put(std::string name, std::string value);
  // Until what waited to be put has been put or given up; false after `timeout_us`.
  bool flush(uint64_t timeout_us);
  // The value that get() gave was of use, or not.
  void judge(bool useful);
  RemoteStats stats() const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Request {
    std::string name, value;
    bool found = false, done = false, abandoned = false;
  };
  struct Circuit {
    Clock::time_point closed_from{};  // open, and nothing asked, until then
    uint64_t pause_us = 0;            // the latest; 0 after a success
  };
  bool start();
  bool stop_for_exit(ExitWatch::Deadline deadline);
  void run();
  RemoteAnswer ask(bool is_get, Request& request);
  std::optional<Event> settle(Circuit& circuit, const char* what, const RemoteAnswer& answer);
  void drop_gets();
  void drop_puts();
  bool in_call() const { return std::this_thread::get_id() == thread_.get_id(); }

  const RemoteOptions options_;
  Log& log_;
  mutable std::mutex mutex_;  // guards what follows
  mutable std::condition_variable changed_;
  std::deque<std::shared_ptr<Request>> gets_, puts_;
  uint64_t put_bytes_ = 0;  // of puts_
  bool running_ = false, overdue_ = false, stopping_ = false;
  Clock::time_point stop_by_{}, begun_{};  // begun_: the call that runs
  Circuit get_circuit_, put_circuit_;
  std::optional<Clock::time_point> said_;  // the latest line in the log
  RemoteStats stats_;
  std::thread thread_;
  ExitWatch exit_{[this](ExitWatch::Deadline deadline) { return stop_for_exit(deadline); }};
};

}  // namespace kachel::cache
