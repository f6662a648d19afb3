// What a tuning tells its host while it runs.
#pragma once
#include <functional>
#include <optional>
#include <string_view>

#include "support/status.h"
#include "tuner/clock.h"
#include "tuner/configuration.h"

namespace kachel::tuner {

enum class Phase : int32_t { kCompiling = 0, kChecking, kMeasuring, kDone };

// "compiling", "checking", "measuring", "done".
std::string_view phase_name(Phase phase);

struct ProgressEvent {
  Phase phase = Phase::kCompiling;
  // Candidates while compiling and checking. Rounds while measuring, where `total` is the most there can be.
  size_t done = 0;
  size_t total = 0;
  const Configuration* configuration = nullptr;  // the one just dealt with; null if none. Valid during the call.
  std::optional<double> best_ns;                 // so far
};

// Called on the thread that called tune(). False cancels the tuning.
using Progress = std::function<bool(const ProgressEvent&)>;

// Hands events to a Progress, which may be empty.
class Reporter {
 public:
  static constexpr int64_t kTickNs = 50'000'000;

  Reporter(const Progress& progress, Clock& clock) : progress_(progress), clock_(clock), last_ns_(clock.now_ns()) {}

  // kCancelled if the host wants to stop.
  Status report(const ProgressEvent& event);
  // The same, but at most every kTickNs: for every single run, so that rounds of slow candidates can be cancelled
  // without calling the host after each microsecond.
  Status tick(const ProgressEvent& event);

 private:
  const Progress& progress_;
  Clock& clock_;
  int64_t last_ns_;
};

}  // namespace kachel::tuner
