// Pieces of loop IR that several passes put together.
#pragma once
#include "lowering/loop_ir/loop_ir.h"

namespace kachel::lowering {

ir::ExprRef int32(int64_t value);
ir::ExprRef int64(int64_t value);
ir::ExprRef apply(ir::Op op, const ir::ExprRef& a, const ir::ExprRef& b);
// a + b; `a` may be null, which is 0.
ir::ExprRef plus(const ir::ExprRef& a, const ir::ExprRef& b);
// value * factor, in the type of `value`.
ir::ExprRef times(const ir::ExprRef& value, int64_t factor);

// The value under a name of its own.
ir::ExprRef named(const char* name, const ir::ExprRef& value, LoopBlock* out);
// An intrinsic without operands.
LoopStmt marker(LoopIntrinsic::Kind kind, int64_t immediate = 0);

// An array of the thread, which the kernel gets.
ir::BufferRef add_registers(LoopKernel* kernel, const char* name, ir::DType type, int64_t elements);
// Of a thread: the words of all register arrays, and the registers where all threads have as many.
int64_t register_words(const LoopKernel& kernel);
int64_t registers_alike(const LoopKernel& kernel);
// The load whose element, a narrow float, a store moves as it is, or 0 where the first operand of its value, a
// selection, does not hold; null: it stores something else.
const ir::Expr* moved_element(const LoopStore& store);
// The same loop, with everything but its body.
LoopFor without_body(const LoopFor& loop);
// How often a loop runs that is to be unrolled and counts from 0 to a literal; 0: it is none.
int64_t unrolled_trips(const LoopFor& loop);

// Calls fn(block) on the blocks of a statement of control flow, but for pipelines, which are expanded by then.
template <class Fn>
void for_each_block(LoopStmt* stmt, const Fn& fn) {
  if (auto* loop = std::get_if<LoopFor>(&stmt->node)) fn(&loop->body);
  if (auto* threads = std::get_if<LoopThreads>(&stmt->node)) fn(&threads->body);
  if (auto* branch = std::get_if<LoopIf>(&stmt->node)) fn(&branch->then_body), fn(&branch->else_body);
}

// Calls fn(statement) on each statement, those of nested blocks included.
template <class Stmt, class Fn>
requires std::same_as<std::remove_const_t<Stmt>, LoopStmt>
void for_each_statement(Stmt& stmt, const Fn& fn) {
  const auto nested = [&fn](auto& body) {
    for (auto& inner : body) for_each_statement(inner, fn);
  };
  fn(stmt);
  if (auto* loop = std::get_if<LoopFor>(&stmt.node)) nested(loop->body);
  if (auto* threads = std::get_if<LoopThreads>(&stmt.node)) nested(threads->body);
  if (auto* branch = std::get_if<LoopIf>(&stmt.node)) nested(branch->then_body), nested(branch->else_body);
  if (auto* pipeline = std::get_if<LoopPipeline>(&stmt.node)) nested(pipeline->produce), nested(pipeline->consume);
}
template <class Block, class Fn>
requires std::same_as<std::remove_const_t<Block>, LoopBlock>
void for_each_statement(Block& body, const Fn& fn) {
  for (auto& stmt : body) for_each_statement(stmt, fn);
}

// Whether a LoopStore to shared memory stands in the statement or in its blocks.
bool stores_to_shared(const LoopStmt& stmt);

// Calls fn(buffer, write) on each access to a buffer that a statement makes itself, not those of nested blocks. Atomics
// count as writes.
template <class Fn>
void for_each_access(const LoopStmt& stmt, const Fn& fn) {
  for_each_expr(stmt, [&](const ir::ExprRef& expr) {
    ir::visit(expr, [&](const ir::ExprRef& node) {
      if (node->kind == ir::ExprKind::kLoad) fn(node->buffer, false);
    });
  });
  if (const auto* store = std::get_if<LoopStore>(&stmt.node)) fn(store->buffer, true);
  if (const auto* atomic = std::get_if<LoopAtomic>(&stmt.node)) fn(atomic->buffer, true);
  if (const auto* intrinsic = std::get_if<LoopIntrinsic>(&stmt.node))
    for (const LoopIntrinsic::Operand& operand : intrinsic->operands) fn(operand.buffer, operand.write);
}

// The bits of kUnpack's table, four of one byte a word: those of the low bytes, then those of the high ones.
std::vector<uint32_t> table_words(const LoopIntrinsic& unpack);

}  // namespace kachel::lowering
