// Loads that every iteration of a serial loop repeats, of tensors that the kernel only reads and at a place that nothing
// in the loop says,
//
//   for t < N { parallel i < C { y[i, t] = taps[0, 2] * x[i, t] } }
//
// are names in front of the loop: behind stores to other tensors the assembler has to load them anew.
#pragma once
#include "ir/kernel.h"

namespace kachel::lowering {

// REQUIRES: from a concrete kernel.
ir::Kernel unchanging_loads(const ir::Kernel& kernel);

}  // namespace kachel::lowering
