#include "derive/depth_axes.h"

#include <algorithm>

#include "derive/uses.h"
#include "ir/visit.h"

namespace kachel::derive {

using namespace ir;

DepthAxes::DepthAxes(const Block& body) {
  for_each_stmt(body, [this](const Stmt& stmt) {
    const auto* gemm = std::get_if<GemmStmt>(&stmt.node);
    if (!gemm) return;
    operand(gemm->a, gemm->transpose_a ? 0 : 1);
    operand(gemm->b, gemm->transpose_b ? 1 : 0);
  });
}

std::optional<size_t> DepthAxes::of(const Buffer* tile) const {
  const auto found = axes_.find(tile);
  return found == axes_.end() ? std::nullopt : found->second;
}

void DepthAxes::operand(const TileRef& ref, size_t axis) {
  const bool known = is_whole(ref) && ref.buffer->shape.size() == 2;
  const auto [found, fresh] = axes_.try_emplace(ref.buffer.get(), known ? std::optional(axis) : std::nullopt);
  if (!fresh && found->second != axis) found->second.reset();
}

const Var* depth_index(const ParallelStmt& region, const DepthAxes& depth) {
  const Var* found = nullptr;
  for (const Stmt& stmt : region.body) {
    if (std::holds_alternative<LetStmt>(stmt.node)) continue;
    const auto* assign = std::get_if<AssignStmt>(&stmt.node);
    const auto axis = assign ? depth.of(assign->buffer.get()) : std::nullopt;
    if (!axis || found) return nullptr;
    const ExprRef& index = assign->indices[*axis];
    const bool own =
        index->kind == ExprKind::kVar && std::any_of(region.iters.begin(), region.iters.end(),
                                                     [&](const IterVar& iter) { return iter.var == index->var; });
    if (!own) return nullptr;
    found = index->var.get();
  }
  return found;
}

bool mentions(const ExprRef& expr, const Var* var) {
  bool found = false;
  visit(expr, [&](const ExprRef& node) { found |= node->kind == ExprKind::kVar && node->var.get() == var; });
  return found;
}

}  // namespace kachel::derive
