#include "lowering/tile_ir/same_work.h"

#include <algorithm>

namespace kachel::lowering {

using ir::ExprKind;
using ir::ExprRef;

namespace {

// Whether it is known from nothing but names, so that its polynomial says what it is.
bool is_integer_of_names(const ExprRef& expr) {
  bool plain = expr->type == ir::DType::I64 || expr->type == ir::DType::I32;
  ir::visit(expr, [&](const ExprRef& node) {
    plain &= node->kind != ExprKind::kLoad && !ir::is_reduction(*node) && node->kind != ExprKind::kCast;
  });
  return plain;
}

}  // namespace

bool SameWork::bound(const ir::VarRef& first, const ir::VarRef& second) {
  bind(second, ir::make_var(first));
  return true;
}

ExprRef SameWork::renamed(const ExprRef& second) const {
  return ir::rewrite(second, [&](const ExprRef& node) {
    const auto found = node->kind == ExprKind::kVar ? values_.find(node->var.get()) : values_.end();
    return found == values_.end() ? node : found->second;
  });
}

bool SameWork::same(const std::vector<ir::IterVar>& first, const std::vector<ir::IterVar>& second) {
  return std::equal(
      first.begin(), first.end(), second.begin(), second.end(),
      [&](const ir::IterVar& a, const ir::IterVar& b) { return same(a.extent, b.extent) && bound(a.var, b.var); });
}

bool SameWork::same(const ExprRef& first, const ExprRef& second) {
  if (!first || !second) return !first && !second;
  if (first->type != second->type) return false;
  if (is_integer_of_names(first) && is_integer_of_names(second)) return polys_.equal(first, renamed(second));
  if (first->kind != second->kind || first->op != second->op || first->approx != second->approx ||
      first->reduce != second->reduce || first->inclusive != second->inclusive || first->buffer != second->buffer)
    return false;
  if (first->kind == ExprKind::kVar) return ir::same(first, renamed(second));
  if (first->args.empty() && first->iters.empty()) return ir::same(first, second);
  if (first->kind == ExprKind::kCast && first->cast_type.dtype != second->cast_type.dtype) return false;
  return same(first->iters, second->iters) &&
         std::equal(first->args.begin(), first->args.end(), second->args.begin(), second->args.end(),
                    [&](const ExprRef& a, const ExprRef& b) { return same(a, b); });
}

bool SameWork::same(const ir::TileRef& first, const ir::TileRef& second) {
  return first.buffer == second.buffer && same(first.within_first, second.within_first) &&
         same(first.within_length, second.within_length) && same(first.pad, second.pad) &&
         std::equal(first.axes.begin(), first.axes.end(), second.axes.begin(), second.axes.end(),
                    [&](const ir::AxisSpec& a, const ir::AxisSpec& b) {
                      return a.kind == b.kind && !a.index && !b.index && same(a.start, b.start) &&
                             same(a.extent, b.extent) && !a.gather == !b.gather &&
                             (!a.gather || same(*a.gather, *b.gather));
                    });
}

bool SameWork::same(const ir::Block& first, const ir::Block& second) {
  return std::equal(first.begin(), first.end(), second.begin(), second.end(),
                    [&](const ir::Stmt& a, const ir::Stmt& b) { return same(a, b); });
}

bool SameWork::same(const ir::Stmt& first, const ir::Stmt& second) {
  if (first.node.index() != second.node.index()) return false;
  return std::visit(
      [&](const auto& a) {
        using Node = std::decay_t<decltype(a)>;
        const Node& b = std::get<Node>(second.node);
        if constexpr (std::is_same_v<Node, ir::LetStmt>)
          return same(a.value, b.value) && bound(a.var, b.var);
        else if constexpr (std::is_same_v<Node, ir::CopyStmt>)
          return a.atomic == b.atomic && same(a.dst, b.dst) && same(a.src, b.src);
        else if constexpr (std::is_same_v<Node, ir::FillStmt>)
          return same(a.dst, b.dst) && same(a.value, b.value);
        else if constexpr (std::is_same_v<Node, ir::GemmStmt>)
          return a.transpose_a == b.transpose_a && a.transpose_b == b.transpose_b && a.accumulate == b.accumulate &&
                 a.precision == b.precision && same(a.c, b.c) && same(a.a, b.a) && same(a.b, b.b);
        else if constexpr (std::is_same_v<Node, ir::ParallelStmt>)
          return same(a.iters, b.iters) && same(a.body, b.body);
        else if constexpr (std::is_same_v<Node, ir::AssignStmt>)
          return a.buffer == b.buffer && a.op == b.op && a.atomic == b.atomic && same(a.value, b.value) &&
                 std::equal(a.indices.begin(), a.indices.end(), b.indices.begin(), b.indices.end(),
                            [&](const ExprRef& x, const ExprRef& y) { return same(x, y); });
        else if constexpr (std::is_same_v<Node, ir::ForStmt>)
          return a.pipelined == b.pipelined && same(a.begin, b.begin) && same(a.end, b.end) &&
                 same(a.stages, b.stages) && bound(a.var, b.var) && same(a.body, b.body);
        else if constexpr (std::is_same_v<Node, ir::IfStmt>)
          return same(a.condition, b.condition) && same(a.then_body, b.then_body) && same(a.else_body, b.else_body);
        else
          return false;
      },
      first.node);
}

}  // namespace kachel::lowering
