#include "derive/uses.h"

#include <algorithm>

#include "ir/poly.h"
#include "ir/visit.h"

namespace kachel::derive {

using namespace ir;

namespace {

// Whether so many times an extent is all of another one, or what a quotient leaves of it: nothing else sets the rest.
bool fills(PolyContext* polys, int64_t times, const ExprRef& extent, const ExprRef& all) {
  if (polys->equal(make_typed(Op::kMul, {extent, make_int(times)}), all)) return true;
  return extent->kind == ExprKind::kApply && extent->op == Op::kDiv && is_int(extent->args[1], times) &&
         polys->equal(extent->args[0], all);
}

// The same of several elements that an iteration assigns: n * j + 0 .. n - 1 along an axis, or j + 0 .. n - 1 times the
// extent of j.
bool assigns_parts(const Block& block, const std::vector<IterVar>& iters, const Buffer& tile) {
  std::vector<const AssignStmt*> parts;
  for (const Stmt& stmt : block)
    if (const auto* assign = std::get_if<AssignStmt>(&stmt.node); assign && assign->buffer.get() == &tile)
      parts.push_back(assign);
  const auto count = static_cast<int64_t>(parts.size());
  constexpr int64_t kMostParts = 32;
  if (count < 2 || count > kMostParts || iters.size() != tile.shape.size()) return false;
  PolyContext polys;
  const auto is_part = [&](size_t axis, const IterVar& along, int64_t part, bool neighbours) {
    const ExprRef var = make_var(along.var);
    const ExprRef at = neighbours ? make_typed(Op::kAdd, {make_typed(Op::kMul, {var, make_int(count)}), make_int(part)})
                                  : make_typed(Op::kAdd, {var, make_typed(Op::kMul, {along.extent, make_int(part)})});
    return std::any_of(parts.begin(), parts.end(), [&](const AssignStmt* assign) {
      return assign->op == AssignOp::kSet && polys.equal(assign->indices[axis], at);
    });
  };
  const auto weaves = [&](size_t axis, const IterVar& along) {
    if (!fills(&polys, count, along.extent, tile.shape[axis])) return false;
    for (const bool neighbours : {true, false}) {
      bool all = true;
      for (int64_t part = 0; part < count; ++part) all = all && is_part(axis, along, part, neighbours);
      if (all) return true;
    }
    return false;
  };
  std::set<const Var*> seen;
  int woven = 0;
  for (size_t axis = 0; axis < tile.shape.size(); ++axis)
    for (const IterVar& iter : iters) {
      const bool plain =
          polys.equal(iter.extent, tile.shape[axis]) &&
          std::all_of(parts.begin(), parts.end(), [&](const AssignStmt* assign) {
            return assign->indices[axis]->kind == ExprKind::kVar && assign->indices[axis]->var == iter.var;
          });
      const bool weave = !plain && weaves(axis, iter);
      if (plain || weave) seen.insert(iter.var.get());
      woven += weave;
    }
  return woven == 1 && seen.size() == iters.size();
}

// Whether one iteration of the region assigns its element of the tile, whichever branches it takes, and all elements
// are some iteration's.
bool assigns_all(const Block& block, const std::vector<IterVar>& iters, const Buffer& tile) {
  return std::any_of(block.begin(), block.end(), [&](const Stmt& stmt) {
    if (const auto* branch = std::get_if<IfStmt>(&stmt.node))
      return assigns_all(branch->then_body, iters, tile) && assigns_all(branch->else_body, iters, tile);
    const auto* assign = std::get_if<AssignStmt>(&stmt.node);
    if (!assign || assign->buffer.get() != &tile || assign->op != AssignOp::kSet) return false;
    PolyContext polys;
    std::set<const Var*> seen;
    for (size_t axis = 0; axis < assign->indices.size(); ++axis) {
      const ExprRef& index = assign->indices[axis];
      const auto iter = std::find_if(iters.begin(), iters.end(), [&](const IterVar& each) {
        return index->kind == ExprKind::kVar && each.var == index->var;
      });
      if (iter == iters.end() || !seen.insert(iter->var.get()).second || !polys.equal(iter->extent, tile.shape[axis]))
        return false;
    }
    return seen.size() == iters.size();
  });
}

}  // namespace

void Uses::add(const Uses& other) {
  read.insert(other.read.begin(), other.read.end());
  written.insert(other.written.begin(), other.written.end());
  vars.insert(other.vars.begin(), other.vars.end());
}

bool is_whole(const TileRef& tile) {
  return !tile.within_first && !tile.pad && std::all_of(tile.axes.begin(), tile.axes.end(), [](const AxisSpec& axis) {
    return axis.kind == AxisSpec::Kind::kWhole;
  });
}

Uses find_uses(const Stmt& stmt) {
  Uses uses;
  auto expr = [&](const ExprRef& value) {
    visit(value, [&](const ExprRef& node) {
      if (node->kind == ExprKind::kLoad) uses.read.insert(node->buffer.get());
      if (node->kind == ExprKind::kVar) uses.vars.insert(node->var.get());
    });
  };
  for_each_stmt({stmt}, [&](const Stmt& inside) {
    for_each_tile(inside, [&](const TileRef& tile, bool written) {
      (written ? uses.written : uses.read).insert(tile.buffer.get());
    });
    for_each_expr(inside, expr);
    if (const auto* gemm = std::get_if<GemmStmt>(&inside.node); gemm && gemm->accumulate)
      uses.read.insert(gemm->c.buffer.get());
    if (const auto* assign = std::get_if<AssignStmt>(&inside.node)) {
      uses.written.insert(assign->buffer.get());
      if (assign->op != AssignOp::kSet) uses.read.insert(assign->buffer.get());
    }
  });
  return uses;
}

bool defines(const Stmt& stmt, const Uses& uses, const Buffer& tile) {
  if (const auto* copy = std::get_if<CopyStmt>(&stmt.node))
    return copy->dst.buffer.get() == &tile && is_whole(copy->dst);
  if (const auto* fill = std::get_if<FillStmt>(&stmt.node))
    return fill->dst.buffer.get() == &tile && is_whole(fill->dst);
  const auto* region = std::get_if<ParallelStmt>(&stmt.node);
  return region && !uses.read.count(&tile) &&
         (assigns_all(region->body, region->iters, tile) || assigns_parts(region->body, region->iters, tile));
}

}  // namespace kachel::derive
