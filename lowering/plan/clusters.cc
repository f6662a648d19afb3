#include "lowering/plan/clusters.h"

#include <algorithm>

#include "lowering/plan/grid_reads.h"
#include "lowering/plan/placement.h"

namespace kachel::lowering {
namespace {

// Of a part: it begins at a multiple of 128 bytes, whichever slabs it lies in. The swizzle goes by addresses.
constexpr int64_t kLeastRows = 4;

// A copy by the copy engine, and the axes of the grid on which it depends.
struct Fill {
  const ir::CopyStmt* copy;
  GridAxes axes;
  int64_t rows, bytes;
};

// The fills of a body, and the axes by which the number of its stages changes.
class Fills {
 public:
  Fills(const ir::Kernel& kernel, const Schedule& schedule) : schedule_(schedule), reads_(kernel) {}

  std::vector<Fill> all;
  GridAxes unlike;

  // Whether there is a loop over stages in the block.
  bool block(const ir::Block& body) {
    bool stages = false;
    for (const ir::Stmt& stmt : body) {
      if (const auto* let = std::get_if<ir::LetStmt>(&stmt.node)) reads_.define(*let);
      if (const auto* branch = std::get_if<ir::IfStmt>(&stmt.node)) {
        const bool first = block(branch->then_body), second = block(branch->else_body);
        if (first || second) unlike.merge(reads_.of(branch->condition));
        stages |= first || second;
      }
      const auto* loop = std::get_if<ir::ForStmt>(&stmt.node);
      if (!loop) continue;
      const bool within = block(loop->body);
      const Pipeline* pipeline = schedule_.of(*loop);
      const bool filled = pipeline && pipeline->realisation == Pipeline::Realisation::kBulkCopies;
      if (filled) copies(*pipeline);
      if (!filled && !within) continue;
      unlike.merge(reads_.of(loop->begin));
      unlike.merge(reads_.of(loop->end));
      stages = true;
    }
    return stages;
  }

 private:
  void copies(const Pipeline& pipeline) {
    for (const ir::Stmt* producer : pipeline.producers) {
      const auto* copy = std::get_if<ir::CopyStmt>(&producer->node);
      if (!copy || pipeline.by_threads.count(copy)) continue;
      const std::vector<int64_t> shape = tile_shape(copy->dst.buffer);
      const auto ranges = std::count_if(copy->src.axes.begin(), copy->src.axes.end() - 1, [](const ir::AxisSpec& axis) {
        return axis.kind != ir::AxisSpec::Kind::kIndex;
      });
      if (shape.size() == 2 && ranges == 1)
        all.push_back(
            {copy, reads_.of(copy->src), shape[0], product(shape) * ir::bits(copy->dst.buffer->type.dtype) / 8});
    }
  }

  const Schedule& schedule_;
  GridReads reads_;
};

// The axes along which blocks of the cluster share the fill; none where its rows cannot be parted among them.
std::vector<size_t> shared_along(const Fill& fill, const ClusterShape& cluster) {
  std::vector<size_t> axes;
  int64_t parts = 1;
  for (size_t axis = 0; axis < cluster.size(); ++axis)
    if (cluster[axis] > 1 && !fill.axes.count(axis)) {
      axes.push_back(axis);
      parts *= cluster[axis];
    }
  return fill.rows % (parts * kLeastRows) ? std::vector<size_t>() : axes;
}

double copied_bytes(const std::vector<Fill>& fills, const ClusterShape& cluster) {
  double bytes = 0;
  for (const Fill& fill : fills) {
    double parts = 1;
    for (size_t axis : shared_along(fill, cluster)) parts *= cluster[axis];
    bytes += static_cast<double>(fill.bytes) / parts;
  }
  return bytes;
}

}  // namespace

void choose_clusters(const ir::Kernel& kernel, const Target& target, Schedule* schedule) {
  const int blocks = target.cluster;
  if (!has_bulk_copies(*schedule) || !schedule->is_even() || kernel.grid.empty()) return;
  Fills fills(kernel, *schedule);
  fills.block(kernel.body);
  std::vector<size_t> walk = schedule->order;
  for (size_t axis = 0; walk.size() < kernel.grid.size(); ++axis) walk.push_back(axis);
  const size_t fast = walk.back(), slow = walk[walk.size() > 1 ? walk.size() - 2 : 0];

  ClusterShape best(walk.size(), 1);
  const double alone = copied_bytes(fills.all, best);
  double least = alone;
  for (int along = blocks; along >= 1; along /= 2) {
    ClusterShape cluster(walk.size(), 1);
    cluster[fast] = blocks / along;
    if (slow != fast) cluster[slow] = along;
    const bool alike =
        (cluster[fast] == 1 || !fills.unlike.count(fast)) && (cluster[slow] == 1 || !fills.unlike.count(slow));
    const bool asked = !target.cluster_columns || cluster[fast] == target.cluster_columns;
    const double bytes = copied_bytes(fills.all, cluster);
    if (!alike || !asked || blocks_of(cluster) != blocks || bytes >= least) continue;
    least = bytes;
    best = std::move(cluster);
  }
  if (least == alone) return;
  for (const Fill& fill : fills.all)
    if (std::vector<size_t> axes = shared_along(fill, best); !axes.empty())
      schedule->shared[fill.copy] = std::move(axes);
  schedule->cluster = std::move(best);
}

}  // namespace kachel::lowering
