// Tile IR to tile IR: an operand that regions make with k down its rows, of a type that tensor cores read along k only,
// is made the other way round,
//
//   parallel r < K, i < M { a[r, i] = ... }   c += a^T @ b   ->   parallel i < M, r < K { t[i, r] = ... }   c += t @ b
//
// since where the elements are put is the block's own affair.
#pragma once
#include "ir/kernel.h"

namespace kachel::lowering {

// REQUIRES: a concrete kernel. The result shares variables and all other buffers with `kernel`.
ir::Kernel turned_operands(const ir::Kernel& kernel);

}  // namespace kachel::lowering
