#include "lowering/cluster_shape.h"

#include <algorithm>
#include <functional>
#include <numeric>

namespace kachel::lowering {
namespace {

int product_from(const ClusterShape& cluster, size_t axis) {
  return std::accumulate(cluster.begin() + static_cast<std::ptrdiff_t>(axis), cluster.end(), 1, std::multiplies<int>());
}

}  // namespace

int blocks_of(const ClusterShape& cluster) {
  return product_from(cluster, 0);
}

int rank_step(const ClusterShape& cluster, size_t axis) {
  return product_from(cluster, axis + 1);
}

uint64_t sharers(const ClusterShape& cluster, const std::vector<size_t>& axes) {
  const int blocks = blocks_of(cluster);
  auto share = [&](int a, int b) {
    for (size_t axis = 0; axis < cluster.size(); ++axis)
      if (a / rank_step(cluster, axis) % cluster[axis] != b / rank_step(cluster, axis) % cluster[axis] &&
          std::find(axes.begin(), axes.end(), axis) == axes.end())
        return false;
    return true;
  };
  uint64_t all = 0;
  for (int rank = 0; rank < blocks; ++rank)
    for (int other = 0; other < blocks; ++other)
      if (share(rank, other)) all |= uint64_t{1} << (8 * rank + other);
  return all;
}

int64_t filled_tiles(const ClusterShape& cluster, const std::vector<int64_t>& extents) {
  int64_t tiles = 1;
  for (size_t axis = 0; axis < extents.size(); ++axis) {
    const int64_t along = cluster.empty() ? 1 : cluster[axis];
    tiles *= (std::max<int64_t>(extents[axis], 0) + along - 1) / along * along;
  }
  return tiles;
}

}  // namespace kachel::lowering
