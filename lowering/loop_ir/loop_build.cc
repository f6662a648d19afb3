#include "lowering/loop_ir/loop_build.h"

#include <algorithm>
#include <cmath>

#include "ir/numerics.h"

namespace kachel::lowering {

using ir::ExprRef;

ExprRef int32(int64_t value) {
  return ir::make_int(value, ir::DType::I32);
}
ExprRef int64(int64_t value) {
  return ir::make_int(value, ir::DType::I64);
}
ExprRef apply(ir::Op op, const ExprRef& a, const ExprRef& b) {
  return ir::make_typed(op, {a, b});
}
ExprRef plus(const ExprRef& a, const ExprRef& b) {
  return a ? apply(ir::Op::kAdd, a, b) : b;
}
ExprRef times(const ExprRef& value, int64_t factor) {
  return factor == 1 ? value : apply(ir::Op::kMul, value, ir::make_int(factor, value->type));
}

ExprRef named(const char* name, const ExprRef& value, LoopBlock* out) {
  auto var = std::make_shared<ir::Var>(ir::Var{ir::VarKind::kLet, name, {value->type, nullptr}, {}});
  out->push_back({LoopLet{var, value}});
  return ir::make_var(var);
}
LoopStmt marker(LoopIntrinsic::Kind kind, int64_t immediate) {
  LoopIntrinsic intrinsic{kind, {}, nullptr};
  intrinsic.immediate = immediate;
  return {std::move(intrinsic)};
}

ir::BufferRef add_registers(LoopKernel* kernel, const char* name, ir::DType type, int64_t elements) {
  auto registers = std::make_shared<ir::Buffer>(
      ir::Buffer{name, ir::Scope::kRegister, ir::Direction::kInOut, {type, nullptr}, {}, {}});
  kernel->buffers.push_back({registers, elements});
  return registers;
}
int64_t register_words(const LoopKernel& kernel) {
  int64_t words = 0;
  for (const LoopBuffer& buffer : kernel.buffers)
    if (buffer.buffer->scope == ir::Scope::kRegister)
      words += (buffer.elements * ir::bits(buffer.buffer->type.dtype) + 31) / 32;
  return words;
}
int64_t registers_alike(const LoopKernel& kernel) {
  constexpr int64_t kRegisterFile = 65536, kMostOfThread = 255;
  return std::min(kRegisterFile / (kernel.block_threads() + kernel.producer_threads), kMostOfThread);
}

bool stores_to_shared(const LoopStmt& stmt) {
  bool stores = false;
  for_each_statement(stmt, [&](const LoopStmt& inner) {
    const auto* store = std::get_if<LoopStore>(&inner.node);
    stores |= store && store->buffer->scope == ir::Scope::kShared;
  });
  return stores;
}

const ir::Expr* moved_element(const LoopStore& store) {
  const ir::DType type = store.buffer->type.dtype;
  const ir::Expr* value = store.value.get();
  if (value->kind == ir::ExprKind::kApply && value->op == ir::Op::kSelect) {
    const ExprRef& other = value->args[2];
    if (other->kind != ir::ExprKind::kFloat || other->float_value != 0 || std::signbit(other->float_value))
      return nullptr;
    value = value->args[1].get();
  }
  const bool moves = value->kind == ir::ExprKind::kLoad && value->buffer->type.dtype == type;
  return moves && ir::is_float(type) && ir::bits(type) < 32 ? value : nullptr;
}
LoopFor without_body(const LoopFor& loop) {
  return {loop.var, loop.begin, loop.end, loop.unroll, loop.reassociate, {}, loop.apart, loop.ahead, loop.disjoint};
}
int64_t unrolled_trips(const LoopFor& loop) {
  const bool counts = loop.unroll && ir::is_int(loop.begin, 0) && ir::is_const(loop.end);
  return counts ? std::max<int64_t>(loop.end->int_value, 0) : 0;
}

std::vector<uint32_t> table_words(const LoopIntrinsic& unpack) {
  std::vector<uint32_t> words;
  for (const int byte : {0, 8})
    for (size_t first = 0; first < unpack.table.size(); first += 4) {
      uint32_t word = 0;
      for (size_t i = 0; i < 4; ++i)
        word |= (ir::encode_float(unpack.type, unpack.table[first + i]) >> byte & 255u) << 8 * i;
      words.push_back(word);
    }
  return words;
}

}  // namespace kachel::lowering
