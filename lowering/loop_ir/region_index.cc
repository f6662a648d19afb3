#include "lowering/loop_ir/region_index.h"

#include <algorithm>
#include <functional>

#include "ir/tunable_role.h"
#include "lowering/loop_ir/loop_build.h"

namespace kachel::lowering {

using ir::ExprKind;
using ir::ExprRef;

namespace {

// Beyond which nothing is gained by knowing them.
constexpr int64_t kMostScale = int64_t{1} << 20, kMostConstant = int64_t{1} << 40;
constexpr int64_t kMostNodes = 1000;  // of what a name stands for

bool within(int64_t value, int64_t most) {
  return value >= -most && value <= most;
}

// Between types that hold any index.
bool is_index_cast(const ir::Expr& expr) {
  return expr.kind == ExprKind::kCast && !ir::is_float(expr.args[0]->type) && ir::bits(expr.cast_type.dtype) >= 32;
}
ExprRef unwrapped(ExprRef expr) {
  while (is_index_cast(*expr)) expr = expr->args[0];
  return expr;
}

// a + (-b) of a - b with a literal b; else null.
ExprRef as_sum(const ir::Expr& expr) {
  if (expr.kind != ExprKind::kApply || expr.op != ir::Op::kSub || expr.type != ir::DType::I64 ||
      expr.args[1]->kind != ExprKind::kInt || !within(expr.args[1]->int_value, kMostConstant))
    return nullptr;
  return ir::make_typed(ir::Op::kAdd, {expr.args[0], ir::make_int(-expr.args[1]->int_value, expr.args[1]->type)});
}

// The bounds of a load that a condition states; more than that is no statement of bounds.
struct Bounds : StatedBounds {
  explicit Bounds(size_t axes) : StatedBounds{std::vector<bool>(axes), std::vector<bool>(axes)} {}

