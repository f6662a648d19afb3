#include "tuner/clock.h"

#include <chrono>

namespace kachel::tuner {

int64_t SteadyClock::now_ns() {
  auto since_origin = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(since_origin).count();
}

Deadline::Deadline(Clock& clock, int64_t start_ns, int64_t after_ns) : clock_(&clock), at_ns_(kNever) {
  if (after_ns < 0) after_ns = 0;
  if (start_ns <= 0 || after_ns < kNever - start_ns) at_ns_ = start_ns + after_ns;
}

}  // namespace kachel::tuner
