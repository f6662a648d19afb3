#include "progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <string>

#include "format.h"

namespace kachel::cli {
namespace {

volatile std::sig_atomic_t interrupted = 0;

void on_interrupt(int) {
  interrupted = 1;
  std::signal(SIGINT, SIG_DFL);
}

const char* phase_name(int32_t phase) {
  switch (phase) {
    case KACHEL_PHASE_COMPILING:
      return "compiling";
    case KACHEL_PHASE_CHECKING:
      return "checking";
    case KACHEL_PHASE_MEASURING:
      return "measuring";
    case KACHEL_PHASE_DONE:
      return "done";
    default:
      return "tuning";
  }
}

}  // namespace

ProgressReporter::ProgressReporter(bool quiet) : quiet_(quiet), terminal_(isatty(STDERR_FILENO) == 1) {
  std::signal(SIGINT, on_interrupt);
}

ProgressReporter::~ProgressReporter() {
  std::signal(SIGINT, SIG_DFL);
  if (bar_shown_) std::fputs("\r\033[K", stderr);
}

int32_t ProgressReporter::callback(void* user, const kachel_progress* progress) {
  static_cast<ProgressReporter*>(user)->show(*progress);
  return interrupted;
}

// Measuring reports many times a second; a log wants one line of those a second.
bool ProgressReporter::worth_a_line(const kachel_progress& progress) {
  auto now = std::chrono::steady_clock::now();
  bool wanted = progress.phase != KACHEL_PHASE_DONE &&
                (progress.phase != KACHEL_PHASE_MEASURING || now - last_line_ >= std::chrono::seconds(1));
  if (wanted) last_line_ = now;
  return wanted;
}

void ProgressReporter::show(const kachel_progress& progress) {
  if (quiet_) return;
  std::lock_guard lock(mutex_);
  const char* configuration = progress.configuration != nullptr ? progress.configuration : "";
  std::string best = progress.best_ns > 0 ? fmt::format("  best {}", format_ns(progress.best_ns)) : "";
  std::string line;
  if (terminal_) {
    constexpr uint32_t kWidth = 24;
    uint32_t filled = progress.total > 0 ? std::min(kWidth, progress.done * kWidth / progress.total) : 0;
    line = fmt::format("\r\033[K[{}{}] {} {}/{}{}  {}", std::string(filled, '='), std::string(kWidth - filled, ' '),
                       phase_name(progress.phase), progress.done, progress.total, best, configuration);
    bar_shown_ = progress.phase != KACHEL_PHASE_DONE;
    if (!bar_shown_) line = "\r\033[K";
  } else if (worth_a_line(progress)) {
    line =
        fmt::format("{} {}/{}  {}{}\n", phase_name(progress.phase), progress.done, progress.total, configuration, best);
  }
  std::fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace kachel::cli
