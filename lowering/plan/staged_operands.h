// Tile IR to tile IR: an operand in memory that the block computes element by element,
//
//   parallel i < N, k < K { w[i, k] = ... };  c += a @ w^T
//
// is computed into a fragment that is then copied to it. The fragment gets a layout of its own, so that a thread
// computes neighbours, whose loads and index arithmetic they share, and stores them as one vector.
#pragma once
#include "ir/kernel.h"

namespace kachel::lowering {

// REQUIRES: a concrete kernel for a GPU, not the generic lowering. Operands that products take from registers are left
// as they are. The result shares variables and the other buffers.
ir::Kernel staged_operands(const ir::Kernel& kernel);

}  // namespace kachel::lowering
