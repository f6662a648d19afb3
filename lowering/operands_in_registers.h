// Tile IR to tile IR: a shared tile that is computed by the block and then nothing but the left operand of products,
//
//   parallel i < M, k < K { a[i, k] = ... };  c += a @ b
//
// becomes a fragment. wgmma takes its left operand from registers: no barrier stands between computing and multiplying,
// so one warp group computes while another multiplies.
#pragma once
#include "ir/kernel.h"

namespace kachel::lowering {

// REQUIRES: a concrete kernel for an architecture with wgmma. The result shares variables and the other buffers.
ir::Kernel operands_in_registers(const ir::Kernel& kernel);

}  // namespace kachel::lowering
