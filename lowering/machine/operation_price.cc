#include "lowering/machine/operation_price.h"

namespace kachel::lowering {

using ir::Op;

OperationPrice price_of(const ir::Expr& expr) {
  switch (expr.op) {
    case Op::kExp2:
    case Op::kLog2:
    case Op::kRsqrt:
    case Op::kRcp:
    case Op::kSqrt:
      return {1, 1};
    case Op::kExp:
    case Op::kLog:
    case Op::kSin:
    case Op::kCos:
      return expr.approx || expr.of_rounded ? OperationPrice{2, 1} : OperationPrice{8, 1};
    case Op::kTanh:
    case Op::kErf:
      return expr.approx ? OperationPrice{0, 1} : OperationPrice{20, 1};
    case Op::kRaisedTanh:
      return {3, 2};
    case Op::kRaisedErf:
      return {12, 1};
    case Op::kDiv:
      return ir::is_float(expr.type) ? OperationPrice{8, 1} : OperationPrice{12, 1};
    case Op::kMod:
      return {14, 1};
    default:
      return {1, 0};
  }
}

double instructions_of(const ir::ExprRef& expr) {
  double instructions = 0;
  ir::visit(expr, [&](const ir::ExprRef& node) {
    if (node->kind == ir::ExprKind::kApply) instructions += price_of(*node).scalar;
  });
  return instructions;
}

}  // namespace kachel::lowering
