#include "runtime/engine/process/child_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>

extern char** environ;

namespace kachel::runtime {
namespace {

// A process that the kernel is still busy with, as with a GPU's memory, dies late. It is not waited for any longer.
constexpr auto kMostReaping = std::chrono::seconds(10);

// Where a host has closed its standard descriptors, the next ones are theirs.
int above_standard(int descriptor) {
  if (descriptor < 0 || descriptor > STDERR_FILENO) return descriptor;
  const int moved = ::fcntl(descriptor, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  ::close(descriptor);
  return moved;
}

struct SpawnSettings {
  SpawnSettings() {
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawnattr_init(&attributes);
  }
  ~SpawnSettings() {
    ::posix_spawn_file_actions_destroy(&actions);
    ::posix_spawnattr_destroy(&attributes);
  }
  int fill(int socket) {
    sigset_t all, none;
    sigfillset(&all);
    sigemptyset(&none);
    int failed =
        ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSID);
    if (!failed) failed = ::posix_spawnattr_setsigdefault(&attributes, &all);
    if (!failed) failed = ::posix_spawnattr_setsigmask(&attributes, &none);
    if (!failed) failed = ::posix_spawn_file_actions_adddup2(&actions, socket, kChildSocket);
    if (!failed) failed = ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    if (!failed) failed = ::posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    if (!failed && ::fcntl(STDERR_FILENO, F_GETFD) < 0)
      failed = ::posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    if (!failed) failed = ::posix_spawn_file_actions_addclosefrom_np(&actions, kChildSocket + 1);
    return failed;
  }

  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
};

int open_handle(pid_t id) {
#ifdef SYS_pidfd_open
  return static_cast<int>(::syscall(SYS_pidfd_open, id, 0));
#else
  return -1;
#endif
}

std::string describe(int status) {
  if (WIFSIGNALED(status)) {
    const char* name = ::sigdescr_np(WTERMSIG(status));
    return fmt::format("was killed by signal {} ({})", WTERMSIG(status), name ? name : "unknown");
  }
  return fmt::format("exited with status {}", WEXITSTATUS(status));
}

}  // namespace

Result<ChildProcess::Started> ChildProcess::start(const std::string& path) {
  auto cannot = [&](int why) { return unsupported(fmt::format("{} cannot be run: {}", path, std::strerror(why))); };
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return cannot(errno);
  for (int& end : ends) end = above_standard(end);
  pid_t id = -1;
  int failed = ends[0] < 0 || ends[1] < 0 ? EMFILE : 0;
  if (!failed) {
    SpawnSettings settings;
    failed = settings.fill(ends[1]);
    const std::string socket = std::to_string(kChildSocket);
    char* arguments[] = {const_cast<char*>(path.c_str()), const_cast<char*>(socket.c_str()), nullptr};
    if (!failed) failed = ::posix_spawn(&id, path.c_str(), &settings.actions, &settings.attributes, arguments, environ);
  }
  if (ends[1] >= 0) ::close(ends[1]);
  if (failed) {
    if (ends[0] >= 0) ::close(ends[0]);
    return cannot(failed);
  }
  return Started{std::unique_ptr<ChildProcess>(new ChildProcess(id, open_handle(id))), ends[0]};
}

bool ChildProcess::reap(std::chrono::milliseconds patience) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  auto pause = std::chrono::microseconds(50);
  for (;;) {
    int status = 0;
    const pid_t ended = ::waitpid(id_, &status, WNOHANG);
    if (ended == id_ && !killed_) how_ = describe(status);
    // Where SIGCHLD is ignored, or the host waits for everybody's children, there is nothing left to learn.
    if (ended == id_ || (ended < 0 && errno != EINTR)) return reaped_ = true;
    if (std::chrono::steady_clock::now() >= deadline) return false;
    std::this_thread::sleep_for(pause);
    pause = std::min<std::chrono::microseconds>(2 * pause, std::chrono::milliseconds(5));
  }
}

std::string ChildProcess::end(std::chrono::milliseconds patience) {
  if (reaped_) return how_;
  if (!reap(patience)) {
    killed_ = true;
#ifdef SYS_pidfd_send_signal
    if (handle_ < 0 || ::syscall(SYS_pidfd_send_signal, handle_, SIGKILL, nullptr, 0) != 0)
#endif
      (void)::kill(id_, SIGKILL);
    (void)reap(kMostReaping);
  }
  if (handle_ >= 0) ::close(handle_);
  reaped_ = true;  // or given up: never signalled again
  return how_;
}

}  // namespace kachel::runtime
