// Rows that are longer than the registers of a block: blocks of a cluster compute a tile together, as one block would
// that had the threads of all of them. What threads share, parts of sums, a store puts into the shared memory of each
// block, and a barrier is the cluster's. So a row of a megabyte is read once.
//
// So it is where fragments need it, and where the tunable `cluster` asks for it and no pipelined loop is there whose
// copies blocks could share instead.
#pragma once
#include "ir/kernel.h"
#include "lowering/loop_ir/loop_ir.h"

namespace kachel::lowering {

// Blocks for each tile of a concrete kernel that the target asks for; 0: it says nothing.
int asked_tile_blocks(const ir::Kernel& kernel, const Target& target);

// Blocks that it needs, where it says nothing: 1 or more. `alone`: what it comes to with one.
int needed_tile_blocks(const ir::Kernel& kernel, const LoopKernel& alone);

// Whether all that threads exchange through shared memory are elements stored one by one, and few. REQUIRES: memory is
// planned.
bool can_part_tiles(const LoopKernel& kernel);

}  // namespace kachel::lowering
