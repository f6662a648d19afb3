#include "lowering/space/space.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include "lowering/space/axes.h"
#include "lowering/space/estimate.h"

namespace kachel::lowering {
namespace {

// Of the best estimate, what is still measured where nothing else orders configurations.
constexpr double kWorthTrying = 1.5;

// Bytes of shared memory that a block can use beside its tiles.
constexpr int64_t kRoomBeside = 24 * 1024;

struct Point {
  double cost;
  int64_t resident;  // blocks that a multiprocessor has shared memory for
  int64_t shared_bytes;
  std::vector<int64_t> values;
};

// Of points that differ only in the depth of pipelines the deepest, for each number of blocks that it leaves room for.
// Where that one leaves a block alone and little of its memory, the next is kept as well: what a block loads once, and
// boxes that it stores from, ask for room that tiles do not show.
void keep_deepest(const Outline& outline, std::vector<Point>* points) {
  const auto& tunables = outline.question().kernel.tunables;
  auto is_depth = [&](size_t i) { return tunables[i].automatic && outline.roles()[i] == ir::TunableRole::kStages; };
  std::map<std::vector<int64_t>, std::map<std::vector<int64_t>, int64_t>> depths;  // of others and residency: bytes
  auto split = [&](const Point& point) {
    std::vector<int64_t> others{point.resident}, own;
    for (size_t i = 0; i < tunables.size(); ++i) (is_depth(i) ? own : others).push_back(point.values[i]);
    return std::pair(std::move(others), std::move(own));
  };
  for (const Point& point : *points) {
    auto [others, own] = split(point);
    depths[std::move(others)][std::move(own)] = point.shared_bytes;
  }
  std::erase_if(*points, [&](const Point& point) {
    const auto [others, own] = split(point);
    const auto& known = depths[others];
    const auto deepest = known.rbegin();
    const bool crowded = point.resident == 1 && outline.question().target.shared_limit - deepest->second < kRoomBeside;
    return deepest->first != own && !(crowded && std::next(deepest)->first == own);
  });
}

// A tile that covers all there is already needs no larger one.
bool wastes(const Outline& outline, const std::vector<std::vector<int64_t>>& axes, const std::vector<int64_t>& values) {
  const auto& tunables = outline.question().kernel.tunables;
  for (const CoverOutline& cover : outline.covers()) {
    if (cover.extent.expr->kind != ir::ExprKind::kVar) continue;
    const auto total = outline.value(cover.total);
    if (!total) continue;
    for (size_t i = 0; i < tunables.size(); ++i) {
      if (tunables[i].var != cover.extent.expr->var || !tunables[i].automatic) continue;
      for (const int64_t smaller : axes[i])
        if (smaller < values[i] && smaller >= *total) return true;
    }
  }
  return false;
}

}  // namespace

std::vector<std::vector<int64_t>> derive_space(const SpaceQuestion& question) {
  Outline outline(question);
  const std::vector<std::vector<int64_t>> axes = axes_of(outline);
  std::vector<Point> points;
  std::vector<size_t> at(axes.size(), 0);
  for (bool more = true; more;) {
    std::vector<int64_t> values(axes.size());
    for (size_t i = 0; i < axes.size(); ++i) values[i] = axes[i][at[i]];
    outline.set(values);
    const Footprint footprint = footprint_of(outline);
    if (fits(outline, footprint) && !wastes(outline, axes, values) && (!question.admitted || question.admitted(values)))
      points.push_back(
          {estimate(outline, footprint), resident_of(outline, footprint), footprint.shared_bytes, std::move(values)});
    more = false;
    for (size_t i = axes.size(); i-- > 0 && !more;) {  // the last tunable varies fastest
      more = ++at[i] < axes[i].size();
      if (!more) at[i] = 0;
    }
  }
  keep_deepest(outline, &points);
  std::stable_sort(points.begin(), points.end(), [](const Point& a, const Point& b) { return a.cost < b.cost; });
  if (outline.is_cpu() && !question.is_program)
    std::erase_if(points, [best = points.empty() ? 0 : points[0].cost](const Point& point) {
      return point.cost > kWorthTrying * best;
    });
  const size_t most = outline.is_cpu() ? kMostDerivedCpu : kMostDerived;
  std::vector<std::vector<int64_t>> space;
  for (size_t i = 0; i < std::min(points.size(), most); ++i) space.push_back(std::move(points[i].values));
  return space;
}

}  // namespace kachel::lowering
