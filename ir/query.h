// What is often asked of expressions.
#pragma once
#include "ir/expr.h"

namespace kachel::ir {

// Whether the expression is an operation of that kind.
inline bool is(const ExprRef& expr, Op op) {
  return expr->kind == ExprKind::kApply && expr->op == op;
}

// Whether the expression is a variable of that kind.
inline bool is_var(const ExprRef& expr, VarKind kind) {
  return expr->kind == ExprKind::kVar && expr->var->kind == kind;
}

// Whether the expression, with names written out, is 0 or more whatever the launch, as what grids and loops count is.
inline bool is_natural(const ExprRef& expr) {
  if (expr->kind == ExprKind::kInt) return expr->int_value >= 0;
  if (expr->kind == ExprKind::kCast) return bits(expr->cast_type.dtype) == 64 && is_natural(expr->args[0]);
  if (expr->kind == ExprKind::kVar)
    return expr->var->kind == VarKind::kDim || expr->var->kind == VarKind::kTunable ||
           expr->var->kind == VarKind::kGrid;
  if (expr->kind != ExprKind::kApply) return false;
  switch (expr->op) {
    case Op::kAdd:
    case Op::kMul:
    case Op::kDiv:
    case Op::kCeilDiv:
    case Op::kMin:
      return is_natural(expr->args[0]) && is_natural(expr->args[1]);
    case Op::kMax:
      return is_natural(expr->args[0]) || is_natural(expr->args[1]);
    default:
      return false;
  }
}

// Whether anything is loaded in it, from memory or registers.
inline bool loads(const ExprRef& expr) {
  bool found = false;
  visit(expr, [&](const ExprRef& node) { found |= node->kind == ExprKind::kLoad; });
  return found;
}

}  // namespace kachel::ir
