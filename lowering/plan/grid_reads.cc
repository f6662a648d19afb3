#include "lowering/plan/grid_reads.h"

#include <algorithm>

namespace kachel::lowering {

using ir::ExprKind;
using ir::ExprRef;
using ir::Op;

namespace {

constexpr uint64_t kMostInlined = 256;  // nodes of a loop's bounds

// Whether `end`, or what it is the least of, is `next`, or `begin` and one step more.
bool ends_at(const ExprRef& end, const ExprRef& begin, const ExprRef& next) {
  if (ir::same(end, next)) return true;
  if (end->kind == ExprKind::kCast) return ends_at(end->args[0], begin, next);
  if (end->kind != ExprKind::kApply) return false;
  if (end->op == Op::kMin) return ends_at(end->args[0], begin, next) || ends_at(end->args[1], begin, next);
  if (end->op != Op::kAdd || begin->kind != ExprKind::kApply || begin->op != Op::kMul) return false;
  for (size_t i = 0; i < 2; ++i)
    for (size_t j = 0; j < 2; ++j)
      if (ir::same(end->args[i], begin) && ir::same(end->args[1 - i], begin->args[j])) return true;
  return false;
}

}  // namespace

GridReads::GridReads(const ir::Kernel& kernel) : kernel_(kernel) {
  for (size_t axis = 0; axis < kernel.grid.size(); ++axis) of_[kernel.grid[axis].var.get()] = {axis};
}

void GridReads::define(const ir::LetStmt& let) {
  of_[let.var.get()] = of(let.value);
  lets_[let.var.get()] = let.value;
  expansion_.define(let.var.get(), let.value);
}

GridAxes GridReads::of(const ExprRef& value) const {
  GridAxes axes;
  if (value)
    ir::visit(value, [&](const ExprRef& node) {
      const auto found = node->kind == ExprKind::kVar ? of_.find(node->var.get()) : of_.end();
      if (found != of_.end()) axes.insert(found->second.begin(), found->second.end());
      if (node->kind == ExprKind::kLoad && node->buffer->scope != ir::Scope::kGlobal) axes.merge(all());
    });
  return axes;
}

// What a tile holds is its block's.
GridAxes GridReads::all() const {
  GridAxes axes;
  for (size_t axis = 0; axis < kernel_.grid.size(); ++axis) axes.insert(axis);
  return axes;
}

GridAxes GridReads::of(const ir::TileRef& slice) const {
  GridAxes axes = of(slice.within_first);
  axes.merge(of(slice.within_length));
  for (const ir::AxisSpec& axis : slice.axes) {
    axes.merge(of(axis.start)), axes.merge(of(axis.index));
    if (axis.gather) axes.merge(axis.gather->buffer->scope == ir::Scope::kGlobal ? of(*axis.gather) : all());
  }
  return axes;
}

GridAxes GridReads::apart(const ir::TileRef& slice) const {
  GridAxes axes;
  for (size_t axis = 0; axis < kernel_.grid.size(); ++axis)
    if (std::any_of(slice.axes.begin(), slice.axes.end(), [&](const ir::AxisSpec& spec) {
          return spec.start && of(spec.start).count(axis) && multiple(spec.start, axis);
        }))
      axes.insert(axis);
  return axes;
}

// Of a value that depends on the axis.
bool GridReads::multiple(const ExprRef& value, size_t axis) const {
  if (value->kind == ExprKind::kVar) {
    const auto let = lets_.find(value->var.get());
    return let == lets_.end() || multiple(let->second, axis);
  }
  if (value->kind == ExprKind::kCast) return multiple(value->args[0], axis);
  if (value->kind != ExprKind::kApply) return false;
  if (value->op != Op::kAdd && value->op != Op::kSub && value->op != Op::kMul) return false;
  size_t terms = 0;
  bool multiples = true;
  for (const ExprRef& arg : value->args)
    if (of(arg).count(axis)) ++terms, multiples &= multiple(arg, axis);
  return terms == 1 && multiples;
}

GridAxes GridReads::dealt_out(const ir::ForStmt& loop) const {
  GridAxes axes;
  if (!writable(loop)) return axes;
  const ExprRef begin = inlined(loop.begin), end = inlined(loop.end);
  for (size_t axis = 0; axis < kernel_.grid.size(); ++axis) {
    const ExprRef next = ir::rewrite(begin, [&](const ExprRef& node) {
      return node->kind == ExprKind::kVar && node->var == kernel_.grid[axis].var
                 ? ir::make_typed(Op::kAdd, {node, ir::make_int(1, node->type)})
                 : node;
    });
    if (!ir::same(next, begin) && ends_at(end, begin, next)) axes.insert(axis);
  }
  return axes;
}

bool GridReads::writable(const ir::ForStmt& loop) const {
  return expansion_.size(loop.begin) + expansion_.size(loop.end) <= kMostInlined;
}

ExprRef GridReads::inlined(const ExprRef& value) const {
  return ir::rewrite(value, [this](const ExprRef& node) {
    auto let = node->kind == ExprKind::kVar ? lets_.find(node->var.get()) : lets_.end();
    return let == lets_.end() ? node : inlined(let->second);
  });
}

}  // namespace kachel::lowering
