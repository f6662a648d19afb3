// Which accumulators the copy engine stores, or adds to what a tensor holds. A warp puts 16 rows of its part of a
// fragment into shared memory, by stmatrix where elements have 16 bits, a box of 128 bytes a row at a time, and the
// copy engine writes them to the tensor, whole lines at a time and without what lies outside of it, while the warp goes
// on. Outside of loops; additions within, too.
#pragma once
#include "lowering/plan/placement.h"

namespace kachel::lowering {

// Bytes that boxes of additions within loops take, as many a warp as are wanted.
int64_t added_bytes(const ir::Kernel& kernel, const Placements& placements, const Target& target, uint64_t fact_mask);

// Fills Placements::boxes. A copy is chosen if the facts allow a map, nothing else in the kernel touches the tensor,
// and there is room for a warp's boxes without fewer blocks fitting on a multiprocessor.
void choose_box_stores(const ir::Kernel& kernel, const Schedule& schedule, Placements* placements, const Target& target,
                       uint64_t fact_mask);

}  // namespace kachel::lowering
