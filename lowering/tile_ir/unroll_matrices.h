// Tile IR to tile IR: loops whose variables say which matrix of a tile a product uses are written out, so that each
// product names its matrices by numbers. See split_slices.h.
#pragma once
#include "ir/kernel.h"

namespace kachel::lowering {

inline constexpr int64_t kMostMatrices = 16;

// REQUIRES: a concrete kernel. The result shares buffers with `kernel`.
ir::Kernel unroll_matrices(const ir::Kernel& kernel);

}  // namespace kachel::lowering
