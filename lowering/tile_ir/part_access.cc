#include "lowering/tile_ir/part_access.h"

#include "ir/visit.h"

namespace kachel::lowering {

using ir::ExprKind;
using ir::ExprRef;

std::optional<Place> place_of(const ExprRef& index) {
  if (index->kind == ExprKind::kVar) return Place{index->var, 0};
  if (index->kind != ExprKind::kApply || index->op != ir::Op::kAdd) return std::nullopt;
  for (size_t side = 0; side < 2; ++side) {
    const ExprRef &var = index->args[side], &offset = index->args[1 - side];
    if (var->kind == ExprKind::kVar && offset->kind == ExprKind::kInt) return Place{var->var, offset->int_value};
  }
  return std::nullopt;
}

ExprRef substituted(const ExprRef& expr, const ir::VarRef& var, const ExprRef& value) {
  if (!expr) return expr;
  return ir::rewrite(
      expr, [&](const ExprRef& node) { return node->kind == ExprKind::kVar && node->var == var ? value : node; });
}

ir::Block substituted(ir::Block body, const ir::VarRef& var, const ExprRef& value) {
  const auto expr = [&](const ExprRef& root) { return substituted(root, var, value); };
  for (ir::Stmt& stmt : body) {
    if (auto* let = std::get_if<ir::LetStmt>(&stmt.node)) let->value = expr(let->value);
    if (auto* assign = std::get_if<ir::AssignStmt>(&stmt.node)) {
      for (ExprRef& index : assign->indices) index = expr(index);
      assign->value = expr(assign->value);
    }
    if (auto* branch = std::get_if<ir::IfStmt>(&stmt.node)) {
      branch->condition = expr(branch->condition);
      branch->then_body = substituted(std::move(branch->then_body), var, value);
      branch->else_body = substituted(std::move(branch->else_body), var, value);
    }
  }
  return body;
}

}  // namespace kachel::lowering
