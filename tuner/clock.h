// Time as the tuner sees it, so that budgets are tested without waiting.
#pragma once
#include <cstdint>
#include <limits>

namespace kachel::tuner {

// Monotonic time from an arbitrary origin. Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual int64_t now_ns() = 0;
};

class SteadyClock final : public Clock {
 public:
  int64_t now_ns() override;
};

class Deadline {
 public:
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

  // `after_ns` from `start_ns`; kNever, or a sum beyond the range, never passes.
  Deadline(Clock& clock, int64_t start_ns, int64_t after_ns);
  bool passed() const { return at_ns_ != kNever && clock_->now_ns() >= at_ns_; }

 private:
  Clock* clock_;
  int64_t at_ns_;
};

}  // namespace kachel::tuner
