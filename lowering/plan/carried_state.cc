#include "lowering/plan/carried_state.h"

#include <algorithm>
#include <numeric>

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

// Whether a reduction adds the rows of a matrix up.
bool adds_rows(const Space& space, const ir::Buffer& fragment) {
  if (!space.reduction) return false;
  const size_t own = space.region->iters.size();
  return std::any_of(space.uses.begin(), space.uses.end(), [&](const Space::Use& use) {
    return use.buffer.get() == &fragment && use.axes.size() == 2 && use.is_plain() &&
           use.axes[0] != FragmentLayout::kNoAxis && use.axes[0] >= own && use.axes[1] < own;
  });
}

}  // namespace

std::optional<FragmentLayout> state_layout(const ir::Kernel& kernel, const ir::Buffer& fragment,
                                           const std::vector<Space>& spaces, int64_t threads) {
  const bool is_state = std::any_of(spaces.begin(), spaces.end(), [&](const Space& space) {
    return adds_rows(space, fragment) && is_carried(kernel, fragment, space.region);
  });
  if (!is_state) return std::nullopt;
  const int64_t rows = fragment.shape[0]->int_value, columns = fragment.shape[1]->int_value;
  const int64_t across = std::gcd(columns, threads), sharers = threads / across;
  if (sharers > kLanes || kLanes % sharers != 0 || rows % sharers != 0) return std::nullopt;
  const int64_t held = rows / sharers;
  FragmentLayout::Axis down, along;
  if (held > 1) down.push_back({held, false, 1});
  if (sharers > 1) down.push_back({sharers, true, 1});
  if (across > 1) along.push_back({across, true, sharers});
  if (columns > across) along.push_back({columns / across, false, held});
  return FragmentLayout({rows, columns}, {std::move(down), std::move(along)}, threads);
}

}  // namespace kachel::lowering
