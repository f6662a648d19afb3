// The shape of a cluster: blocks along each axis of the grid, powers of two, 8 together at most; empty where there are
// no clusters. Blocks of a cluster are numbered with the last axis fastest.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace kachel::lowering {

using ClusterShape = std::vector<int32_t>;

int blocks_of(const ClusterShape& cluster);
// By how many a block's number grows along an axis.
int rank_step(const ClusterShape& cluster, size_t axis);
// Byte r: the blocks, as bits, that are where block r is but for their places on `axes`.
uint64_t sharers(const ClusterShape& cluster, const std::vector<size_t>& axes);
// The tiles of a grid whose axes are rounded up to whole clusters; 0 where an extent is not positive.
int64_t filled_tiles(const ClusterShape& cluster, const std::vector<int64_t>& extents);

}  // namespace kachel::lowering
