// Indices in regions that follow the iterations: R[x + i, y + j].
#pragma once
#include <optional>
#include <unordered_map>
#include <vector>

#include "ir/visit.h"

namespace kachel::lowering {

// An iteration variable and something that all iterations share.
struct RegionIndex {
  static constexpr size_t kNone = ~size_t{0};
  size_t axis = kNone;  // of the region
  ir::ExprRef base;     // null: 0
};

// scale * (an iteration variable) + base + constant, in 64 bits, where scale > 0.
struct ScaledIndex {
  size_t axis = RegionIndex::kNone;  // of the region, never kNone
  int64_t scale = 1, constant = 0;
  ir::ExprRef base;  // without literals; null: 0

  // Whether it is that of elements of which an access can serve several iterations: scale is 1, 2 or 4.
  bool is_dense() const { return scale == 1 || scale == 2 || scale == 4; }
};

// Of an element that is loaded as a part of a window, from the iteration's own one.
inline constexpr int64_t kFarthestRead = 64;

// 2 * var + part of an axis whose neighbours are taken in pairs; part is 0 or 1.
struct PairIndex {
  ir::VarRef var;
  int part = 0;
};
// Nothing if a folded index is of another form.
std::optional<PairIndex> pair_index(const ir::ExprRef& index);

// An axis in groups of so many elements: `outer * group + inner`, or, of what each group has one of, `inner / group`.
struct GroupIndex {
  ir::VarRef outer, inner;  // outer: null for the quotient
  int64_t group = 1;
};
std::optional<GroupIndex> group_index(const ir::ExprRef& index);

// The iterations of a region and its names. What a name stands for is written out, but for names that would be more
// than any index is: each may use the one before several times, so that what they stand for doubles with each. Those
// stay, as something that is known within its iteration only.
class RegionIndexes {
 public:
  // `iters` outlives this.
  explicit RegionIndexes(const std::vector<ir::IterVar>& iters) : iters_(iters) {}

  // One more name, which uses those given before.
  void name(const ir::LetStmt& let);
  ir::ExprRef inlined(const ir::ExprRef& expr) const;
  // Whether nothing is left of the region's names in an inlined expression, so that it can be evaluated elsewhere.
  bool is_written_out(const ir::ExprRef& expr) const;
  // Nothing if an inlined index is of another form.
  std::optional<RegionIndex> split(const ir::ExprRef& index) const;
  std::optional<ScaledIndex> scaled(const ir::ExprRef& index) const;
  // The axes of the region that an expression follows, inlined or not, in order.
  std::vector<size_t> axes_of(const ir::ExprRef& expr) const;
  bool follows(const ir::ExprRef& expr, const ir::VarRef& iteration) const;

 private:
  struct Name {
    ir::ExprRef value;          // inlined; null: it stays
    int64_t nodes = 0;          // of that
    std::vector<bool> follows;  // by axis of the region
  };

  size_t axis_of(const ir::Expr& variable) const;
  bool is_shared(const ir::ExprRef& expr) const;
  void note_axes(const ir::ExprRef& expr, std::vector<bool>* follows) const;

  const std::vector<ir::IterVar>& iters_;
  std::unordered_map<const ir::Var*, Name> names_;
};

// What is left of a condition once it is known that indices into a tensor are below its extents: what those say is left
// out. Both without names of the region's; null: nothing is left, or there was nothing.
ir::ExprRef beyond_bounds(const ir::ExprRef& condition, const ir::Buffer& tensor,
                          const std::vector<ir::ExprRef>& indices);

// Of a load, by axis: whether conditions that hold say that its index is at least 0, or below the extent.
struct StatedBounds {
  std::vector<bool> below, above;
};
StatedBounds stated_bounds(const std::vector<ir::ExprRef>& conditions, const ir::Expr& load);

// The load in `inside ? load : pad`, converted or not, whose condition says that the load's indices are inside of what
// it loads from, each between 0 and its axis's extent, and nothing else; otherwise null.
ir::ExprRef padded_load(const ir::Expr& expr);

// Calls fn(load) on each load that is evaluated wherever `expr` is, or wherever there is something to load.
template <class Fn>
void for_each_certain_load(const ir::ExprRef& expr, const Fn& fn) {
  if (expr->kind == ir::ExprKind::kReduce) return;
  if (expr->kind == ir::ExprKind::kLoad) fn(expr);
  for (size_t i = 0; i < (ir::is_lazy(*expr) ? 1 : expr->args.size()); ++i) for_each_certain_load(expr->args[i], fn);
  if (const ir::ExprRef load = padded_load(*expr)) fn(load);
}

}  // namespace kachel::lowering
