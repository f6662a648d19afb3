// Loop IR to loop IR: what an unrolled loop would load again and again from memory is loaded once before it,
//
//   for r in 0 .. 16 unroll { w[r] = q[r] * scale[row * stride + (k * 64 + r) / 128] }
//
// for which quotients and masks lose the addends that do not change them (small_addends.h). Vectors that
// neighbour_accesses made are loads, too. The assembler's front end does none of this where a load stands under a guard,
// as most loads of tensors do. A load leaves the loop together with its guard or not at all.
#pragma once
#include "lowering/loop_ir/loop_ir.h"

namespace kachel::lowering {

// Relies on the ranges of the kernel.
void hoist_invariants(LoopKernel* kernel);

}  // namespace kachel::lowering
