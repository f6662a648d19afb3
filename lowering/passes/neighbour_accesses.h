// Elements beside each other by one access. What the statements of a block load from an input, or one right after the
// other from shared memory, and what they store to a tensor,
//
//   let c = turn[at * stride]   let n = turn[at * stride + 1]   ...   y[2 * i] = c * x   y[2 * i + 1] = n * x
//
// becomes vectors where the facts align them:
//
//   copy_vector near[0 +: 2], turn[at * stride +: 2]   ...   made[0] = near[0] * x   made[1] = near[1] * x
//   copy_vector y[2 * i +: 2], made[0 +: 2]
//
// What is loaded or stored where a condition holds is together with what the same condition guards.
#pragma once
#include <map>

#include "lowering/loop_ir/loop_ir.h"

namespace kachel::lowering {

// Input: a loop kernel for a GPU, after synchronise() and before narrow(). `aligned`: bytes to which each tensor's
// address and its rows are.
void neighbour_accesses(LoopKernel* kernel, const std::map<const ir::Buffer*, int64_t>& aligned);

}  // namespace kachel::lowering
