// Operands that the threads make in shared memory, two copies of each, so that one is made while products read the
// other:
//
//   pipelined k < K, stages { q = W[...];  w = ...;  c += a @ w^T }
#pragma once
#include "lowering/plan/placement.h"

namespace kachel::lowering {

// Fills Pipeline::alternating and gives those tiles two stages: where the copy engine fills the pipeline, all that
// follows the making are products of wgmma, and shared memory has room, without a block being alone on a multiprocessor
// for it.
void choose_alternating(const ir::Kernel& kernel, Schedule* schedule, Placements* placements, const Target& target);

}  // namespace kachel::lowering
