// Tile IR to tile IR: a shared tile of which products read columns becomes a tile for each part,
//
//   k = K[t +: N, 0 +: 576]   s = q @ k^T   o += p @ k[:, 0 +: 512]
//     ->   k0 = K[t +: N, 0 +: 512]   k1 = K[t +: N, 512 +: 64]   s = q0 @ k0^T   s += q1 @ k1^T   o += p @ k0
//
// since instructions of tensor cores take whole tiles. What such a tile is multiplied with along its columns is parted
// likewise.
#pragma once
#include "ir/kernel.h"

namespace kachel::lowering {

// REQUIRES: a concrete kernel. The result shares the other buffers and all variables with `kernel`.
ir::Kernel parted_operands(const ir::Kernel& kernel);

}  // namespace kachel::lowering
