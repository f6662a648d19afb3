// Tile IR to tile IR: sums of what products read,
//
//   fragment n: f32[N]   for k { b = B[...]   parallel j { n[j] += sum[t](f(b[j, t])) }   c += a @ b^T }
//     ->   carried = 0   for k { b = B[...]   c += a @ b^T   parallel j { carried[j] += sum[t](f(b[j, t])) } }
//          moved = carried   parallel j { n[j] += moved[j] }
//
// are carried through the loop in a tile of their own, whose layout suits reading b, and stand behind the products,
// beside which they are then computed. The sums themselves lie as what is done with c behind the loop wants them: where
// each thread has many of them, it would read all of b for these, an element at a time. So are the sums of loops that
// have no products where others do, the statistics of rows that are multiplied afterwards: where they lay as those
// products want them, each iteration would have to pass them from the threads that add up to those that hold them.
// What is added up under a condition, as the sums of the blocks of one column, is carried likewise, and so are extremes.
#pragma once
#include "ir/kernel.h"

namespace kachel::lowering {

// REQUIRES: a concrete kernel without arg reductions. The result shares variables and all other buffers.
ir::Kernel carried_sums(const ir::Kernel& kernel);

}  // namespace kachel::lowering
