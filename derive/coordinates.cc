// Axes are followed backwards: an index of the operand's last assignment stands for an axis of it, so does the axis of
// another tile that is read at this index, and so on up to the copies from tensors.
#include "derive/coordinates.h"

#include <algorithm>
#include <numeric>

#include "derive/groups.h"
#include "ir/query.h"
#include "ir/visit.h"

namespace kachel::derive {

using namespace ir;

namespace {

// Sums and products of whole numbers and variables that are.
bool is_index(const Expr& node) {
  if (node.kind == ExprKind::kInt) return true;
  if (node.kind == ExprKind::kVar) {
    const VarKind kind = node.var->kind;
    return kind == VarKind::kDim || kind == VarKind::kTunable || kind == VarKind::kGrid || kind == VarKind::kLoop ||
           kind == VarKind::kParallel;
  }
  const bool sum = node.kind == ExprKind::kApply && (node.op == Op::kAdd || node.op == Op::kSub || node.op == Op::kMul);
  return sum && std::all_of(node.args.begin(), node.args.end(), [](const ExprRef& arg) { return is_index(*arg); });
}

bool mentions(const ExprRef& expr, const std::function<bool(const Expr&)>& what) {
  bool found = false;
  visit(expr, [&](const ExprRef& node) { found |= what(*node); });
  return found;
}

bool mentions_tunables(const ExprRef& expr) {
  return mentions(expr,
                  [](const Expr& node) { return node.kind == ExprKind::kVar && node.var->kind == VarKind::kTunable; });
}

}  // namespace

Coordinates::Coordinates(const Kernel& kernel, const std::vector<const Stmt*>& statements,
                         const std::vector<Digits>& digits, const BufferRef& tile)
    : kernel_(kernel),
      statements_(statements),
      digits_(digits),
      tile_(tile),
      lets_(kernel, statements),
      multiples_(tile->shape.size(), 1),
      scattered_(tile->shape.size()) {
  std::vector<Along> own;
  for (size_t axis = 0; axis < tile->shape.size(); ++axis) {
    own.push_back({static_cast<int>(axis)});
    marks_.push_back(std::make_shared<Var>(Var{VarKind::kDim, "coordinate", {DType::I64, nullptr, false}, {}}));
  }
  tiles_[tile.get()] = own;
  for (auto stmt = statements.rbegin(); stmt != statements.rend(); ++stmt) follow(**stmt);
  forget_scattered();
}

void Coordinates::scatter(int a, int b) {
  for (const int axis : {a, b})
    if (axis != kNone) scattered_[static_cast<size_t>(axis)] = true;
}

void Coordinates::forget_scattered() {
  const auto forget = [&](int& axis) {
    if (axis != kNone && scattered_[static_cast<size_t>(axis)]) axis = kNone;
  };
  for (auto& [tile, axes] : tiles_)
    for (Along& along : axes) forget(along.axis);
  for (auto& [iter, axis] : iters_) forget(axis);
}

void Coordinates::relate(const Buffer& tile, const std::vector<Along>& axes) {
  if (axes.size() != tile.shape.size()) {
    followed_ = false;
    return;
  }
  const auto [found, fresh] = tiles_.try_emplace(&tile, axes);
  for (size_t axis = 0; axis < axes.size(); ++axis)
    if (found->second[axis].alike(axes[axis]))
      found->second[axis].group = std::lcm(found->second[axis].group, axes[axis].group);
    else
      scatter(found->second[axis].axis, axes[axis].axis);
}

Coordinates::Along Coordinates::axis_of(const Buffer& tile, size_t axis) const {
  const auto found = tiles_.find(&tile);
  return found == tiles_.end() ? Along{kNone} : found->second[axis];
}

int Coordinates::axis_of(const Var* iter) const {
  const auto found = iters_.find(iter);
  return found == iters_.end() ? kNone : found->second;
}

Coordinates::Along Coordinates::along(const ExprRef& index) const {
  if (is_var(index, VarKind::kParallel)) return {axis_of(index->var.get())};
  const auto shared = group_element(index);
  return shared ? Along{axis_of(shared->group.var.get()), shared->group.by / shared->elements, shared->group.by}
                : Along{kNone};
}

bool Coordinates::in_groups(int axis, int64_t by) {
  const ExprRef& extent = tile_->shape[static_cast<size_t>(axis)];
  bool whole = extent->kind == ExprKind::kInt && extent->int_value % by == 0;
  if (is_var(extent, VarKind::kTunable))
    for (const Tunable& tunable : kernel_.tunables)
      if (tunable.var == extent->var)
        whole = !tunable.automatic && std::all_of(tunable.values.begin(), tunable.values.end(),
                                                  [by](int64_t value) { return value % by == 0; });
  int64_t& multiple = multiples_[static_cast<size_t>(axis)];
  if (whole) multiple = std::lcm(multiple, by);
  return whole;
}

bool Coordinates::is_packed(const ExprRef& extent, const Along& along) {
  const ExprRef& all = tile_->shape[static_cast<size_t>(along.axis)];
  if (along.by == 1) return polys_.equal(extent, all) && (along.group == 1 || in_groups(along.axis, along.group));
  const bool fits =
      extent->kind == ExprKind::kInt
          ? all->kind == ExprKind::kInt && extent->int_value * along.by == all->int_value
          : is(extent, Op::kDiv) && is_int(extent->args[1], along.by) && polys_.equal(extent->args[0], all);
  return fits && in_groups(along.axis, along.group);
}

bool Coordinates::within_group(const ExprRef& node) {
  const auto rest = within_groups(node);
  if (!rest) return false;
  const int axis = axis_of(rest->var.get());
  return axis != kNone && in_groups(axis, rest->by);
}

void Coordinates::follow(const Stmt& stmt) {
  if (const auto* copy = std::get_if<CopyStmt>(&stmt.node); copy && copy->src.buffer->scope != Scope::kGlobal) {
    const auto known = tiles_.find(copy->dst.buffer.get());
    if (known == tiles_.end())
      followed_ = false;
    else
      relate(*copy->src.buffer, std::vector<Along>(known->second));
  }
  if (const auto* region = std::get_if<ParallelStmt>(&stmt.node)) follow_assignments(*region, region->body);
  follow_loads({stmt});
}

void Coordinates::follow_assignments(const ParallelStmt& region, const Block& block) {
  for (const Stmt& stmt : block) {
    if (const auto* branch = std::get_if<IfStmt>(&stmt.node)) {
      follow_assignments(region, branch->then_body);
      follow_assignments(region, branch->else_body);
    }
    const auto* assign = std::get_if<AssignStmt>(&stmt.node);
    if (!assign) continue;
    for (size_t axis = 0; axis < assign->indices.size(); ++axis) {
      const auto [own, by, group] = axis_of(*assign->buffer, axis);
      if (!is_var(assign->indices[axis], VarKind::kParallel) || by != 1 || group != 1) {
        scatter(own);
        continue;
      }
      const auto [found, fresh] = iters_.try_emplace(assign->indices[axis]->var.get(), own);
      if (found->second != own) scatter(found->second, own);
    }
  }
}

void Coordinates::follow_loads(const Block& block) {
  for_each_stmt(block, [&](const Stmt& stmt) {
    for_each_expr(stmt, [&](const ExprRef& expr) {
      visit(written_out(expr), [&](const ExprRef& node) {
        if (node->kind != ExprKind::kLoad || node->buffer->scope == Scope::kGlobal) return;
        std::vector<Along> axes;
        for (const ExprRef& index : node->args) axes.push_back(along(index));
        relate(*node->buffer, axes);
      });
    });
  });
}

ExprRef Coordinates::covered(const ExprRef& count, const ExprRef& extent) {
  if (!is_var(extent, VarKind::kTunable) && mentions_tunables(extent)) return nullptr;
  return covered_by(lets_.expanded(count), extent);
}

ExprRef Coordinates::covered_by(const ExprRef& count, const ExprRef& extent) {
  if (count->kind != ExprKind::kApply) return nullptr;
  if (count->op == Op::kMin) {
    const ExprRef first = covered_by(count->args[0], extent);
    return first ? first : covered_by(count->args[1], extent);
  }
  if (count->op != Op::kCeilDiv && count->op != Op::kDiv) return nullptr;
  return polys_.equal(count->args[1], extent) ? known_bound(count->args[0]) : nullptr;
}

ExprRef Coordinates::known_bound(const ExprRef& expr) {
  if (expr->kind == ExprKind::kApply && expr->op == Op::kSelect) {
    const ExprRef first = known_bound(expr->args[1]), second = known_bound(expr->args[2]);
    if (first && second && polys_.equal(first, second)) return first;
  }
  if (is_host_value(expr)) return expr;
  if (expr->kind != ExprKind::kApply || expr->op != Op::kMin) return nullptr;
  const ExprRef first = known_bound(expr->args[0]);
  return first ? first : known_bound(expr->args[1]);
}

bool Coordinates::is_host_value(const ExprRef& expr) const {
  return !mentions(expr, [](const Expr& node) {
    if (node.kind == ExprKind::kLoad || ir::is_reduction(node)) return true;
    return node.kind == ExprKind::kVar && node.var->kind != VarKind::kDim && node.var->kind != VarKind::kConst;
  });
}

ExprRef Coordinates::start_of(const Bound& bound) const {
  return make_apply(Op::kMul, {make_var(bound.var), tile_->shape[static_cast<size_t>(bound.axis)]});
}

const Coordinates::Bound* Coordinates::bound_to(int axis, const std::vector<Bound>& bound) const {
  const auto found =
      std::find_if(bound.begin(), bound.end(), [&](const Bound& each) { return axis != kNone && each.axis == axis; });
  return found == bound.end() ? nullptr : &*found;
}

bool Coordinates::counts_tiles(const VarRef& var, size_t axis) {
  if (!followed()) return false;
  bool occurs = false;
  const int own = static_cast<int>(axis);
  auto forbidden = [&](const Var& other) { return &other == var.get() || axis_of(&other) == own; };
  return walk({{var, own}}, forbidden, &occurs) && occurs;
}

bool Coordinates::independent_of_tiles() {
  if (!followed()) return false;
  auto is_bound = [&](int axis) { return bound_to(axis, bound_) != nullptr; };
  for (const auto& [tile, axes] : tiles_)
    for (size_t axis = 0; axis < axes.size(); ++axis)
      if (is_bound(axes[axis].axis) ? !is_packed(tile->shape[axis], axes[axis]) : mentions_tunables(tile->shape[axis]))
        return false;
  for (const Stmt* stmt : statements_)
    if (const auto* region = std::get_if<ParallelStmt>(&stmt->node))
      for (const IterVar& iter : region->iters)
        if (const int axis = axis_of(iter.var.get());
            is_bound(axis) ? !polys_.equal(iter.extent, tile_->shape[static_cast<size_t>(axis)])
                           : mentions_tunables(iter.extent))
          return false;
  auto forbidden = [&](const Var& var) {
    return var.kind == VarKind::kTunable || is_bound(axis_of(&var)) ||
           std::any_of(bound_.begin(), bound_.end(), [&](const Bound& each) { return each.var.get() == &var; });
  };
  bool occurs = false;
  return walk(bound_, forbidden, &occurs);
}

bool Coordinates::walk(const std::vector<Bound>& bound, const Forbidden& forbidden, bool* occurs) {
  return std::all_of(statements_.begin(), statements_.end(), [&](const Stmt* stmt) {
    if (std::holds_alternative<LetStmt>(stmt->node)) return true;  // counted where it is used
    if (const auto* copy = std::get_if<CopyStmt>(&stmt->node)) return walk_copy(*copy, bound, forbidden, occurs);
    if (const auto* fill = std::get_if<FillStmt>(&stmt->node))
      return walk_expr(fill->value, {}, bound, forbidden, occurs);
    const auto* region = std::get_if<ParallelStmt>(&stmt->node);
    return region && walk_block(region->body, region->iters, bound, forbidden, occurs);
  });
}

bool Coordinates::walk_copy(const CopyStmt& copy, const std::vector<Bound>& bound, const Forbidden& forbidden,
                            bool* occurs) {
  const TileRef& src = copy.src;
  if (src.buffer->scope != Scope::kGlobal) return true;
  for (const ExprRef& value : {src.within_first, src.within_length, src.pad})
    if (value && !walk_expr(value, {}, bound, forbidden, occurs)) return false;
  size_t axis = 0;  // of the tile that is written
  for (const AxisSpec& spec : src.axes) {
    if (spec.kind == AxisSpec::Kind::kGather) return false;
    if (spec.kind == AxisSpec::Kind::kIndex) {
      if (!walk_expr(spec.start, {}, bound, forbidden, occurs)) return false;
      continue;
    }
    const Along place = axis_of(*copy.dst.buffer, axis++);
    const Bound* along = bound_to(place.axis, bound);
    if (spec.kind == AxisSpec::Kind::kWhole) {
      if (along) return false;
      continue;
    }
    if (!along) {
      if (!walk_expr(spec.start, {}, bound, forbidden, occurs)) return false;
      continue;
    }
    const ExprRef start = written_out(spec.start);
    const ExprRef counted = make_apply(Op::kMul, {make_var(along->var), spec.extent});
    const bool divided =
        is(start, Op::kDiv) && is_int(start->args[1], place.by) && polys_.equal(start->args[0], start_of(*along));
    if (!is_packed(spec.extent, place) || !(polys_.equal(start, counted) || divided)) return false;
    *occurs = true;
  }
  return true;
}

bool Coordinates::walk_block(const Block& block, const std::vector<IterVar>& iters, const std::vector<Bound>& bound,
                             const Forbidden& forbidden, bool* occurs) {
  for (const Stmt& stmt : block) {
    if (const auto* branch = std::get_if<IfStmt>(&stmt.node)) {
      if (!walk_expr(branch->condition, iters, bound, forbidden, occurs) ||
          !walk_block(branch->then_body, iters, bound, forbidden, occurs) ||
          !walk_block(branch->else_body, iters, bound, forbidden, occurs))
        return false;
    } else if (const auto* assign = std::get_if<AssignStmt>(&stmt.node)) {
      if (assign->atomic != AtomicOp::kNone || !walk_expr(assign->value, iters, bound, forbidden, occurs)) return false;
      for (const ExprRef& index : assign->indices)
        if (!is_var(index, VarKind::kParallel) && !walk_expr(index, iters, bound, forbidden, occurs)) return false;
    }
  }
  return true;
}

const Coordinates::Bound* Coordinates::coordinate(const ExprRef& node, const std::vector<IterVar>& iters,
                                                  const std::vector<Bound>& bound) {
  if (node->kind != ExprKind::kApply || node->op == Op::kMul || !is_index(*node)) return nullptr;
  for (const Bound& each : bound)
    for (const IterVar& iter : iters)
      if (axis_of(iter.var.get()) == each.axis &&
          polys_.equal(node, make_apply(Op::kAdd, {start_of(each), make_var(iter.var)})))
        return &each;
  return nullptr;
}

// Coordinates become names that mean nothing else, and tiles' axes at the index that stands for them numbers; what is
// left is looked at.
bool Coordinates::walk_expr(const ExprRef& expr, const std::vector<IterVar>& iters, const std::vector<Bound>& bound,
                            const Forbidden& forbidden, bool* occurs) {
  const ExprRef left = rewrite(written_out(expr), [&](const ExprRef& node) {
    if (node->kind == ExprKind::kLoad && node->buffer->scope != Scope::kGlobal) {
      std::vector<ExprRef> indices = node->args;
      for (ExprRef& index : indices)
        if (along(index).axis != kNone || is_var(index, VarKind::kParallel)) index = make_int(0);
      return make_load(node->buffer, std::move(indices));
    }
    if (within_group(node)) return make_int(0);
    const Bound* found = coordinate(node, iters, bound);
    if (!found) return node;
    *occurs = true;
    return make_var(marks_[static_cast<size_t>(found->axis)]);
  });
  return followed() &&
         !mentions(left, [&](const Expr& node) { return node.kind == ExprKind::kVar && forbidden(*node.var); });
}

}  // namespace kachel::derive
