#include "lowering/plan/clusters.h"

#include <algorithm>
#include <map>
#include <unordered_map>

#include "lowering/plan/placement.h"

namespace kachel::lowering {
namespace {

constexpr int64_t kPatternRows = 8;  // of a swizzle: a part of a box begins with it

using Axes = std::set<size_t>;

// Which axes of the grid values and slices depend on.
class Dependences {
 public:
  explicit Dependences(const ir::Kernel& kernel) {
    for (size_t axis = 0; axis < kernel.grid.size(); ++axis) of_[kernel.grid[axis].var.get()] = {axis};
  }
  void define(const ir::LetStmt& let) { of_[let.var.get()] = of(let.value); }

  Axes of(const ir::ExprRef& value) const {
    Axes axes;
    if (value)
      ir::visit(value, [&](const ir::ExprRef& node) {
        const auto found = node->kind == ir::ExprKind::kVar ? of_.find(node->var.get()) : of_.end();
        if (found != of_.end()) axes.insert(found->second.begin(), found->second.end());
      });
    return axes;
  }
  Axes of(const ir::TileRef& slice) const {
    Axes axes;
    for (const ir::AxisSpec& axis : slice.axes) axes.merge(of(axis.start));
    return axes;
  }

 private:
  std::unordered_map<const ir::Var*, Axes> of_;
};

class Chooser {
 public:
  Chooser(const ir::Kernel& kernel, const Schedule& schedule)
      : schedule_(schedule), axes_(kernel.grid.size()), dependences_(kernel) {}

  bool alike = true;  // as many stages for all tiles
  std::map<const ir::CopyStmt*, Axes> shared;

  // Whether there is a loop over stages in the block.
  bool block(const ir::Block& body) {
    bool stages = false;
    for (const ir::Stmt& stmt : body) {
      if (const auto* let = std::get_if<ir::LetStmt>(&stmt.node)) dependences_.define(*let);
      if (const auto* branch = std::get_if<ir::IfStmt>(&stmt.node)) {
        const bool first = block(branch->then_body), second = block(branch->else_body);
        alike &= !(first || second) || dependences_.of(branch->condition).empty();
        stages |= first || second;
      }
      const auto* loop = std::get_if<ir::ForStmt>(&stmt.node);
      if (!loop) continue;
      const bool within = block(loop->body);
      const Pipeline* pipeline = schedule_.of(*loop);
      const bool filled = pipeline && pipeline->realisation == Pipeline::Realisation::kBulkCopies;
      if (filled) copies(*pipeline);
      alike &= !(filled || within) || (dependences_.of(loop->begin).empty() && dependences_.of(loop->end).empty());
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
      Axes axes = dependences_.of(copy->src);
      if (shape.size() == 2 && ranges == 1 && shape[0] % (kMostCluster * kPatternRows) == 0 && axes.size() < axes_)
        shared[copy] = std::move(axes);
    }
  }

  const Schedule& schedule_;
  const size_t axes_;
  Dependences dependences_;
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
