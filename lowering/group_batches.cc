#include "lowering/group_batches.h"

#include "lowering/planted.h"

namespace kachel::lowering {
namespace {

using Kind = LoopIntrinsic::Kind;

const LoopIntrinsic* group_mma(const LoopStmt& stmt) {
  const auto* intrinsic = std::get_if<LoopIntrinsic>(&stmt.node);
  return intrinsic && intrinsic->kind == Kind::kGroupMma ? intrinsic : nullptr;
}

template <class Fn>
void for_each_statement(const LoopBlock& body, const Fn& fn) {
  for (const LoopStmt& stmt : body) {
    fn(stmt);
    if (const auto* loop = std::get_if<LoopFor>(&stmt.node)) for_each_statement(loop->body, fn);
    if (const auto* threads = std::get_if<LoopThreads>(&stmt.node)) for_each_statement(threads->body, fn);
    if (const auto* branch = std::get_if<LoopIf>(&stmt.node)) {
      for_each_statement(branch->then_body, fn);
      for_each_statement(branch->else_body, fn);
    }
    if (const auto* pipeline = std::get_if<LoopPipeline>(&stmt.node)) {
      for_each_statement(pipeline->produce, fn);
      for_each_statement(pipeline->consume, fn);
    }
  }
}

// What a statement itself touches.
template <class Fn>
void for_each_buffer(const LoopStmt& stmt, const Fn& fn) {
  for_each_expr(stmt, [&](const ir::ExprRef& expr) {
    ir::visit(expr, [&](const ir::ExprRef& node) {
      if (node->kind == ir::ExprKind::kLoad) fn(node->buffer.get());
    });
  });
  if (const auto* store = std::get_if<LoopStore>(&stmt.node)) fn(store->buffer.get());
  if (const auto* intrinsic = std::get_if<LoopIntrinsic>(&stmt.node))
    for (const LoopIntrinsic::Operand& operand : intrinsic->operands) fn(operand.buffer.get());
}

LoopStmt marker(Kind kind, int64_t groups = 0) {
  LoopIntrinsic intrinsic{kind, {}, nullptr};
  intrinsic.immediate = groups;
  return {std::move(intrinsic)};
}

bool is_inert(const LoopStmt& stmt) {
  return std::holds_alternative<LoopLet>(stmt.node) || std::holds_alternative<LoopComment>(stmt.node);
}

}  // namespace

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

void GroupBatches::before(const LoopStmt& stmt, LoopBlock* out) {
  if (const LoopIntrinsic* mma = group_mma(stmt)) {
    if (!open_) out->push_back(marker(Kind::kGroupFence));
    open_ = true;
    for (const LoopIntrinsic::Operand& operand : mma->operands)
      if (operand.buffer->scope == ir::Scope::kRegister) registers_.insert(operand.buffer.get());
    sums_.insert(mma->operands[0].buffer.get());
    return;
  }
  const bool plain = is_inert(stmt) || std::holds_alternative<LoopStore>(stmt.node) ||
                     std::holds_alternative<LoopIntrinsic>(stmt.node) || std::holds_alternative<LoopThreads>(stmt.node);
  bool touches = false;
  for_each_statement({stmt}, [&](const LoopStmt& inner) {
    touches |= group_mma(inner) != nullptr;
    for_each_buffer(inner, [&](const ir::Buffer* buffer) { touches |= registers_.count(buffer) > 0; });
  });
  if (touches || !plain) return settle(out);
  if (!is_inert(stmt)) commit(out);
}

void GroupBatches::commit(LoopBlock* out) {
  if (open_) out->push_back(marker(Kind::kGroupCommit));
  open_ = false;
}

void GroupBatches::settle(LoopBlock* out) {
  commit(out);
  if (registers_.empty()) return;
  if (!planted(Planted::kGroupDroppedWait)) out->push_back(wait_for_all());
  registers_.clear();
  sums_.clear();
}

LoopStmt GroupBatches::wait_for_all() const {
  LoopIntrinsic wait{Kind::kGroupWait, {}, nullptr};
  for (const LoopBuffer& buffer : kernel_.buffers)
    if (sums_.count(buffer.buffer.get()))
      wait.operands.push_back({buffer.buffer, ir::make_int(0, ir::DType::I32), buffer.elements, true});
  return {std::move(wait)};
}

void GroupBatches::pin(LoopBlock* out) const {
  out->push_back(wait_for_all());
}

void GroupBatches::leave_one(LoopBlock* out) const {
  out->push_back(marker(Kind::kGroupWait, 1));
}

bool GroupBatches::only_products(const LoopBlock& body) {
  bool products = false;
  for (const LoopStmt& stmt : body) {
    const LoopIntrinsic* mma = group_mma(stmt);
    if (!mma && !is_inert(stmt)) return false;
    if (mma && mma->operands[1].buffer->scope == ir::Scope::kRegister) return false;
    products |= mma != nullptr;
  }
  return products;
}

}  // namespace kachel::lowering
