#include "lowering/plan/l2_priority.h"

#include "lowering/plan/grid_reads.h"
#include "lowering/tile_ir/branch_copies.h"

namespace kachel::lowering {
namespace {

class Chooser {
 public:
  Chooser(const ir::Kernel& kernel, Schedule* schedule)
      : schedule_(*schedule), order_(schedule->order), reads_(kernel) {
    for (size_t i = 0; order_.size() < kernel.grid.size(); ++i) order_.push_back(i);
  }

  // `told_apart`: axes that deal out the iterations of a loop around the block.
  void block(const ir::Block& body, const GridAxes& told_apart) {
    for (const ir::Stmt& stmt : body) {
      if (const auto* let = std::get_if<ir::LetStmt>(&stmt.node)) reads_.define(*let);
      if (const auto* branch = std::get_if<ir::IfStmt>(&stmt.node)) {
        block(branch->then_body, told_apart);
        block(branch->else_body, told_apart);
      }
      const auto* loop = std::get_if<ir::ForStmt>(&stmt.node);
      if (!loop) continue;
      GridAxes within = reads_.dealt_out(*loop);
      within.insert(told_apart.begin(), told_apart.end());
      block(loop->body, within);
      const Pipeline* pipeline = schedule_.of(*loop);
      if (!pipeline || pipeline->realisation != Pipeline::Realisation::kBulkCopies) continue;
      for (const ir::Stmt* producer : pipeline->producers)
        for (const ir::CopyStmt* copy : copies_of(*producer))
          if (!pipeline->by_threads.count(copy)) schedule_.reread.push_back(by(*copy, within));
    }
  }

 private:
  Reread by(const ir::CopyStmt& copy, GridAxes told_apart) const {
    told_apart.merge(reads_.apart(copy.src));
    const size_t side_by_side = schedule_.raster > 1 ? 2 : 1;  // of the axes that change fastest
    Reread reread{&copy, {}, {}};
    for (size_t i = 0; i < order_.size(); ++i)
      if (!told_apart.count(order_[i]))
        (i + side_by_side < order_.size() ? reread.far : reread.near).push_back(order_[i]);
    return reread;
  }

  Schedule& schedule_;
  std::vector<size_t> order_;
  GridReads reads_;
};

}  // namespace

void choose_l2_priorities(const ir::Kernel& kernel, Schedule* schedule) {
  if (has_bulk_copies(*schedule)) Chooser(kernel, schedule).block(kernel.body, {});
}

}  // namespace kachel::lowering
