#include "lowering/plan/region_vectors.h"

#include <algorithm>
#include <set>

#include "ir/parallel.h"
#include "ir/tunable_role.h"
#include "lowering/loop_ir/index_groups.h"
#include "lowering/loop_ir/region_index.h"
#include "lowering/plan/free_layouts.h"
#include "lowering/tile_ir/hoist_reductions.h"
#include "lowering/tile_ir/hoist_scans.h"
#include "lowering/tile_ir/tile_uses.h"

namespace kachel::lowering {
namespace {

using ir::ExprKind;
using ir::ExprRef;

class Accesses {
 public:
  Accesses(const ir::Kernel& kernel, const Target& target, uint64_t fact_mask, std::vector<ir::IterVar> iters)
      : kernel_(kernel), target_(target), fact_mask_(fact_mask), iters_(std::move(iters)), indexes_(iters_) {
    note_multiples(kernel, &ranges_);
    for (const ir::IterVar& axis : kernel.grid) ranges_.set(axis.var, {0, kMaxDim});
    for (const ir::IterVar& iter : iters_) ranges_.set(iter.var, {0, iter.extent->int_value - 1});
  }

  void name(const ir::LetStmt& let) { indexes_.name(let); }

  void writes(const ir::GuardedStore& guarded) {
    const ir::AssignStmt& store = guarded.store;
    const ir::DType type = store.buffer->type.dtype;
    int64_t width = 1;
    if (store.buffer->scope == ir::Scope::kGlobal && type != ir::DType::Bool && !parts_neighbours(guarded))
      width = std::min(width_of(store.buffer, store.indices), most_stored(store.atomic, type, target_.architecture));
    most_ = most_ ? std::min(most_, width) : width;
    note(width, store.indices);
  }

  void reads(const ExprRef& expr) {
    if (ir::is_reduction(*expr)) return;
    if (expr->kind == ExprKind::kLoad && expr->buffer->scope != ir::Scope::kFragment) {
      const int64_t width = window(*expr) ? widest(expr->buffer) : width_of(expr->buffer, expr->args);
      const bool global = expr->buffer->scope == ir::Scope::kGlobal;
      if (note(width, expr->args)) ++(global ? single_reads_ : of_tiles_);
      if (global) note_last(expr->args.back());
    }
    for (const ExprRef& arg : expr->args) reads(arg);
  }

  bool reads_singly() const { return single_reads_ > 0 && together_ == 0 && of_tiles_ == 0; }
  std::optional<size_t> gathered_axis() const {
    return reads_singly() && along_.size() == 1 ? std::optional(*along_.begin()) : std::nullopt;
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
    const int64_t bytes = global ? vector_bytes(kernel_, fact_mask_, tensor) : kVectorBytes;
    return std::max<int64_t>(1, bytes * 8 / ir::bits(tensor->type.dtype));
  }

  std::vector<ExprRef> inlined(const std::vector<ExprRef>& indices) const {
    std::vector<ExprRef> out;
    for (const ExprRef& at : indices) out.push_back(indexes_.inlined(at));
    return out;
  }
  bool follows_last(const ExprRef& expr) const { return indexes_.follows(expr, iters_.back().var); }

  // Whether a store's condition does, but for what its indices are compared with in any case.
  bool parts_neighbours(const ir::GuardedStore& guarded) const {
    if (!guarded.guard) return false;
    const ir::AssignStmt& store = guarded.store;
    const ExprRef rest = beyond_bounds(indexes_.inlined(guarded.guard), *store.buffer, inlined(store.indices));
    return rest && follows_last(rest);
  }

  int64_t width_of(const ir::BufferRef& tensor, const std::vector<ExprRef>& indices) const {
    const std::vector<ExprRef> places = inlined(indices);
    for (const ExprRef& at : places)
      if (!indexes_.is_written_out(at)) return 1;
    int64_t width = widest(tensor);
    while (width > 1 && !are_neighbours(places, iters_.back().var, width, ranges_)) width /= 2;
    // Words of which each iteration takes its bits.
    const int64_t most =
        tensor->scope == ir::Scope::kShared && !ir::is_float(tensor->type.dtype) ? ir::bits(tensor->type.dtype) : 1;
    for (int64_t step = 2; width == 1 && step <= most; step *= 2)
      for (int64_t words = widest(tensor); width == 1 && words > 1; words /= 2)
        if (are_neighbours(places, iters_.back().var, words, ranges_, step)) width = words * step;
    return width;
  }

