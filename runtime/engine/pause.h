// Room for others between the runs of a tuning in the background.
#pragma once
#include <algorithm>
#include <chrono>
#include <thread>

namespace kachel::runtime {

// After a run of so long: sleeps until it was but `share` of the time, at most a second.
inline void leave_room(double elapsed_ns, double share) {
  constexpr double kMost_ns = 1e9;
  if (share >= 1) return;
  const double pause = std::min(elapsed_ns * (1 / std::max(share, 1e-3) - 1), kMost_ns);
  std::this_thread::sleep_for(std::chrono::nanoseconds(static_cast<int64_t>(pause)));
}

}  // namespace kachel::runtime
