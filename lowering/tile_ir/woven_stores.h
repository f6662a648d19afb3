// Tile IR to tile IR: a region that makes several elements of an operand in each iteration, neighbours or such that lie
// far apart, of one word of weights,
//
//   parallel i < N, j < K / 2 { w[i, 2 * j] = f(q[i, j] & 15)   w[i, 2 * j + 1] = f(q[i, j] >> 4) }
//
// becomes one with an iteration for each element, as if it had been written so:
//
//   parallel i < N, j < K { w[i, j] = f(q[i, j / 2] >> j % 2 * 4 & 15) }
//
// Then the operand can stay in registers, which have its elements in another order than the words have.
#pragma once
#include "ir/kernel.h"

namespace kachel::lowering {

// REQUIRES: from a concrete kernel. The result shares buffers and variables with `kernel`.
ir::Kernel woven_stores(const ir::Kernel& kernel);

}  // namespace kachel::lowering
