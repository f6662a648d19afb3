// Arrays of registers that a branch may be the first to write, an element at a time, begin as zeros. The program reads
// none of what they held before, but ptxas 13.0 takes four such registers, each set in another iteration, for one
// (docs/assembler.md). Branches around more than stores are not meant: sums and operands of products that begin as
// something would be moved.
#pragma once
#include "lowering/loop_ir/loop_ir.h"

namespace kachel::lowering {

void zero_before_branches(LoopKernel* kernel);

}  // namespace kachel::lowering
