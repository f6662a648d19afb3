// Tile IR to tile IR: a region that takes several operands out of integers becomes a region for each,
//
//   parallel j < BN, d < D { k[j, d] = kq[j, d] * a[j]   v[j, d] = vq[j, d] * b[j] }
//     ->   parallel j < BN, d < D { k[j, d] = kq[j, d] * a[j] }   parallel j < BN, d < D { v[j, d] = vq[j, d] * b[j] }
//
// since the products that read them want them in layouts of their own.
#pragma once
#include "ir/kernel.h"

namespace kachel::lowering {

// REQUIRES: a concrete kernel. The result shares buffers, and the variables of what stays, with `kernel`.
ir::Kernel operand_regions(const ir::Kernel& kernel);

}  // namespace kachel::lowering
