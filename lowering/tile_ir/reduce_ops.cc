#include "lowering/tile_ir/reduce_ops.h"

#include <limits>

#include "ir/numerics.h"
#include "lowering/planted.h"

namespace kachel::lowering {

using ir::DType;
using ir::ExprRef;
using ir::Op;

// NaN is what max and min lose every comparison with, so it is their neutral element; all NaN stays NaN.
ExprRef neutral_element(ir::ReduceOp op, DType type) {
  const bool is_float = ir::is_float(type);
  if (!ir::is_extreme(op)) {
    const int first = op == ir::ReduceOp::kProd && !planted(Planted::kReduceInit);
    return is_float ? ir::make_float(first) : ir::make_int(first, type);
  }
  if (planted(Planted::kReduceInit)) return is_float ? ir::make_float(0) : ir::make_int(0, type);
  if (is_float) return ir::make_float(std::numeric_limits<double>::quiet_NaN());
  return ir::make_int(op == ir::ReduceOp::kMax ? ir::least_integer(type) : ir::greatest_integer(type), type);
}

ExprRef combined(ir::ReduceOp op, const ExprRef& a, const ExprRef& b) {
  return ir::make_typed(ir::operation_of(op), {a, b});
}

}  // namespace kachel::lowering
