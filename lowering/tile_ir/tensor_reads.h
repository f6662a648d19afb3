// What regions read of tensors as tiles: R[x + i, y + j] in a region over (i, j) is r[i, j] of a tile r = R[x +: BM, y
// +: BN].
#pragma once
#include <optional>
#include <vector>

#include "lowering/loop_ir/region_index.h"

namespace kachel::lowering {

struct TensorRead {
  ir::ExprRef load;                // in the region
  ir::BufferRef tile;              // what could stand for it, of the axes that follow the region's
  std::vector<ir::ExprRef> place;  // of an iteration's element in the tile
  ir::CopyStmt copy;               // of the tensor to the tile
};

// The loads of tensors that the kernel only reads, of one element an iteration, for which there is such a tile: each
// axis of the tensor follows one axis of the region or none, in the region's order. Each once. `ahead`: of tiles that
// are copied long before, where another order does as well, and what only some iterations load.
std::vector<TensorRead> tensor_reads(const ir::ParallelStmt& region, bool ahead);

// The region with tiles in the place of tensors.
ir::ParallelStmt with_tiles(const ir::ParallelStmt& region, const std::vector<TensorRead>& reads);

}  // namespace kachel::lowering
