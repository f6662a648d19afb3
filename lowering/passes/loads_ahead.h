// Loads of serial loops ahead of the iterations that need them. What a loop over time reads of tensors that nothing
// writes, at places that follow from its counter,
//
//   for t in 0 .. n { threads e < 64 { h[0] = g[t * stride + e] * h[0]; y[t * stride + e] = h[0] } }
//
// is loaded so many iterations before, into a ring of registers:
//
//   for u in 0 .. 8 unroll { ahead[u] = g[min(u, n - 1) * stride + e] }
//   for r in 0 .. n / 8 { for u in 0 .. 8 unroll {
//     h[0] = ahead[u] * h[0]; ...
//     ahead[u] = g[(min(r * 8 + u, n - 9) + 8) * stride + e]
//   } }
//
// and the n % 8 iterations that are left over find theirs in the ring. The last iterations load what the last one has
// loaded: every load is one that the loop makes, so that it needs no bounds of its own.
#pragma once
#include "lowering/loop_ir/loop_ir.h"

namespace kachel::lowering {

// Sets LoopFor::ahead where it pays. Input: a loop kernel for a GPU, after synchronise().
void choose_loads_ahead(LoopKernel* kernel);
// Makes these loops what is shown above.
void loads_ahead(LoopKernel* kernel);

}  // namespace kachel::lowering
