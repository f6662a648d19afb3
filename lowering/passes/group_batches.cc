#include "lowering/passes/group_batches.h"

#include "lowering/planted.h"

namespace kachel::lowering {

using Kind = LoopIntrinsic::Kind;

const LoopIntrinsic* group_mma(const LoopStmt& stmt) {
  const auto* intrinsic = std::get_if<LoopIntrinsic>(&stmt.node);
  return intrinsic && intrinsic->kind == Kind::kGroupMma ? intrinsic : nullptr;
}

bool is_inert(const LoopStmt& stmt) {
  return std::holds_alternative<LoopLet>(stmt.node) || std::holds_alternative<LoopComment>(stmt.node);
}

bool issues(const LoopBlock& body) {
  bool found = false;
  for_each_statement(body, [&](const LoopStmt& stmt) { found |= group_mma(stmt) != nullptr; });
  return found;
}

GroupBatches::GroupBatches(const LoopKernel& kernel) : kernel_(kernel) {
  for_each_statement(kernel.body, [&](const LoopStmt& stmt) {
    if (const LoopIntrinsic* mma = group_mma(stmt))
      for (const LoopIntrinsic::Operand& operand : mma->operands)
        if (operand.buffer->scope == ir::Scope::kShared) operands_.insert(operand.buffer.get());
  });
}

bool GroupBatches::reads_any(const std::set<const ir::Buffer*>& buffers) const {
  for (const ir::Buffer* buffer : buffers)
    if (operands_.count(buffer)) return true;
  return false;
}

bool GroupBatches::touches(const ir::Buffer* buffer) const {
  for (const Batch& batch : batches_)
    if (batch.registers.count(buffer)) return true;
  return false;
}

void GroupBatches::before(const LoopStmt& stmt, bool has_barriers, LoopBlock* out) {
  if (const LoopIntrinsic* mma = group_mma(stmt)) {
    if (!open_) {
      out->push_back(marker(Kind::kGroupFence));
      batches_.emplace_back();
    }
    open_ = true;
    for (const LoopIntrinsic::Operand& operand : mma->operands)
      if (operand.buffer->scope == ir::Scope::kRegister) batches_.back().registers.insert(operand.buffer.get());
    batches_.back().sums.insert(mma->operands[0].buffer.get());
    return;
  }
  const bool plain = is_inert(stmt) || std::holds_alternative<LoopStore>(stmt.node) ||
                     std::holds_alternative<LoopIntrinsic>(stmt.node) || std::holds_alternative<LoopThreads>(stmt.node);
  bool waits = false, stays = !has_barriers;
  for_each_statement(stmt, [&](const LoopStmt& inner) {
    stays &= !group_mma(inner) && !std::holds_alternative<LoopAtomic>(inner.node) &&
             !std::holds_alternative<LoopPipeline>(inner.node);
    for_each_access(inner, [&](const ir::BufferRef& buffer, bool) { waits |= touches(buffer.get()); });
  });
  // A barrier waits, and within control flow on some paths only.
  if (waits || (!plain && !stays)) return settle(out);
  if (!is_inert(stmt)) commit(out);
}

void GroupBatches::commit(LoopBlock* out) {
  if (open_) out->push_back(marker(Kind::kGroupCommit));
  open_ = false;
}

void GroupBatches::settle(LoopBlock* out) {
  commit(out);
  if (batches_.empty()) return;
  if (!planted(Planted::kGroupDroppedWait)) pin(out);
  batches_.clear();
}

LoopStmt GroupBatches::wait(int64_t groups, const std::set<const ir::Buffer*>& sums) const {
  LoopStmt wait = marker(Kind::kGroupWait, groups);
  for (const std::vector<LoopBuffer>* buffers : {&kernel_.buffers, &further_})
    for (const LoopBuffer& buffer : *buffers)
      if (sums.count(buffer.buffer.get()))
        std::get<LoopIntrinsic>(wait.node).operands.push_back({buffer.buffer, int32(0), buffer.elements, true});
  return wait;
}

void GroupBatches::pin(LoopBlock* out) const {
  std::set<const ir::Buffer*> sums;
  for (const Batch& batch : batches_) sums.insert(batch.sums.begin(), batch.sums.end());
  out->push_back(wait(0, sums));
}

void GroupBatches::leave_one(LoopBlock* out) {
  std::set<const ir::Buffer*> ready;
  for (size_t i = 0; i + 1 < batches_.size(); ++i)
    for (const ir::Buffer* buffer : batches_[i].sums)
      if (!batches_.back().registers.count(buffer)) ready.insert(buffer);
  while (batches_.size() > 1) batches_.pop_front();
  out->push_back(wait(1, ready));
}

}  // namespace kachel::lowering
