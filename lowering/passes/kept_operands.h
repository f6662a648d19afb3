// Loop IR to loop IR: registers that wgmma reads in every iteration of a loop and that nothing writes there,
//
//   parallel i < M, d < D { q[i, d] = ... }   for n < N { s = q @ k^T;  if any(...) { acc *= alpha };  ... }
//
// become registers of the fence in front of the products, which writes them anew, as they are. Where a branch stands in
// the loop, ptxas (13.0) takes them for dead behind the products of the first iteration and gives them to others: see
// docs/assembler.md.
#pragma once
#include "lowering/loop_ir/loop_ir.h"

namespace kachel::lowering {

// REQUIRES: synchronise(). Behind all passes that move or copy statements.
void kept_operands(LoopKernel* kernel);

}  // namespace kachel::lowering
