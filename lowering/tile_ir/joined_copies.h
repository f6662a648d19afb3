// Tile IR to tile IR: copies between several fragments and elements of one tensor that differ in the last index alone,
//
//   Y[x +: n, :, 0] = re   Y[x +: n, :, 1] = im
//
// become one region, in which a thread has the neighbours at once:
//
//   parallel i < n, j < 8 { Y[x + i, j, 0] = re[i, j]   Y[x + i, j, 1] = im[i, j] }
#pragma once
#include "ir/kernel.h"

namespace kachel::lowering {

// REQUIRES: a concrete kernel. The result shares variables and buffers with `kernel`.
ir::Kernel joined_copies(const ir::Kernel& kernel);

}  // namespace kachel::lowering
