#pragma once
#include "ir/kernel.h"

namespace kachel::lowering {

// Of a reduction: what changes nothing, and what two values become.
ir::ExprRef neutral_element(ir::ReduceOp op, ir::DType type);
ir::ExprRef combined(ir::ReduceOp op, const ir::ExprRef& a, const ir::ExprRef& b);

}  // namespace kachel::lowering
