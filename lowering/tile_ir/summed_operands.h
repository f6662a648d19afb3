// Tile IR to tile IR: sums of 32 bits that another product takes,
//
//   u = a @ c^T   parallel i < M, j < R { u[i, j] = u[i, j] * u[i, j] }   acc += u @ g^T
//
// are copied to a tile of their own in front of it, since tensor cores leave sums in registers and take operands of 32
// bits from memory. In one tile the first product could not be theirs.
#pragma once
#include "ir/kernel.h"

namespace kachel::lowering {

// REQUIRES: a concrete kernel for a GPU, not the generic lowering. The result shares variables and the other buffers.
ir::Kernel summed_operands(const ir::Kernel& kernel);

}  // namespace kachel::lowering
