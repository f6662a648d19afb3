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

// Whether anything is loaded in it, from memory or registers.
inline bool loads(const ExprRef& expr) {
  bool found = false;
  visit(expr, [&](const ExprRef& node) { found |= node->kind == ExprKind::kLoad; });
  return found;
}

}  // namespace kachel::ir
