// Walks over the statements of a kernel.
#pragma once
#include "ir/kernel.h"

namespace kachel::ir {

template <class Fn>
void visit_tile(const TileRef& tile, bool written, const Fn& fn) {
  fn(tile, written);
  for (const AxisSpec& axis : tile.axes)
    if (axis.gather) visit_tile(*axis.gather, false, fn);
}

// Calls fn(const TileRef&, bool written) for the slices of a statement, not of statements inside it; slices used as
// indices come after the one that they index.
template <class Fn>
void for_each_tile(const Stmt& stmt, const Fn& fn) {
  if (const auto* copy = std::get_if<CopyStmt>(&stmt.node)) {
    visit_tile(copy->dst, true, fn);
    visit_tile(copy->src, false, fn);
  } else if (const auto* fill = std::get_if<FillStmt>(&stmt.node)) {
    visit_tile(fill->dst, true, fn);
  } else if (const auto* gemm = std::get_if<GemmStmt>(&stmt.node)) {
    visit_tile(gemm->c, true, fn);
    visit_tile(gemm->a, false, fn);
    visit_tile(gemm->b, false, fn);
  }
}

// Calls fn(const ExprRef&) for the run-time expressions of a statement, not of statements inside it: everything but
// extents, which are compile-time.
template <class Fn>
void for_each_expr(const Stmt& stmt, const Fn& fn) {
  auto one = [&fn](const ExprRef& expr) {
    if (expr) fn(expr);
  };
  for_each_tile(stmt, [&](const TileRef& tile, bool) {
    for (const AxisSpec& axis : tile.axes) one(axis.start), one(axis.index);
    one(tile.within_first);
    one(tile.within_length);
    one(tile.pad);
  });
  if (const auto* decl = std::get_if<DeclStmt>(&stmt.node)) one(decl->init);
  if (const auto* let = std::get_if<LetStmt>(&stmt.node)) one(let->value);
  if (const auto* fill = std::get_if<FillStmt>(&stmt.node)) one(fill->value);
  if (const auto* branch = std::get_if<IfStmt>(&stmt.node)) one(branch->condition);
  if (const auto* assign = std::get_if<AssignStmt>(&stmt.node)) {
    for (const ExprRef& index : assign->indices) one(index);
    one(assign->value);
  }
  if (const auto* loop = std::get_if<ForStmt>(&stmt.node)) {
    one(loop->begin);
    one(loop->end);
  }
}

// Whether operands but the first are evaluated only where their value is needed.
inline bool is_lazy(const Expr& expr) {
  return expr.kind == ExprKind::kApply && (expr.op == Op::kSelect || expr.op == Op::kAnd || expr.op == Op::kOr);
}

// Calls fn(const Stmt&) for every statement, outer ones first, in textual order.
template <class Fn>
void for_each_stmt(const Block& block, const Fn& fn) {
  for (const Stmt& stmt : block) {
    fn(stmt);
    if (const auto* region = std::get_if<ParallelStmt>(&stmt.node)) for_each_stmt(region->body, fn);
    if (const auto* loop = std::get_if<ForStmt>(&stmt.node)) for_each_stmt(loop->body, fn);
    if (const auto* branch = std::get_if<IfStmt>(&stmt.node)) {
      for_each_stmt(branch->then_body, fn);
      for_each_stmt(branch->else_body, fn);
    }
  }
}

}  // namespace kachel::ir
