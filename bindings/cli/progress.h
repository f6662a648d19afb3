// Shows a tuning as it goes: a bar on a terminal, a line a candidate elsewhere; turns an interrupt into a cancelled
// tuning, so that what was measured is kept.
#pragma once
#include <chrono>
#include <mutex>

#include "kachel.h"

namespace kachel::cli {

class ProgressReporter {
 public:
  // quiet: print nothing, cancel only. The first SIGINT cancels, the second ends the process.
  explicit ProgressReporter(bool quiet);
  ~ProgressReporter();
  ProgressReporter(const ProgressReporter&) = delete;
  ProgressReporter& operator=(const ProgressReporter&) = delete;

  // kachel_engine_options.progress with a ProgressReporter as its user; any thread.
  static int32_t callback(void* user, const kachel_progress* progress);

 private:
  void show(const kachel_progress& progress);
  bool worth_a_line(const kachel_progress& progress);

  const bool quiet_, terminal_;
  std::mutex mutex_;
  bool bar_shown_ = false;
  std::chrono::steady_clock::time_point last_line_;
};

}  // namespace kachel::cli
