// Tile IR to tile IR: what a block's `let` computes from fragments, and regions alone use, becomes a fragment of one
// element,
//
//   let mean = total[0] / n   parallel i { ... x[i] - mean ... }
//     ->   parallel one < 1 { mean[one] = total[one] / n }   parallel i { ... x[i] - mean[0] ... }
//
// Every thread then has it, and what it is made of, in registers; a `let` reads tiles by way of shared memory. One that
// places, bounds or conditions are made of stays: who copies ahead needs it too.
#pragma once
#include "ir/kernel.h"

namespace kachel::lowering {

// REQUIRES: a concrete kernel. The result shares variables and all other buffers with `kernel`.
ir::Kernel scalar_tiles(const ir::Kernel& kernel);

}  // namespace kachel::lowering
