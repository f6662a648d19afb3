// Tile IR to tile IR: operands of products whose rows `within` bounds, as of one sequence or one expert among many,
//
//   pipelined k < K, 4 { x = X[first + m*BM +: BM, ...] within first +: rows   ... acc += x @ w^T }
//
// are copied without the bound where none of their rows lies beyond it,
//
//   if first <= first + m*BM && first + m*BM + BM <= first + rows { x = X[...] } else { x = X[...] within ... }
//
// so that the copy engine moves all but those at an end, which the producer's threads cut. And so are the sums stored.
#pragma once
#include "lowering/plan/placement.h"
#include "lowering/plan/schedule.h"

namespace kachel::lowering {

// Which copies are parted.
struct BoundedBoxes {
  bool operands = true, stores = true;
};
// Operands in pipelined loops alone, and where the facts allow boxes of the tensor. REQUIRES: a concrete kernel. The
// result shares buffers and variables with `kernel`.
ir::Kernel bounded_boxes(const ir::Kernel& kernel, uint64_t fact_mask, BoundedBoxes which);

// Whether the copy engine moves one half of all that has been parted so: else it would only be written twice.
bool operands_in_boxes(const ir::Kernel& kernel, const Schedule& schedule);
bool stores_in_boxes(const ir::Kernel& kernel, const Placements& placements);

}  // namespace kachel::lowering
