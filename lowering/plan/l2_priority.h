// Which boxes the L2 should keep. Weights that a few rows are multiplied by are gone through once; kept as long as
// others, they push out what every block reads. Reads of a stream are marked as the first to be evicted, the other
// copies of a kernel that has one as the last. How many tiles read the same is known when the grid is: a launch
// decides.
#pragma once
#include "lowering/plan/schedule.h"

namespace kachel::lowering {

// A stream: read by as many tiles, which run side by side. With more, the L2 serves most of its reads.
inline constexpr int64_t kMostReadersOfStream = 2;

// Sets Schedule::reread. REQUIRES: pipelines, order and raster are settled.
void choose_l2_priorities(const ir::Kernel& kernel, Schedule* schedule);

}  // namespace kachel::lowering
