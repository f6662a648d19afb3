// Shared memory by wide accesses. What an unrolled innermost loop reads or writes one by one, a neighbour in each
// iteration, is loaded together in front of it and stored together behind it, 16 bytes at most at a time:
//
//   for c in 0 .. 4 { to[row * 64 + first + c] = from[row * 64 + first + c] * f[c] }
//
// becomes
//
//   copy_vector wide[0 +: 4], from[row * 64 + first +: 4]
//   for c in 0 .. 4 { made[c] = wide[c] * f[c] }
//   copy_vector to[row * 64 + first +: 4], made[0 +: 4]
//
// A loop that is longer than one access becomes two. What is accessed where a condition holds stays as it is, and so
// does memory that the loop accesses at several places and writes to.
#pragma once
#include "lowering/loop_ir/loop_ir.h"

namespace kachel::lowering {

// Input: a loop kernel for a GPU, after synchronise().
void wide_accesses(LoopKernel* kernel);

}  // namespace kachel::lowering
