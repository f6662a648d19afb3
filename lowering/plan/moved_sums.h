// Tile IR to tile IR: what a product adds to, where regions behind the product access it in another order than
// registers hold it (mirrored, halves of an axis beside each other, a row cut into groups), goes to a tile of its own
// first,
//
//   for k { c += a @ b }   parallel i, j { ... c[i, j + 64] ... }
//     ->   for k { c += a @ b }   c_moved = c   parallel i, j { ... c_moved[i, j + 64] ... }
//
// which lies in memory, while the product keeps its sums in registers. Else all of its steps would be fma on memory.
#pragma once
#include "ir/kernel.h"

namespace kachel::lowering {

// REQUIRES: from hoist_reductions(). The result shares variables and all other buffers with `kernel`.
ir::Kernel moved_sums(const ir::Kernel& kernel);

}  // namespace kachel::lowering
