#include "lowering/plan/free_layouts.h"

#include <algorithm>
#include <utility>

#include "ir/tunable_role.h"
#include "lowering/plan/layout.h"
#include "lowering/tile_ir/hoist_reductions.h"
#include "lowering/tile_ir/hoist_scans.h"
#include "lowering/tile_ir/tile_uses.h"

namespace kachel::lowering {
namespace {

// How many of the axes of the region itself the use has.
size_t own_axes(const Space::Use& use, size_t own) {
  return static_cast<size_t>(
      std::count_if(use.axes.begin(), use.axes.end(), [own](size_t axis) { return axis < own; }));
}

bool uses(const Space& space, const ir::Buffer& fragment) {
  return std::any_of(space.uses.begin(), space.uses.end(),
                     [&](const Space::Use& use) { return use.buffer.get() == &fragment; });
}

std::vector<int64_t> tile_shape_of(const ir::Buffer& fragment) {
  std::vector<int64_t> shape;
  for (const ir::ExprRef& extent : fragment.shape) shape.push_back(extent->int_value);
  return shape;
}

int64_t largest_divisor(int64_t number, int64_t most) {
  int64_t divisor = std::min(number, most);
  while (number % divisor) --divisor;
  return divisor;
}

}  // namespace

FragmentLayout extended(const FragmentLayout& part, const std::vector<size_t>& axes, const std::vector<int64_t>& shape,
                        int64_t vector) {
  std::vector<FragmentLayout::Axis> made(shape.size());
  std::vector<bool> done(shape.size());
  for (size_t i = 0; i < axes.size(); ++i) {
    if (axes[i] == FragmentLayout::kNoAxis) continue;
    made[axes[i]] = part.axes()[i];
    done[axes[i]] = true;
  }
  std::vector<FragmentLayout::Digit> replicas = part.replicas();
  int64_t reg = part.registers();
  const bool vectors = vector > 1 && !done.back();  // which come first, so that registers follow them
  for (FragmentLayout::Axis& axis : made)
    for (FragmentLayout::Digit& digit : axis)
      if (vectors && !digit.in_thread) digit.stride *= vector;
  if (vectors) reg *= vector;
  for (size_t axis = shape.size(); axis-- > 0;) {
    if (done[axis]) continue;
    int64_t left = shape[axis];
    if (axis + 1 == shape.size() && vectors) {
      made[axis].push_back({vector, false, 1});
      left /= vector;
    }
    for (FragmentLayout::Digit& digit : replicas) {
      const int64_t taken = largest_divisor(digit.radix, left);
      if (taken == 1) continue;
      made[axis].push_back({taken, true, digit.stride});
      digit.radix /= taken;
      digit.stride *= taken;
      left = (left + taken - 1) / taken;
    }
    if (left > 1) made[axis].push_back({left, false, reg});
    reg *= left;
  }
  return FragmentLayout(shape, std::move(made), part.threads());
}

Space* sums_that_share(std::vector<Space>* spaces, const ir::Buffer& fragment, int64_t threads) {
  const auto found = std::find_if(spaces->begin(), spaces->end(), [&](const Space& space) {
    const size_t own = space.reduction ? space.region->iters.size() : 0;
    if (product({space.shape.begin(), space.shape.begin() + static_cast<std::ptrdiff_t>(own)}) < threads) return false;
    return std::any_of(space.uses.begin(), space.uses.end(), [&](const Space::Use& use) {
      const size_t results = own_axes(use, own);
      return use.buffer.get() == &fragment && results < own && use.spanned() > results;
    });
  });
  return found == spaces->end() ? nullptr : &*found;
}

std::optional<FragmentLayout> by_results(const Space& sums,
                                         const std::map<const ir::Buffer*, FragmentLayout>& layouts) {
  const size_t own = sums.region->iters.size();
  for (const Space::Use& use : sums.uses) {
    if (own_axes(use, own) != own || use.spanned() != own || !use.is_plain()) continue;
    const auto held = layouts.find(use.buffer.get());
    if (held != layouts.end()) return extended(held->second, use.axes, sums.shape, 1);
  }
  return std::nullopt;
}

bool lay_out_by_operand(std::vector<Space>* spaces, const std::map<const ir::Buffer*, FragmentLayout>& layouts,
                        const std::set<const ir::ParallelStmt*>& carried, int64_t threads) {
  for (Space& sums : *spaces) {
    if (!sums.reduction || sums.layout || !carried.count(sums.region)) continue;
    const size_t own = sums.region->iters.size(), rank = sums.shape.size();
    if (product({sums.shape.begin(), sums.shape.begin() + static_cast<std::ptrdiff_t>(own)}) >= threads) continue;
    const Space::Use* operand = nullptr;
    for (const Space::Use& use : sums.uses) {
      if (!use.is_plain() || use.spanned() != use.axes.size() || !layouts.count(use.buffer.get())) continue;
      const size_t results = own_axes(use, own);
      const bool all_reduced = use.axes.size() - results == rank - own;
      if (!results || results == own || !all_reduced) continue;
      if (!operand || use.spanned() > operand->spanned()) operand = &use;
    }
    if (!operand) continue;
    const FragmentLayout& held = layouts.at(operand->buffer.get());
    sums.layout = extended(held, operand->axes, sums.shape, 1);
    // Results of several sums agree more often when registers follow their axes.
    if (FragmentLayout by_rows = sums.layout->by_rows(); by_rows.keep(operand->axes) == held)
      sums.layout = std::move(by_rows);
    return true;
  }
  return false;
}

int64_t sums_of(const ir::Buffer& fragment, const std::vector<Space>& spaces,
                const std::set<const ir::ParallelStmt*>& carried) {
  return std::count_if(spaces.begin(), spaces.end(), [&](const Space& space) {
    return carried.count(space.region) && std::any_of(space.uses.begin(), space.uses.end(), [&](const Space::Use& use) {
             return use.buffer.get() == &fragment && use.spanned() > own_axes(use, space.region->iters.size());
           });
  });
}

std::optional<size_t> sliding_axis(const ir::Buffer& fragment, const std::vector<Space>& spaces) {
  for (const Space& space : spaces) {
    if (!space.reduction) continue;
    const ir::Expr& reduction = *reduction_of(*space.region);
    const size_t own = space.region->iters.size();
    for (const Space::Use& use : space.uses) {
      if (use.buffer.get() != &fragment || own_axes(use, own) != own || use.spanned() != own) continue;
      for (size_t axis = 0; axis + 1 < use.axes.size(); ++axis) {
        if (use.axes[axis] == FragmentLayout::kNoAxis) continue;
        const ir::VarRef& along = space.region->iters[use.axes[axis]].var;
        bool slides = false;
        ir::visit(reduction.args[0], [&](const ir::ExprRef& node) {
          for (size_t i = 0; node->kind == ir::ExprKind::kLoad && i < node->args.size(); ++i)
            slides |= ir::mentions(node->args[i], along) &&
                      std::any_of(reduction.iters.begin(), reduction.iters.end(),
                                  [&](const ir::IterVar& iter) { return ir::mentions(node->args[i], iter.var); });
        });
        if (slides) return axis;
      }
    }
  }
  return std::nullopt;
}

FragmentLayout with_neighbours(const FragmentLayout& layout, size_t axis) {
  std::vector<FragmentLayout::Axis> axes = layout.axes();
  std::stable_partition(axes[axis].begin(), axes[axis].end(), [](const auto& digit) { return !digit.in_thread; });
  return FragmentLayout(layout.shape(), std::move(axes), layout.threads());
}

std::optional<size_t> turned_axis(const ir::Buffer& fragment, const std::vector<Space>& spaces) {
  std::optional<size_t> found;
  for (const Space& space : spaces) {
    if (!space.region || space.reduction || scan_of(*space.region)) continue;
    const auto held = std::find_if(space.uses.begin(), space.uses.end(),
                                   [&](const Space::Use& use) { return use.buffer.get() == &fragment; });
    const size_t rank = space.shape.size();
    if (held == space.uses.end() || !held->is_plain() || held->axes.size() != rank) continue;
    bool in_order = true;
    for (size_t axis = 0; axis < rank; ++axis) in_order &= held->axes[axis] == axis;
    if (!in_order) continue;
    const std::vector<ir::IterVar>& iters = space.region->iters;
    for_each_node(space.region->body, [&](const ir::ExprRef& node) {
      if (node->kind != ir::ExprKind::kLoad || node->buffer->scope == ir::Scope::kGlobal || node->args.size() < 2)
        return;
      if (uses(space, *node->buffer)) return;  // held in registers
      const bool by_rows = std::any_of(node->args.begin(), node->args.end() - 1,
                                       [&](const ir::ExprRef& at) { return ir::mentions(at, iters.back().var); });
      for (size_t axis = 0; by_rows && axis + 1 < rank; ++axis)
        if (node->args.back()->kind == ir::ExprKind::kVar && node->args.back()->var == iters[axis].var) found = axis;
    });
  }
  return found;
}

std::optional<FragmentLayout> turned_layout(const ir::Buffer& fragment, size_t axis, int64_t vector, int64_t threads) {
  constexpr int64_t kLanes = 32, kRun = 64;  // bytes: two sectors
  std::vector<int64_t> shape = tile_shape_of(fragment);
  const int64_t bytes = std::max(1, ir::bits(fragment.type.dtype) / 8);
  int64_t along = std::clamp<int64_t>(kRun / (vector * bytes), 1, kLanes);
  while (along < kLanes && shape[axis] % (kLanes / along) != 0) along *= 2;
  const int64_t across = kLanes / along;
  if (across == 1 || threads % kLanes || shape.back() % (vector * along)) return std::nullopt;
  std::vector<int64_t> parts = shape;
  parts.back() /= vector * along;
  parts[axis] /= across;
  const FragmentLayout rest = FragmentLayout::blocked(parts, 1, threads / kLanes);
  std::vector<FragmentLayout::Axis> axes = rest.axes();
  for (FragmentLayout::Axis& digits : axes)
    for (FragmentLayout::Digit& digit : digits) digit.stride *= digit.in_thread ? kLanes : vector;
  if (along > 1) axes.back().insert(axes.back().begin(), {along, true, 1});
  if (vector > 1) axes.back().insert(axes.back().begin(), {vector, false, 1});
  axes[axis].insert(axes[axis].begin(), {across, true, along});
  return FragmentLayout(shape, std::move(axes), threads);
}

FragmentLayout gathered_layout(const std::vector<int64_t>& shape, size_t axis, int64_t vector, int64_t threads) {
  // As if `axis` were the last one, and what a thread stores together were one element.
  std::vector<int64_t> turned = shape;
  turned.back() /= vector;
  std::swap(turned[axis], turned.back());
  std::vector<FragmentLayout::Axis> axes = FragmentLayout::blocked(turned, 1, threads).axes();
  std::swap(axes[axis], axes.back());
  for (FragmentLayout::Axis& digits : axes)
    for (FragmentLayout::Digit& digit : digits)
      if (!digit.in_thread) digit.stride *= vector;
  if (vector > 1) axes.back().insert(axes.back().begin(), {vector, false, 1});
  return FragmentLayout(shape, std::move(axes), threads);
}

std::optional<size_t> connected_axis(const ir::Buffer& fragment, const std::vector<Space>& spaces) {
  for (const Space& space : spaces) {
    if (space.exchange && uses(space, fragment)) return space.exchange->axis;
    const ir::Expr* scan = space.region ? scan_of(*space.region) : nullptr;
    for (const Space::Use& use : space.uses)
      for (size_t axis = 0; scan && use.buffer.get() == &fragment && axis < use.axes.size(); ++axis)
        if (use.axes[axis] != FragmentLayout::kNoAxis && space.region->iters[use.axes[axis]].var == scan->args[1]->var)
          return axis;
  }
  return std::nullopt;
}

namespace {

// Elements of one access to the tensors that the fragment, or others of its spaces, are copied to or from; 0: there are
// none.
int64_t accessed_with(const ir::Buffer& fragment, const std::vector<Space>& spaces, const Accessed& accessed) {
  int64_t vector = accessed(&fragment, kVectorBytes);
  for (const Space& space : spaces) {
    const auto its = [&](const Space::Use& use) { return use.buffer.get() == &fragment; };
    const auto found = std::find_if(space.uses.begin(), space.uses.end(), its);
    for (const Space::Use& use : space.uses)
      if (found != space.uses.end() && use.axes == found->axes && use.is_plain() && found->group == 1)
        vector = std::max(vector, accessed(use.buffer.get(), kVectorBytes));
  }
  while (vector && fragment.shape.back()->int_value % vector) vector /= 2;
  return vector;
}

// Rows of whole warps; nothing where there are too few of them, or they are of another length.
std::optional<FragmentLayout> row_a_warp(const std::vector<int64_t>& shape, int64_t vector, int64_t threads) {
  constexpr int64_t kLanes = 32;
  const int64_t row = shape.back(), warps = threads / kLanes, piece = vector * kLanes;
  const std::vector<int64_t> rows(shape.begin(), shape.end() - 1);
  if (rows.empty() || warps < 2 || row % piece != 0 || product(rows) % warps != 0) return std::nullopt;
  const FragmentLayout outer = FragmentLayout::blocked(rows, 1, warps);
  std::vector<FragmentLayout::Axis> axes = outer.axes();
  for (FragmentLayout::Axis& axis : axes)
    for (FragmentLayout::Digit& digit : axis) digit.stride *= digit.in_thread ? kLanes : row / kLanes;
  FragmentLayout::Axis last{{vector, false, 1}, {kLanes, true, 1}};
  if (vector == 1) last.erase(last.begin());
  if (row > piece) last.push_back({row / piece, false, vector});
  axes.push_back(std::move(last));
  return FragmentLayout(shape, std::move(axes), threads);
}

}  // namespace

FragmentLayout connected_layout(const ir::Buffer& fragment, size_t axis, const std::vector<Space>& spaces,
                                const Accessed& accessed, int64_t threads, int64_t stored) {
  constexpr int64_t kMost = 16, kMostInWarp = 2048;
  const std::vector<int64_t> shape = tile_shape_of(fragment);
  const bool along = axis + 1 == shape.size();
  int64_t vector = accessed_with(fragment, spaces, accessed);
  if (!vector) {
    vector = std::max<int64_t>(stored, 1);
    while (!stored && along && 2 * vector <= kMost && shape.back() % (2 * vector) == 0 &&
           product(shape) / (2 * vector) >= threads)
      vector *= 2;
  }
  const bool exchanged = std::any_of(spaces.begin(), spaces.end(),
                                     [&](const Space& space) { return space.exchange && uses(space, fragment); });
  if (along) {
    const bool fits = !exchanged || shape.back() <= kMostInWarp;
    if (auto rows = fits ? row_a_warp(shape, vector, threads) : std::nullopt) return *rows;
    return FragmentLayout::blocked(shape, vector, threads);
  }
  return with_neighbours(FragmentLayout::blocked(shape, vector, threads), axis);
}

int64_t free_vector(const ir::Buffer& fragment, const std::vector<Space>& spaces, const Accessed& accessed,
                    const Stored& stored, int64_t threads) {
  const int64_t copied = accessed(&fragment, kVectorBytes);
  int64_t vector = copied, most = stored(&fragment);
  for (const Space& space : spaces) {
    const auto its = [&](const Space::Use& use) { return use.buffer.get() == &fragment; };
    const auto found = std::find_if(space.uses.begin(), space.uses.end(), its);
    if (found == space.uses.end()) continue;
    if (std::any_of(space.uses.begin(), space.uses.end(), [&](const Space::Use& use) { return use.pairs && its(use); }))
      vector = std::max<int64_t>(vector, 2);
    for (const Space::Use& use : space.uses) {
      const int64_t store =
          use.axes == found->axes && use.is_plain() && found->group == 1 ? stored(use.buffer.get()) : 0;
      if (store) most = most ? std::min(most, store) : store;
    }
    if (copied) continue;
    for (const Space::Use& use : space.uses)
      if (use.axes == found->axes && use.is_plain() && found->group == 1)
        vector = std::max(vector, accessed(use.buffer.get(), kWordBytes));
  }
  if (most) vector = std::min(vector, most);
  vector = std::max<int64_t>(vector, 1);
  while (fragment.shape.back()->int_value % vector) vector /= 2;
  // What is added up is better off in few warps.
  const bool reduced = std::any_of(spaces.begin(), spaces.end(),
                                   [&](const Space& space) { return space.reduction && uses(space, fragment); });
  const int64_t word = std::max<int64_t>(accessed(&fragment, kWordBytes), 1);
  while (!reduced && vector > word && elements_of(fragment) / vector < threads) vector /= 2;
  return vector;
}

}  // namespace kachel::lowering
