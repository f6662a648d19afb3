// Clusters: blocks that compute a rectangle of neighbouring tiles and copy for each other. What the tiles of a row, a
// column or all of them read alike is copied by their blocks in parts, each to the shared memory of all (TMA
// multicast): the L2 is asked once where it was asked by each.
//
// All blocks of a cluster run through the same stages: a stage is filled when the parts of all have come, and free when
// those who read it have told all that fill it. So a cluster's tiles are computed together, one a block, and where the
// grid ends in the middle of a rectangle, the blocks beyond its edge compute the last tile once more and store nothing
// (passes/spare_tiles.h).
#pragma once
#include "lowering/plan/schedule.h"

namespace kachel::lowering {

// Sets Schedule::cluster and shared for Target::cluster blocks, where some copy can be shared: of the rectangles along
// the last two axes of the walk the one by which a block copies least, or that with Target::cluster_columns. No axis is
// taken by which the number of a tile's stages changes. REQUIRES: part_roles().
void choose_clusters(const ir::Kernel& kernel, const Target& target, Schedule* schedule);

}  // namespace kachel::lowering
