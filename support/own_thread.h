// Threads of ours in a process that is the host's: its signals are not theirs, and they end before what they use does.
#pragma once
#include <chrono>
#include <functional>
#include <thread>

namespace kachel {

// Handlers of the host's signals do not run on it. Not joinable where the process can have no thread more.
std::thread begin_thread(std::function<void()> work);

// Work on a thread while the process exits: what it uses goes when the destructors of libraries run. Each one alive
// is told to stop its work before that; if one does not manage in time, the process leaves at once, with the exit
// status that was asked for. Thread-safe.
class ExitWatch {
 public:
  using Deadline = std::chrono::steady_clock::time_point;
  // Ends the work for good and waits for that; false where it still goes on at the deadline. Called from a handler of
  // exit, at most once, never in a child of fork().
  using Stop = std::function<bool(Deadline deadline)>;

  explicit ExitWatch(Stop stop);
  ~ExitWatch();
  ExitWatch(const ExitWatch&) = delete;
  ExitWatch& operator=(const ExitWatch&) = delete;

  // Before the thread begins, and before each piece of work: handlers run last registered first, and ours must be
  // younger than the destructors that others register, some of them only while the work goes on.
  static void arm();

 private:
  static void at_exit(int status, void* ignored);

  const int owner_;  // process id
  const Stop stop_;
};

}  // namespace kachel
