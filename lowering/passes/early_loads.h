// Loads of several iterations under way together. A load may not pass a store to another tensor, as far as the assembler
// knows, so what an unrolled loop (or a nest of them) reads of tensors that nothing writes, and then writes to others,
//
//   for r in 0 .. 8 unroll { y[at + 128 * r] = f(x[at + 128 * r]) }
//
// becomes two:
//
//   for r in 0 .. 8 unroll { early[r] = x[at + 128 * r] }
//   for r in 0 .. 8 unroll { y[at + 128 * r] = f(early[r]) }
//
// or several such pairs, where that takes too many registers. Vectors likewise. What is read where a condition holds is
// left where it is, unless the condition is that of the load's bounds.
#pragma once
#include "lowering/loop_ir/loop_ir.h"

namespace kachel::lowering {

// Input: a loop kernel for a GPU, after synchronise().
void early_loads(LoopKernel* kernel);

}  // namespace kachel::lowering
