#include "lowering/tile_ir/part_access.h"

#include "lowering/tile_ir/tile_uses.h"

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
  return ir::rewrite(
      expr, [&](const ExprRef& node) { return node->kind == ExprKind::kVar && node->var == var ? value : node; });
}

ir::Block substituted(ir::Block body, const ir::VarRef& var, const ExprRef& value) {
  rewrite_region(&body, [&](const ExprRef& expr) { return substituted(expr, var, value); });
  return body;
}

}  // namespace kachel::lowering
