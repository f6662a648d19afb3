// Tile IR to tile IR: a tensor whose last two axes are counted as one (ir/one_axis.h) and lie as one (Fact::kOneAxis)
// has them as one,
//
//   Y: T[N, C, H, W]   Y[n, c, p / W, p % W] = ...   ->   Y: T[N, C, 1, H * W]   Y[n, c, 0, p] = ...
//
// so that pixels of an image are a row, which boxes and 16-byte accesses apply to as to any other.
#pragma once
#include <cstdint>

#include "ir/kernel.h"

namespace kachel::lowering {

// REQUIRES: a concrete kernel. `fact_mask`: facts that hold; of such tensors, what the result may take for granted of
// them is added, and what speaks of their axes is taken away. The result shares variables and all other buffers.
ir::Kernel one_axis_views(const ir::Kernel& kernel, uint64_t* fact_mask);

}  // namespace kachel::lowering
