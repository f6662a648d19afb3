#include "lowering/plan/region_vectors.h"

#include <algorithm>

#include "ir/parallel.h"
#include "ir/tunable_role.h"
#include "lowering/loop_ir/index_groups.h"
#include "lowering/loop_ir/region_index.h"
#include "lowering/tile_ir/hoist_reductions.h"
#include "lowering/tile_ir/tile_uses.h"

namespace kachel::lowering {
namespace {

using ir::ExprKind;
using ir::ExprRef;

constexpr int64_t kWidest = 16;    // bytes of an access
constexpr int64_t kFarthest = 64;  // of a window that is loaded with its neighbours, as lower_read_choice.cc has it

class Accesses {
 public:
  Accesses(const ir::Kernel& kernel, const Target& target, uint64_t fact_mask, std::vector<ir::IterVar> iters)
      : kernel_(kernel), target_(target), fact_mask_(fact_mask), iters_(std::move(iters)), indexes_(iters_, lets_) {
    note_multiples(kernel.body, &ranges_);
    for (const ir::IterVar& axis : kernel.grid) ranges_.set(axis.var, {0, kMaxDim});
    for (const ir::IterVar& iter : iters_) ranges_.set(iter.var, {0, iter.extent->int_value - 1});
  }

  void name(const ir::LetStmt& let) { lets_[let.var.get()] = indexes_.inlined(let.value); }

  void writes(const ir::GuardedStore& guarded) {
    const ir::AssignStmt& store = guarded.store;
    const ir::DType type = store.buffer->type.dtype;
    const int64_t element = std::max(1, ir::bits(type) / 8);
    int64_t width = 1;
    const ExprRef guard = guarded.guard ? indexes_.inlined(guarded.guard) : nullptr;
    if (store.buffer->scope == ir::Scope::kGlobal && type != ir::DType::Bool && !is_parted(guard, store)) {
      width = width_of(store.buffer, store.indices);
      const int64_t added =
          store.atomic == ir::AtomicOp::kAdd ? most_added_bytes(target_.architecture, type) / element : 1;
      if (store.atomic != ir::AtomicOp::kNone) width = std::min(width, added);
    }
    most_ = most_ ? std::min(most_, width) : width;
    note(width, store.indices);
  }

  void reads(const ExprRef& expr) {
    if (ir::is_reduction(*expr)) return;
    if (expr->kind == ExprKind::kLoad && expr->buffer->scope != ir::Scope::kFragment)
      note(window(*expr) ? widest(expr->buffer) : width_of(expr->buffer, expr->args), expr->args);
    for (const ExprRef& arg : expr->args) reads(arg);
  }

  int64_t vector() const {
    if (most_ == 1 || alone_ >= together_) return 1;
    int64_t vector = most_ ? std::min(most_, width_) : width_;
    while (iters_.back().extent->int_value % vector) vector /= 2;
    return vector;
  }

 private:
  int64_t widest(const ir::BufferRef& tensor) const {
    if (tensor->type.dtype == ir::DType::Bool || ir::bits(tensor->type.dtype) < 8) return 1;
    const bool global = tensor->scope == ir::Scope::kGlobal;
    const int64_t bytes = global ? vector_bytes(kernel_, fact_mask_, tensor) : kWidest;
    return std::max<int64_t>(1, bytes * 8 / ir::bits(tensor->type.dtype));
  }

  // Whether a condition parts neighbours, but for what an index is compared with in any case.
  bool is_parted(const ExprRef& guard, const ir::AssignStmt& store) const {
    if (!guard || !ir::mentions(guard, iters_.back().var)) return false;
    if (guard->kind != ExprKind::kApply) return true;
    if (guard->op == ir::Op::kAnd) return is_parted(guard->args[0], store) || is_parted(guard->args[1], store);
    for (size_t axis = 0; guard->op == ir::Op::kLt && axis < store.indices.size(); ++axis)
      if (ir::same(guard->args[0], indexes_.inlined(store.indices[axis])) &&
          ir::same(guard->args[1], store.buffer->shape[axis]))
        return false;
    return true;
  }

  int64_t width_of(const ir::BufferRef& tensor, const std::vector<ExprRef>& indices) const {
    const auto rise = [&](int64_t width) {
      for (size_t i = 0; i < indices.size(); ++i)
        if (in_group(indexes_.inlined(indices[i]), iters_.back().var, width, ranges_) !=
            (i + 1 < indices.size() ? InGroup::kAlike : InGroup::kRises))
          return false;
      return true;
    };
    int64_t width = widest(tensor);
    while (width > 1 && !rise(width)) width /= 2;
    return width;
  }

  // x[i, j + 1] and x[i, 2 j]: whole accesses are loaded, which neighbours share.
  bool window(const ir::Expr& load) const {
    for (size_t i = 0; i + 1 < load.args.size(); ++i)
      if (ir::mentions(indexes_.inlined(load.args[i]), iters_.back().var)) return false;
    const auto row = indexes_.scaled(indexes_.inlined(load.args.back()));
    return row && row->axis + 1 == iters_.size() && row->is_dense() && std::abs(row->constant) <= kFarthest &&
           (!row->base || ranges_.multiple_of(row->base) % widest(load.buffer) == 0);
  }

  void note(int64_t width, const std::vector<ExprRef>& indices) {
    if (std::none_of(indices.begin(), indices.end(),
                     [&](const ExprRef& at) { return ir::mentions(indexes_.inlined(at), iters_.back().var); }))
      return;  // all neighbours read the same
    ++(width > 1 ? together_ : alone_);
    width_ = std::max(width_, width);
  }

  const ir::Kernel& kernel_;
  const Target& target_;
  const uint64_t fact_mask_;
  const std::vector<ir::IterVar> iters_;
  std::unordered_map<const ir::Var*, ExprRef> lets_;
  const RegionIndexes indexes_;
  Ranges ranges_;
  int64_t most_ = 0, width_ = 1;
  int alone_ = 0, together_ = 0;  // accesses
};

}  // namespace

bool moves_between_tensors(const ir::ParallelStmt& region) {
  bool all = true;
  for_each_node(region.body, [&](const ExprRef& node) {
    all &= !ir::is_reduction(*node) && (node->kind != ExprKind::kLoad || is_unwritten(*node->buffer));
  });
  ir::for_each_stmt(region.body, [&](const ir::Stmt& stmt) {
    const auto* assign = std::get_if<ir::AssignStmt>(&stmt.node);
    all &= !assign || (assign->buffer->scope == ir::Scope::kGlobal && ir::bits(assign->buffer->type.dtype) >= 8);
  });
  return all;
}

int64_t region_vector(const ir::Kernel& kernel, const Target& target, uint64_t fact_mask,
                      const ir::ParallelStmt& region) {
  if (const ir::Expr* reduction = reduction_of(region)) {
    std::vector<ir::IterVar> iters = region.iters;
    iters.insert(iters.end(), reduction->iters.begin(), reduction->iters.end());
    Accesses accesses(kernel, target, fact_mask, std::move(iters));
    accesses.reads(reduction->args[0]);
    return accesses.vector();
  }
  const ir::ForwardedRegion forwarded = ir::forward_stores(region);
  Accesses accesses(kernel, target, fact_mask, region.iters);
  for (const ir::LetStmt& let : forwarded.lets) {
    accesses.reads(let.value);
    accesses.name(let);
  }
  for (const ir::GuardedStore& store : forwarded.stores) accesses.writes(store);
  return accesses.vector();
}

}  // namespace kachel::lowering
