// A worker process and the calls that are made to it. Whoever waits for an answer first reads for all who wait, so no
// thread is needed. It does not end well: a worker that dies, says nonsense or exceeds the time limit of a call is
// killed, and every call to it fails from then on.
#pragma once
#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/engine/process/channel.h"
#include "runtime/engine/process/child_process.h"
#include "support/log.h"

namespace kachel::runtime {

// Reserved types of messages; those of calls are above.
inline constexpr uint8_t kHelloMessage = 0;  // the first one either way: who speaks (handshake.h)
inline constexpr uint8_t kNoteMessage = 1;   // from the worker: an event for the log

// Thread-safe.
class Worker {
 public:
  // Runs the program and exchanges greetings. kUnsupported, with a mend, where that fails or the worker is of another
  // build. `log` outlives the result.
  static Result<std::unique_ptr<Worker>> start(const std::string& path, const std::string& build,
                                               std::chrono::nanoseconds limit, Log& log);

  enum class End {
    kAnswered,
    kDied,       // by itself while it worked on this call
    kEnded,      // it was ended before, or on behalf of another call
    kTimedOut,   // this call exceeded its limit
    kCancelled,  // while it worked
  };
  struct Answer {
    End end = End::kEnded;
    std::string body;   // the answer; else how the worker ended, in words
    bool alone = true;  // kDied: there was no other call
  };
  // Waits for the answer. `cancelled` may be null.
  Answer call(uint8_t type, std::string body, std::chrono::nanoseconds limit, const std::atomic<bool>* cancelled);

  // Kills it; calls that wait return. `why`: in words.
  void end(std::string why);
  // Whether another user may take it over: it lives, and owes no answer.
  bool is_free();
  pid_t process() const { return child_->id(); }

 private:
  Worker(ChildProcess::Started started, Log& log)
      : log_(log), child_(std::move(started.child)), channel_(started.socket) {}

  using Time = Channel::Time;
  Status greet(const std::string& path, const std::string& build, Time deadline);
  void read_for_all(std::unique_lock<std::mutex>& lock, Time deadline);
  void end_locked(std::string why);
  void died_locked(const Status& heard);

  Log& log_;
  const std::unique_ptr<ChildProcess> child_;
  Channel channel_;
  std::mutex sending_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::map<uint64_t, std::optional<std::string>> waiting_;  // calls, and the answers that have come
  uint64_t last_call_ = 0;
  bool reading_ = false, left_alone_ = false, ended_ = false, died_ = false, alone_ = true;
  std::string how_;
};

}  // namespace kachel::runtime
