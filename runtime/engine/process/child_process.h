// A program that is run beside this process, with a socket between the two.
//
// The host is a library's user with habits of its own, so nothing of the child leaks into it: no signal is raised (a
// socket is closed quietly), no handler is installed, SIGCHLD is neither needed nor changed and may be ignored, only
// the child's own process id is waited for, and every descriptor is closed on exec. The child begins with default
// signals, in a session of its own, so that what a terminal sends to the host is not taken for its failure; it has
// no input and no output but standard error, and no other descriptor than its end of the socket.
#pragma once
#include <sys/types.h>

#include <chrono>
#include <memory>
#include <string>

#include "support/status.h"

namespace kachel::runtime {

inline constexpr int kChildSocket = 3;  // the child's end

class ChildProcess {
 public:
  struct Started {
    std::unique_ptr<ChildProcess> child;
    int socket;  // this process's end, the caller's to close
  };
  // Runs `path KACHEL_CHILD_SOCKET`. kUnsupported, with the reason, where that cannot be.
  static Result<Started> start(const std::string& path);
  ~ChildProcess() { (void)end(std::chrono::milliseconds(0)); }
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  // Waits so long for it to end by itself, then kills it. How it ended by itself: "was killed by signal 11
  // (Segmentation fault)"; "" where it did not, or where this process does not get to know.
  std::string end(std::chrono::milliseconds patience);
  pid_t id() const { return id_; }

 private:
  ChildProcess(pid_t id, int handle) : id_(id), handle_(handle) {}
  bool reap(std::chrono::milliseconds patience);

  const pid_t id_;
  const int handle_;  // a process is known by its number only until somebody has waited for it; -1: there is none
  bool killed_ = false, reaped_ = false;
  std::string how_;
};

}  // namespace kachel::runtime
