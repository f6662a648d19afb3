// Where a kernel waits for wgmma. Neighbouring kGroupMma form a batch: a fence in front, a commit behind. A batch runs on
// until a statement touches its registers, control flow parts, or a barrier lets other threads write what it reads.
#pragma once
#include <set>

#include "lowering/loop_ir.h"

namespace kachel::lowering {

class GroupBatches {
 public:
  explicit GroupBatches(const LoopKernel& kernel);

  // Whether a kGroupMma anywhere in the kernel reads one of these from shared memory.
  bool reads_any(const std::set<const ir::Buffer*>& buffers) const;
  // What has to stand in front of the statement. Statements are shown in the order in which they are executed.
  void before(const LoopStmt& stmt, LoopBlock* out);
  // Ends the open batch, if there is one.
  void commit(LoopBlock* out);
  // Nothing is under way after it.
  void settle(LoopBlock* out);
  // In front of a loop that leaves a batch under way: whatever made the accumulators is not moved into it.
  void pin(LoopBlock* out) const;
  // All but the last batch are done after it. REQUIRES: no open batch.
  void leave_one(LoopBlock* out) const;

  // A body of kGroupMma on accumulators that nothing else in it touches.
  static bool only_products(const LoopBlock& body);

 private:
  LoopStmt wait_for_all() const;

  const LoopKernel& kernel_;
  std::set<const ir::Buffer*> operands_;   // in shared memory
  std::set<const ir::Buffer*> registers_;  // of what is under way
  std::set<const ir::Buffer*> sums_;       // the accumulators among them
  bool open_ = false;
};

}  // namespace kachel::lowering
