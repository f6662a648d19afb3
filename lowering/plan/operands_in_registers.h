// Tile IR to tile IR: a shared tile that is computed by the block and then nothing but an operand of products,
//
//   parallel i < M, k < K { a[i, k] = ... };  c += a @ b
//
// becomes a fragment, so that no barrier stands between computing and multiplying. On the left wgmma takes it from
// registers: one warp group computes while another multiplies. On the right mma.sync does, for few rows of c. What is
// computed in front of the loop that multiplies stays in memory, where it takes no registers and its barrier is one of
// the block's. What is gathered across its rows stays there as well, since the lanes that an instruction wants elements in are not those beside
// each other.
#pragma once
#include "ir/kernel.h"
#include "lowering/tile_ir/turned_operands.h"

namespace kachel::lowering {

// `left`: left operands too, for architectures with wgmma. REQUIRES: a concrete kernel for a GPU, not the generic
// lowering. The result shares variables and the other buffers.
ir::Kernel operands_in_registers(const ir::Kernel& kernel, bool left, const GatheredAxis& gathered);

}  // namespace kachel::lowering
