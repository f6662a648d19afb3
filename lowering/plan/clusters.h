// Clusters of two blocks with neighbouring tiles. What both read of a tensor each of them copies a half of, to the
// shared memory of both: the L2 is asked once, where it was asked twice.
//
// Both run through the same stages: a stage is filled when the bytes of both have come, and free when the consumers of
// both have released it, which therefore tell both producers. Whether two tiles read the same is worked out tile by
// tile from their places in the grid; where they do not, each copies for itself, and so does a block whose neighbour
// has no tile left.
#pragma once
#include "lowering/plan/schedule.h"

namespace kachel::lowering {

// Sets Schedule::cluster and shared, where all blocks walk equally many stages a tile and some copy does not depend on
// all axes of the grid. REQUIRES: part_roles().
void choose_clusters(const ir::Kernel& kernel, Schedule* schedule);

}  // namespace kachel::lowering
