// Loop IR to loop IR: quotients and remainders that are the same in every iteration of a serial loop, as of the rows
// that a thread copies for a convolution,
//
//   for k in 0 .. n { threads e < 128 { for r in 0 .. 8 unroll { let m = b * 128 + e / 8 + r * 16; .. m / w % h .. } } }
//
// are worked out once and held in registers, where there are enough:
//
//   threads e < 128 { for r in 0 .. 8 unroll { let m = ...; held[r] = m / w % h } }
//   for k in 0 .. n { threads e < 128 { for r in 0 .. 8 unroll { ... held[r] ... } } }
#pragma once
#include "lowering/loop_ir/loop_ir.h"

namespace kachel::lowering {

// Input: a loop kernel for a GPU, after narrow() and synchronise().
void held_places(LoopKernel* kernel);

}  // namespace kachel::lowering