  bool state(const ExprRef& condition, const ir::Expr& load) {
    if (condition->kind != ExprKind::kApply) return false;
    if (condition->op == ir::Op::kAnd) return state(condition->args[0], load) && state(condition->args[1], load);
    const bool least = condition->op == ir::Op::kGe && ir::is_int(condition->args[1], 0);
    if (!least && condition->op != ir::Op::kLt) return false;
    bool found = false;
    for (size_t axis = 0; axis < load.args.size(); ++axis) {
      if (!ir::same(condition->args[0], load.args[axis]) ||
          (!least && !ir::same(condition->args[1], load.buffer->shape[axis])))
        continue;
      (least ? below : above)[axis] = found = true;
    }
    return found;
  }
};

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

std::optional<GroupIndex> group_index(const ExprRef& index) {
  const ExprRef node = unwrapped(index);
  if (node->kind != ExprKind::kApply) return std::nullopt;
  const auto is_group = [](const ExprRef& expr) { return expr->kind == ExprKind::kInt && expr->int_value > 1; };
  if (node->op == ir::Op::kDiv) {
    const ExprRef var = unwrapped(node->args[0]);
    if (var->kind != ExprKind::kVar || !is_group(node->args[1])) return std::nullopt;
    return GroupIndex{nullptr, var->var, node->args[1]->int_value};
  }
  if (node->op != ir::Op::kAdd) return std::nullopt;
  for (size_t i = 0; i < 2; ++i) {
    const ExprRef inner = unwrapped(node->args[i]), product = unwrapped(node->args[1 - i]);
    if (inner->kind != ExprKind::kVar || product->kind != ExprKind::kApply || product->op != ir::Op::kMul) continue;
    for (size_t j = 0; j < 2; ++j) {
      const ExprRef outer = unwrapped(product->args[j]);
      if (outer->kind == ExprKind::kVar && is_group(product->args[1 - j]))
        return GroupIndex{outer->var, inner->var, product->args[1 - j]->int_value};
    }
  }
  return std::nullopt;
}

ExprRef beyond_bounds(const ExprRef& condition, const ir::Buffer& tensor, const std::vector<ExprRef>& indices) {
  if (!condition || condition->kind != ExprKind::kApply) return condition;
  if (condition->op == ir::Op::kAnd) {
    const ExprRef first = beyond_bounds(condition->args[0], tensor, indices);
    const ExprRef second = beyond_bounds(condition->args[1], tensor, indices);
    return first && second ? apply(ir::Op::kAnd, first, second) : first ? first : second;
  }
  for (size_t axis = 0; condition->op == ir::Op::kLt && axis < indices.size(); ++axis)
    if (ir::same(condition->args[0], indices[axis]) && ir::same(condition->args[1], tensor.shape[axis])) return nullptr;
  return condition;
}

StatedBounds stated_bounds(const std::vector<ExprRef>& conditions, const ir::Expr& load) {
  Bounds bounds(load.args.size());
  const std::function<void(const ExprRef&)> state = [&](const ExprRef& condition) {
    if (condition->kind == ExprKind::kApply && condition->op == ir::Op::kAnd)
      for (const ExprRef& arg : condition->args) state(arg);
    else
      bounds.state(condition, load);
  };
  for (const ExprRef& condition : conditions) state(condition);
  return bounds;
}

ExprRef padded_load(const ir::Expr& expr) {
  if (expr.kind != ExprKind::kApply || expr.op != ir::Op::kSelect) return nullptr;
  ExprRef load = expr.args[1];
  while (load->kind == ExprKind::kCast) load = load->args[0];
  if (load->kind != ExprKind::kLoad) return nullptr;
  // All of them: where one is missing, what lies beyond it reads as zero and not as the padding.
  Bounds bounds(load->args.size());
  if (!bounds.state(expr.args[0], *load)) return nullptr;
  const auto all = [](const std::vector<bool>& flags) { return std::count(flags.begin(), flags.end(), false) == 0; };
  return all(bounds.below) && all(bounds.above) ? load : nullptr;
}

void RegionIndexes::name(const ir::LetStmt& let) {
  Name& name = names_[let.var.get()];
  name.follows.resize(iters_.size());
  note_axes(let.value, &name.follows);
  ir::visit(let.value, [&](const ExprRef& node) {
    const auto used = node->kind == ExprKind::kVar ? names_.find(node->var.get()) : names_.end();
    name.nodes = std::min(kMostNodes + 1, name.nodes + (used == names_.end() ? 1 : used->second.nodes));
  });
  if (name.nodes <= kMostNodes) name.value = inlined(let.value);
}

ExprRef RegionIndexes::inlined(const ExprRef& expr) const {
  return ir::rewrite(expr, [&](const ExprRef& node) {
    if (node->kind != ExprKind::kVar) return node;
    const auto name = names_.find(node->var.get());
    return name == names_.end() || !name->second.value ? node : name->second.value;
  });
}

bool RegionIndexes::is_written_out(const ExprRef& expr) const {
  bool written_out = true;
  ir::visit(expr, [&](const ExprRef& node) {
    written_out &= node->kind != ExprKind::kVar || !names_.count(node->var.get());
  });
  return written_out;
}

std::optional<RegionIndex> RegionIndexes::split(const ExprRef& index) const {
  if (is_shared(index)) return RegionIndex{RegionIndex::kNone, index};
  if (index->kind == ExprKind::kVar) {
    const size_t axis = axis_of(*index);
    return axis == RegionIndex::kNone ? std::nullopt : std::optional(RegionIndex{axis, nullptr});
  }
  if (index->type != ir::DType::I64) return std::nullopt;  // sums of 32 bits may wrap
  if (is_index_cast(*index)) return split(index->args[0]);
  if (const ExprRef sum = as_sum(*index)) return split(sum);
  if (index->kind != ExprKind::kApply || index->op != ir::Op::kAdd) return std::nullopt;
  const bool first = is_shared(index->args[0]);
  if (!first && !is_shared(index->args[1])) return std::nullopt;
  std::optional<RegionIndex> result = split(index->args[first ? 1 : 0]);
  if (result) result->base = plus(result->base, index->args[first ? 0 : 1]);
  return result;
}

std::optional<ScaledIndex> RegionIndexes::scaled(const ExprRef& index) const {
  // No casts: sums of 32 bits may wrap.
  if (index->type != ir::DType::I64) return std::nullopt;
  if (index->kind == ExprKind::kVar) {
    const size_t axis = axis_of(*index);
    return axis == RegionIndex::kNone ? std::nullopt : std::optional<ScaledIndex>({axis, 1, 0, nullptr});
  }
  if (const ExprRef sum = as_sum(*index)) return scaled(sum);
  if (index->kind != ExprKind::kApply || (index->op != ir::Op::kAdd && index->op != ir::Op::kMul)) return std::nullopt;
  const size_t shared = is_shared(index->args[0]) ? 0 : 1;
  const ExprRef& other = index->args[shared];
  if (!is_shared(other)) return std::nullopt;
  std::optional<ScaledIndex> result = scaled(index->args[1 - shared]);
  if (!result) return std::nullopt;
  if (index->op == ir::Op::kAdd) {
    if (other->kind == ExprKind::kInt && within(other->int_value, kMostConstant))
      result->constant += other->int_value;
    else
      result->base = plus(result->base, other);
  } else {
    if (other->kind != ExprKind::kInt || other->int_value <= 0 || other->int_value > kMostScale) return std::nullopt;
    result->scale *= other->int_value;
    result->constant *= other->int_value;
    if (result->base) result->base = times(result->base, other->int_value);
  }
  const bool known = result->scale <= kMostScale && within(result->constant, kMostConstant);
  return known ? result : std::nullopt;
}

void RegionIndexes::note_axes(const ExprRef& expr, std::vector<bool>* follows) const {
  ir::visit(expr, [&](const ExprRef& node) {
    if (node->kind != ExprKind::kVar) return;
    if (const size_t axis = axis_of(*node); axis != RegionIndex::kNone) (*follows)[axis] = true;
    const auto name = names_.find(node->var.get());
    for (size_t axis = 0; name != names_.end() && axis < iters_.size(); ++axis)
      if (name->second.follows[axis]) (*follows)[axis] = true;
  });
}

std::vector<size_t> RegionIndexes::axes_of(const ExprRef& expr) const {
  std::vector<bool> follows(iters_.size());
  note_axes(expr, &follows);
  std::vector<size_t> axes;
  for (size_t axis = 0; axis < iters_.size(); ++axis)
    if (follows[axis]) axes.push_back(axis);
  return axes;
}

bool RegionIndexes::follows(const ExprRef& expr, const ir::VarRef& iteration) const {
  std::vector<bool> follows(iters_.size());
  note_axes(expr, &follows);
  for (size_t axis = 0; axis < iters_.size(); ++axis)
    if (iters_[axis].var == iteration) return follows[axis];
  return ir::mentions(expr, iteration);
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
    shared &= node->kind != ExprKind::kLoad && !ir::is_reduction(*node);
    shared &= node->kind != ExprKind::kVar || (axis_of(*node) == RegionIndex::kNone && !names_.count(node->var.get()));
  });
  return shared;
}

}  // namespace kachel::lowering
