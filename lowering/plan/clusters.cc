#include "lowering/plan/clusters.h"

#include <algorithm>
#include <map>

#include "lowering/plan/grid_reads.h"
#include "lowering/plan/placement.h"

namespace kachel::lowering {
namespace {

constexpr int64_t kPatternRows = 8;  // of a swizzle: a part of a box begins with it

class Chooser {
 public:
  Chooser(const ir::Kernel& kernel, const Schedule& schedule)
      : schedule_(schedule), axes_(kernel.grid.size()), reads_(kernel) {}

  bool alike = true;  // as many stages for all tiles
  std::map<const ir::CopyStmt*, GridAxes> shared;

  // Whether there is a loop over stages in the block.
  bool block(const ir::Block& body) {
    bool stages = false;
    for (const ir::Stmt& stmt : body) {
      if (const auto* let = std::get_if<ir::LetStmt>(&stmt.node)) reads_.define(*let);
      if (const auto* branch = std::get_if<ir::IfStmt>(&stmt.node)) {
        const bool first = block(branch->then_body), second = block(branch->else_body);
        alike &= !(first || second) || reads_.of(branch->condition).empty();
        stages |= first || second;
      }
      const auto* loop = std::get_if<ir::ForStmt>(&stmt.node);
      if (!loop) continue;
      const bool within = block(loop->body);
      const Pipeline* pipeline = schedule_.of(*loop);
      const bool filled = pipeline && pipeline->realisation == Pipeline::Realisation::kBulkCopies;
      if (filled) copies(*pipeline);
      alike &= !(filled || within) || (reads_.of(loop->begin).empty() && reads_.of(loop->end).empty());
      stages |= filled || within;
    }
    return stages;
  }

 private:
  void copies(const Pipeline& pipeline) {
    for (const ir::Stmt* producer : pipeline.producers) {
      const auto* copy = std::get_if<ir::CopyStmt>(&producer->node);
      if (!copy || pipeline.by_threads.count(producer)) continue;
      const std::vector<int64_t> shape = tile_shape(copy->dst.buffer);
      const auto ranges = std::count_if(copy->src.axes.begin(), copy->src.axes.end() - 1, [](const ir::AxisSpec& axis) {
        return axis.kind != ir::AxisSpec::Kind::kIndex;
      });
      GridAxes axes = reads_.of(copy->src);
      if (shape.size() == 2 && ranges == 1 && shape[0] % (kMostCluster * kPatternRows) == 0 && axes.size() < axes_)
        shared[copy] = std::move(axes);
    }
  }

  const Schedule& schedule_;
  const size_t axes_;
  GridReads reads_;
};

}  // namespace

void choose_clusters(const ir::Kernel& kernel, Schedule* schedule) {
  if (!has_bulk_copies(*schedule) || !schedule->backwards.empty()) return;
  Chooser chooser(kernel, *schedule);
  chooser.block(kernel.body);
  if (!chooser.alike || chooser.shared.empty()) return;
  schedule->cluster = kMostCluster;
  schedule->shared = std::move(chooser.shared);
}

}  // namespace kachel::lowering
