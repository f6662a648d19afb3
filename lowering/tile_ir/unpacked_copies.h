// Copies of 4-bit integers to tiles of another type, and of elements of 8 bits to 16-bit operands of products,
//
//   q = W[n*BN +: BN, k*BK +: BK]      w = q
//
// are regions, `parallel i < BN, j < BK { w[i, j] = q[i, j] }`, which unpack several elements an instruction and leave
// the copy to `q` to be made ahead. What is copied from a tensor at once, `w = W[..]`, gets a tile in between.
#pragma once
#include "ir/kernel.h"

namespace kachel::lowering {

// REQUIRES: from a concrete kernel.
ir::Kernel unpacked_copies(const ir::Kernel& kernel);

}  // namespace kachel::lowering
