// Folds every expression, drops branches whose condition is known, loops that run no iteration and values that are
// names of other values. Input and output: a loop kernel, before or after synchronise().
#pragma once
#include "lowering/loop_ir/loop_ir.h"

namespace kachel::lowering {

void simplify(LoopKernel* kernel);

// The block with these values in place of variables.
LoopBlock substituted(const LoopBlock& block, std::unordered_map<const ir::Var*, ir::ExprRef> values);

}  // namespace kachel::lowering
