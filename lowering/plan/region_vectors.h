// Regions that touch tensors and no fragment along their last axis: how many neighbours a thread has there.
#pragma once
#include "lowering/plan/placement.h"

namespace kachel::lowering {

// Neighbours along the last axis of a region, or of what its reduction adds up, that one access to tensors serves: of
// 16 bytes of the widest type that it writes, or reads if it writes none. 1 where some write goes element by element in
// any case, or as many accesses do as do not: for those, threads beside each other belong to neighbours. A power of
// two.
int64_t region_vector(const ir::Kernel& kernel, const Target& target, uint64_t fact_mask,
                      const ir::ParallelStmt& region);

// Whether all that a region does is to read tensors that nothing writes and to write tensors: its iterations are
// written out where they are dealt out by a layout, so that the loads of several are under way together.
bool moves_between_tensors(const ir::ParallelStmt& region);

}  // namespace kachel::lowering
