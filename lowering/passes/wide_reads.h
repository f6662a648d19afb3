// Reads of shared memory by wide accesses. Where an unrolled innermost loop reads neighbouring elements, one in each
// iteration, they are loaded together in front of it, 16 bytes at most at a time:
//
//   for c in 0 .. 4 { sum[c] += tile[row * 64 + first + c] * f[c] }
//
// becomes
//
//   copy_vector wide[0 +: 4], tile[row * 64 + first +: 4]
//   for c in 0 .. 4 { sum[c] += wide[c] * f[c] }
//
// A loop that is longer than one access becomes two. What is read where a condition holds stays as it is, and so do
// tiles that the loop writes to.
#pragma once
#include "lowering/loop_ir/loop_ir.h"

namespace kachel::lowering {

// Input: a loop kernel for a GPU, after synchronise().
void wide_reads(LoopKernel* kernel);

}  // namespace kachel::lowering
