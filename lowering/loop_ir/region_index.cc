#include "lowering/loop_ir/region_index.h"

#include "lowering/loop_ir/loop_build.h"

namespace kachel::lowering {

using ir::ExprKind;
using ir::ExprRef;

namespace {

// Between types that hold any index.
bool is_index_cast(const ir::Expr& expr) {
  return expr.kind == ExprKind::kCast && !ir::is_float(expr.args[0]->type) && ir::bits(expr.type) >= 32;
}
ExprRef unwrapped(ExprRef expr) {
  while (is_index_cast(*expr)) expr = expr->args[0];
  return expr;
}

}  // namespace

std::optional<PairIndex> pair_index(const ExprRef& index) {
  ExprRef doubled = unwrapped(index);
  PairIndex pair;
  for (size_t i = 0; i < 2; ++i)
    if (doubled->kind == ExprKind::kApply && doubled->op == ir::Op::kAdd && ir::is_int(doubled->args[i], 1)) {
      pair.part = 1;
      doubled = unwrapped(doubled->args[1 - i]);
    }
  if (doubled->kind != ExprKind::kApply || doubled->op != ir::Op::kMul) return std::nullopt;
  for (size_t i = 0; i < 2; ++i) {
    const ExprRef var = unwrapped(doubled->args[1 - i]);
    if (!ir::is_int(doubled->args[i], 2) || var->kind != ExprKind::kVar) continue;
    pair.var = var->var;
    return pair;
  }
  return std::nullopt;
}

ExprRef RegionIndexes::inlined(const ExprRef& expr) const {
  return ir::rewrite(expr, [&](const ExprRef& node) {
    if (node->kind != ExprKind::kVar) return node;
    const auto let = lets_.find(node->var.get());
    return let == lets_.end() ? node : let->second;
  });
}

std::optional<RegionIndex> RegionIndexes::split(const ExprRef& index) const {
  if (is_shared(index)) return RegionIndex{RegionIndex::kNone, index};
  if (index->kind == ExprKind::kVar) return RegionIndex{axis_of(*index), nullptr};
  if (is_index_cast(*index)) return split(index->args[0]);
  if (index->kind != ExprKind::kApply || index->op != ir::Op::kAdd) return std::nullopt;
  const bool first = is_shared(index->args[0]);
  if (!first && !is_shared(index->args[1])) return std::nullopt;
  std::optional<RegionIndex> result = split(index->args[first ? 1 : 0]);
  if (result) result->base = plus(result->base, index->args[first ? 0 : 1]);
  return result;
}

size_t RegionIndexes::axis_of(const ir::Expr& variable) const {
  for (size_t i = 0; i < iters_.size(); ++i)
    if (iters_[i].var == variable.var) return i;
  return RegionIndex::kNone;
}

// The same in all iterations, and known in front of them.
bool RegionIndexes::is_shared(const ExprRef& expr) const {
  bool shared = true;
  ir::visit(expr, [&](const ExprRef& node) {
    shared &= node->kind != ExprKind::kLoad && node->kind != ExprKind::kReduce;
    shared &= node->kind != ExprKind::kVar || axis_of(*node) == RegionIndex::kNone;
  });
  return shared;
}

}  // namespace kachel::lowering
