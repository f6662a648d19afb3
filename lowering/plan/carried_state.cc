#include "lowering/plan/carried_state.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "ir/visit.h"

namespace kachel::lowering {
namespace {

constexpr int64_t kLanes = 32;

// Whether a serial loop has the region, and copies nothing to or from the fragment.
bool is_carried(const ir::Kernel& kernel, const ir::Buffer& fragment, const ir::ParallelStmt* region) {
  bool carried = false;
  ir::for_each_stmt(kernel.body, [&](const ir::Stmt& stmt) {
    const auto* loop = std::get_if<ir::ForStmt>(&stmt.node);
    if (!loop || loop->pipelined) return;
    bool has_region = false, copied = false;
    ir::for_each_stmt(loop->body, [&](const ir::Stmt& inner) {
      has_region |= std::get_if<ir::ParallelStmt>(&inner.node) == region;
      ir::for_each_tile(inner, [&](const ir::TileRef& tile, bool) { copied |= tile.buffer.get() == &fragment; });
    });
    carried |= has_region && !copied;
  });
  return carried;
}

// Whether a reduction adds a matrix up along the axis.
bool adds_along(size_t axis, const Space& space, const ir::Buffer& fragment) {
  if (!space.reduction) return false;
  const size_t own = space.region->iters.size();
  return std::any_of(space.uses.begin(), space.uses.end(), [&](const Space::Use& use) {
    return use.buffer.get() == &fragment && use.axes.size() == 2 && use.is_plain() &&
           use.axes[axis] != FragmentLayout::kNoAxis && use.axes[axis] >= own && use.axes[1 - axis] < own;
  });
}

// Vectors with an element for each place along the axis alone that regions over the matrix use and loops load.
int64_t vectors_along(size_t axis, const ir::Kernel& kernel, const std::vector<Space>& spaces,
                      const ir::Buffer& fragment) {
  std::set<const ir::Buffer*> vectors, filled;
  for (const Space& space : spaces)
    for (const Space::Use& own : space.uses) {
      if (!space.region || own.buffer.get() != &fragment || own.axes.size() != 2 || !own.is_plain()) continue;
      const std::vector<size_t> along = {own.axes[axis]};
      for (const Space::Use& use : space.uses)
        if (use.axes == along) vectors.insert(use.buffer.get());
    }
  const auto fills = [&](const ir::Stmt& stmt) {
    const auto* copy = std::get_if<ir::CopyStmt>(&stmt.node);
    if (copy && copy->src.buffer->scope == ir::Scope::kGlobal && vectors.count(copy->dst.buffer.get()))
      filled.insert(copy->dst.buffer.get());
  };
  ir::for_each_stmt(kernel.body, [&](const ir::Stmt& stmt) {
    if (const auto* loop = std::get_if<ir::ForStmt>(&stmt.node)) ir::for_each_stmt(loop->body, fills);
  });
  return static_cast<int64_t>(filled.size());
}

}  // namespace

std::optional<FragmentLayout> state_layout(const ir::Kernel& kernel, const ir::Buffer& fragment,
                                           const std::vector<Space>& spaces, int64_t threads) {
  const auto is_state = [&](size_t axis) {
    return std::any_of(spaces.begin(), spaces.end(), [&](const Space& space) {
      return adds_along(axis, space, fragment) && is_carried(kernel, fragment, space.region);
    });
  };
  size_t added = 0;  // rows, if that is one of both
  while (added < 2 && !is_state(added)) ++added;
  if (added == 2) return std::nullopt;
  const std::vector<int64_t> shape = {fragment.shape[0]->int_value, fragment.shape[1]->int_value};
  const int64_t terms = shape[added], sums = shape[1 - added];
  const int64_t across = std::gcd(sums, threads), sharers = threads / across;
  if (sharers > kLanes || kLanes % sharers != 0 || terms % sharers != 0) return std::nullopt;
  const int64_t held = terms / sharers;
  // Of what columns have, each thread has as many elements as it holds terms, and loads them in every step. (A state
  // of 64 columns that five vectors go along, H200: 417 us by sums across lanes, 772 in this form.)
  constexpr int64_t kMostLoaded = 32;
  if (added == 1 && held * vectors_along(1, kernel, spaces, fragment) > kMostLoaded) return std::nullopt;
  std::vector<FragmentLayout::Axis> axes(2);
  if (held > 1) axes[added].push_back({held, false, 1});
  if (sharers > 1) axes[added].push_back({sharers, true, 1});
  if (across > 1) axes[1 - added].push_back({across, true, sharers});
  if (sums > across) axes[1 - added].push_back({sums / across, false, held});
  return FragmentLayout(shape, std::move(axes), threads);
}

}  // namespace kachel::lowering
