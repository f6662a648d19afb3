// Loop IR to loop IR: what a place in a tensor, or a condition, is made of, in the order of the unrolled loops that it
// changes with,
//
//   for r in 0 .. 8 unroll { a[r] = c + i + r < C && y < H ? x[n * s0 + ((c + i + r) * s1 + y * s2)] : 0 }
//
//   for r in 0 .. 8 unroll { a[r] = y < H && C - (c + i) > r ? x[n * s0 + (c + i) * s1 + y * s2 + r * s1] : 0 }
//
// so that all but the last term, which is the same for each r, is found again and not computed anew.
#pragma once
#include "lowering/loop_ir/loop_ir.h"

namespace kachel::lowering {

// Relies on the ranges of the kernel. Sums of 32 bits become sums without signs, which wrap, so that their order does
// not matter.
void sums_by_loop(LoopKernel* kernel);

}  // namespace kachel::lowering
