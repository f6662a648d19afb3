#include "tuner/progress.h"

namespace kachel::tuner {

std::string_view phase_name(Phase phase) {
  switch (phase) {
    case Phase::kCompiling:
      return "compiling";
    case Phase::kChecking:
      return "checking";
    case Phase::kMeasuring:
      return "measuring";
    case Phase::kDone:
      return "done";
  }
  return "unknown";
}

Status Reporter::report(const ProgressEvent& event) {
  if (!progress_) return {};
  last_ns_ = clock_.now_ns();
  if (progress_(event)) return {};
  return {Code::kCancelled, "the progress callback asked to stop tuning"};
}

Status Reporter::tick(const ProgressEvent& event) {
  if (!progress_ || clock_.now_ns() - last_ns_ < kTickNs) return {};
  return report(event);
}

}  // namespace kachel::tuner
