// Where a kernel waits for wgmma. Neighbouring kGroupMma form a batch: a fence in front, a commit behind. A batch runs
// on until a statement touches its registers, control flow parts, or a barrier lets other threads write what it reads.
// Batches end in the order in which they were issued.
#pragma once
#include <deque>
#include <set>
#include <utility>
#include <vector>

#include "lowering/loop_ir/loop_build.h"

namespace kachel::lowering {

class GroupBatches {
 public:
  explicit GroupBatches(const LoopKernel& kernel);

  // Whether a kGroupMma anywhere in the kernel reads one of these from shared memory.
  bool reads_any(const std::set<const ir::Buffer*>& buffers) const;
  // What has to stand in front of the statement, within which there may be barriers or not. Statements are shown in the
  // order in which they are executed.
  void before(const LoopStmt& stmt, bool has_barriers, LoopBlock* out);
  // Ends the open batch, if there is one.
  void commit(LoopBlock* out);
  // Nothing is under way after it.
  void settle(LoopBlock* out);
  // Waits for all, but goes on counting them as under way: in front of a loop that leaves a batch so, where what made
  // the accumulators must not be moved into it.
  void pin(LoopBlock* out) const;
  // All but the last batch are done after it. REQUIRES: no open batch.
  void leave_one(LoopBlock* out);
  // Registers that are not among the kernel's yet.
  void note(const LoopBuffer& further) { further_.push_back(further); }

  struct Batch {
    std::set<const ir::Buffer*> registers, sums;  // sums: the accumulators among them
  };
  using UnderWay = std::deque<Batch>;  // oldest first
  bool any() const { return !batches_.empty(); }
  // Where control flow parts with batches under way, for the second way. REQUIRES: no open batch.
  const UnderWay& under_way() const { return batches_; }
  void resume(UnderWay batches) { batches_ = std::move(batches); }

 private:
  bool touches(const ir::Buffer* buffer) const;
  LoopStmt wait(int64_t groups, const std::set<const ir::Buffer*>& sums) const;

  const LoopKernel& kernel_;
  std::set<const ir::Buffer*> operands_;  // in shared memory
  std::vector<LoopBuffer> further_;
  UnderWay batches_;  // the last may be open
  bool open_ = false;
};

// Whether there is a kGroupMma in it.
bool issues(const LoopBlock& body);
// The statement's kGroupMma, or null.
const LoopIntrinsic* group_mma(const LoopStmt& stmt);
// A name or a comment.
bool is_inert(const LoopStmt& stmt);

}  // namespace kachel::lowering
