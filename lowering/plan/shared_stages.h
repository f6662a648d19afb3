// Loops that follow each other and are filled alike by the copy engine, as products along two tensors in turn are, need
// no memory of their own each: the producer goes on into the stages that the loop before has released,
//
//   pipelined k < K { x = A[.., k]; w = V[.., k]; c += x @ w }
//   pipelined k < L { x = B[.., k]; w = W[.., k]; c += x @ w }
//
// so that there are twice as many of them, and none of the second loop's is waited for at its beginning.
#pragma once
#include <map>

#include "lowering/plan/placement.h"
#include "lowering/tile_ir/tile_uses.h"

namespace kachel::lowering {

// Sets Pipeline::stages_of where the tiles of two loops of one block are of one kind. To be called before
// fit_pipelines().
void share_stages(const ir::Kernel& kernel, Schedule* schedule, const Placements& placements);

// Whether what share_stages() has put together is filled and released alike, now that it is known how: what else it
// has put together cannot share.
bool stages_agree(const Schedule& schedule, const Placements& placements);

// Tiles that lie in the stages of another one, and which one that is.
std::map<const ir::Buffer*, const ir::Buffer*> tiles_in_stages_of(const Schedule& schedule);

// Tiles of the loop that products read whose other operand a product has made, by way of registers: the work between
// is what another group's products run beside, and what they read is wanted later than what the others do.
BufferSet late_tiles(const Pipeline& pipeline, const Placements& placements);

}  // namespace kachel::lowering