  // x[i, j + 1] and x[i, 2 j]: whole accesses are loaded, which neighbours share.
  bool window(const ir::Expr& load) const {
    for (size_t i = 0; i + 1 < load.args.size(); ++i)
      if (follows_last(load.args[i])) return false;
    const auto row = indexes_.scaled(indexes_.inlined(load.args.back()));
    return row && row->axis + 1 == iters_.size() && row->is_dense() && std::abs(row->constant) <= kFarthestRead &&
           (!row->base || ranges_.multiple_of(row->base) % widest(load.buffer) == 0);
  }

  void note_last(const ExprRef& index) {
    const std::vector<size_t> axes = indexes_.axes_of(index);
    along_.insert(axes.begin(), axes.end());
  }

  // False: all neighbours read the same.
  bool note(int64_t width, const std::vector<ExprRef>& indices) {
    if (std::none_of(indices.begin(), indices.end(), [this](const ExprRef& at) { return follows_last(at); }))
      return false;
    ++(width > 1 ? together_ : alone_);
    width_ = std::max(width_, width);
    return true;
  }

  const ir::Kernel& kernel_;
  const Target& target_;
  const uint64_t fact_mask_;
  const std::vector<ir::IterVar> iters_;
  RegionIndexes indexes_;
  Ranges ranges_;
  int64_t most_ = 0, width_ = 1;
  int alone_ = 0, together_ = 0;         // accesses
  int single_reads_ = 0, of_tiles_ = 0;  // of tensors, where together_ is 0; of tiles in memory
  std::set<size_t> along_;               // axes that last indices of tensors follow
};

// Whether all that a region does is to read tensors that nothing writes and to write tensors.
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

Accesses accesses_of(const ir::Kernel& kernel, const Target& target, uint64_t fact_mask,
                     const ir::ParallelStmt& region) {
  if (const ir::Expr* reduction = reduction_of(region)) {
    std::vector<ir::IterVar> iters = region.iters;
    iters.insert(iters.end(), reduction->iters.begin(), reduction->iters.end());
    Accesses accesses(kernel, target, fact_mask, std::move(iters));
    accesses.reads(reduction->args[0]);
    return accesses;
  }
  const ir::ForwardedRegion forwarded = ir::forward_stores(region);
  Accesses accesses(kernel, target, fact_mask, region.iters);
  for (const ir::LetStmt& let : forwarded.lets) {
    accesses.reads(let.value);
    accesses.name(let);
  }
  for (const ir::GuardedStore& store : forwarded.stores) accesses.writes(store);
  return accesses;
}

}  // namespace

int64_t region_vector(const ir::Kernel& kernel, const Target& target, uint64_t fact_mask, const Space& space,
                      int64_t threads) {
  if (!space.region || scan_of(*space.region)) return 1;
  int64_t vector = accesses_of(kernel, target, fact_mask, *space.region).vector();
  while (vector > 1 && product(space.shape) / vector < threads) vector /= 2;
  return vector;
}

int64_t results_vector(const ir::Kernel& kernel, const Target& target, uint64_t fact_mask, const Space& space,
                       int64_t threads) {
  const ir::Expr* reduction = space.region ? reduction_of(*space.region) : nullptr;
  if (!reduction || space.region->iters.empty()) return 1;
  std::vector<ir::IterVar> iters = reduction->iters;
  iters.insert(iters.end(), space.region->iters.begin(), space.region->iters.end());
  Accesses accesses(kernel, target, fact_mask, std::move(iters));
  accesses.reads(reduction->args[0]);
  int64_t vector = accesses.vector(), results = 1;
  for (const ir::IterVar& iter : space.region->iters) results *= iter.extent->int_value;
  while (vector > 1 && results / vector < threads) vector /= 2;
  return vector;
}

bool reads_singly(const ir::Kernel& kernel, const Target& target, uint64_t fact_mask, const ir::ParallelStmt& region) {
  return !reduction_of(region) && !scan_of(region) && accesses_of(kernel, target, fact_mask, region).reads_singly();
}

std::optional<size_t> gathered_axis(const ir::Kernel& kernel, const Target& target, uint64_t fact_mask,
                                    const ir::ParallelStmt& region) {
  if (reduction_of(region) || scan_of(region)) return std::nullopt;
  return accesses_of(kernel, target, fact_mask, region).gathered_axis();
}

std::optional<FragmentLayout> layout_of_tensors(const ir::Kernel& kernel, const Target& target, uint64_t fact_mask,
                                                const Space& space, int64_t threads) {
  if (!space.region) return std::nullopt;
  const int64_t vector = region_vector(kernel, target, fact_mask, space, threads);
  const FragmentLayout layout = FragmentLayout::blocked(space.shape, vector, threads);
  const bool even = layout.registers() * threads == product(space.shape);
  const bool dealt = space.reduction || scan_of(*space.region) || vector > 1;
  return dealt || (even && moves_between_tensors(*space.region)) ? std::optional(layout) : std::nullopt;
}

}  // namespace kachel::lowering
