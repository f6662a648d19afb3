// Tile IR to tile IR: a product whose k is no multiple of the instruction's, as of heads of 72, reads tiles that reach
// past the tensor's end,
//
//   shared q: T[BM, 72], k: T[BN, 72]   q = Q[m +: BM, :]   k = K[n +: BN, :]   s += q @ k^T
//     ->   shared q: T[BM, 80], k: T[BN, 80]   q = Q[m +: BM, 0 +: 80]   k = K[n +: BN, 0 +: 80]   s += q @ k^T
//
// where zeros are read, which add nothing. Regions, copies and products along another axis may read what there was of
// them as well; where one of the operands has anything else done to it, all stay as they are.
#pragma once
#include "ir/kernel.h"

namespace kachel::lowering {

// REQUIRES: a concrete kernel. The result shares variables and all other buffers with `kernel`.
ir::Kernel padded_depth(const ir::Kernel& kernel);

}  // namespace kachel::lowering
