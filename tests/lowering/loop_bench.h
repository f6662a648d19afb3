// Loops written by hand, to be simulated: tensors in host memory, buffers, short names for expressions and statements.
#pragma once
#include <bit>
#include <deque>

#include "tests/lowering/simulate.h"

namespace kachel::lowering::bench {

using ir::DType;
using ir::ExprRef;
using ir::Op;
using Kind = LoopIntrinsic::Kind;

inline ir::VarRef variable(const char* name, DType type) {
  return std::make_shared<ir::Var>(ir::Var{ir::VarKind::kLet, name, {type, nullptr}, {}});
}
inline ExprRef number(int64_t value) {
  return ir::make_int(value, DType::I32);
}
inline ExprRef operator+(const ExprRef& a, const ExprRef& b) {
  return ir::make_typed(Op::kAdd, {a, b});
}
inline ExprRef operator+(const ExprRef& a, int64_t b) {
  return a + ir::make_int(b, a->type);
}
inline ExprRef operator*(const ExprRef& a, int64_t b) {
  return ir::make_typed(Op::kMul, {a, ir::make_int(b, a->type)});
}
inline ExprRef operator/(const ExprRef& a, int64_t b) {
  return ir::make_typed(Op::kDiv, {a, ir::make_int(b, a->type)});
}
inline ExprRef operator%(const ExprRef& a, int64_t b) {
  return ir::make_typed(Op::kMod, {a, ir::make_int(b, a->type)});
}
inline ExprRef operator-(int64_t a, const ExprRef& b) {
  return ir::make_typed(Op::kSub, {ir::make_int(a, b->type), b});
}
inline ExprRef operator<(const ExprRef& a, int64_t b) {
  return ir::make_typed(Op::kLt, {a, ir::make_int(b, a->type)});
}

class Bench {
 public:
  explicit Bench(int threads) {
    kernel.threads = threads;
    kernel.tile = variable("t", DType::I64);
    kernel.tiles = variable("tiles", DType::I64);
    kernel.thread = variable("thread", DType::I32);
    kernel.params.push_back({{Slot::Kind::kBlocks, 0, 0}, kernel.tiles, nullptr});
  }

  ir::BufferRef tensor(const char* name, DType type, int64_t elements) {
    ir::BufferRef buffer = made(name, ir::Scope::kGlobal, type, elements);
    kernel.params.push_back({{Slot::Kind::kPointer, 0, 0}, nullptr, buffer});
    memory_.emplace_back(static_cast<size_t>(ir::storage_bytes(type, elements)), uint8_t{0xA5});
    return buffer;
  }
  // Of the i-th tensor.
  template <class T>
  T* data(size_t i) {
    return reinterpret_cast<T*>(memory_[i].data());
  }
  ir::BufferRef shared(const char* name, DType type, int64_t elements) {
    ir::BufferRef buffer = made(name, ir::Scope::kShared, type, elements);
    kernel.buffers.push_back({buffer, elements, kernel.shared_bytes});
    kernel.shared_bytes += (ir::storage_bytes(type, elements) + 127) / 128 * 128;
    return buffer;
  }
  ir::BufferRef registers(const char* name, DType type, int64_t elements) {
    ir::BufferRef buffer = made(name, ir::Scope::kRegister, type, elements);
    kernel.buffers.push_back({buffer, elements, 0});
    return buffer;
  }

  ExprRef thread() const { return ir::make_var(kernel.thread); }
  static ExprRef load(const ir::BufferRef& buffer, const ExprRef& at) { return ir::make_load(buffer, {at}); }
  static LoopStmt store(const ir::BufferRef& buffer, const ExprRef& at, const ExprRef& value) {
    return {LoopStore{buffer, at, value}};
  }
  static LoopStmt marker(Kind kind, int64_t immediate = 0) {
    LoopIntrinsic node{kind, {}, nullptr};
    node.immediate = immediate;
    return {std::move(node)};
  }
  static LoopStmt copy(Kind kind, const ir::BufferRef& to, const ExprRef& to_at, const ir::BufferRef& from,
                       const ExprRef& from_at, int64_t elements, const ExprRef& guard = nullptr) {
    LoopIntrinsic node{kind, {}, guard};
    node.operands = {{to, to_at, elements, true}, {from, from_at, elements, false}};
    return {std::move(node)};
  }
  static LoopStmt load_matrix(const ir::BufferRef& to, const ir::BufferRef& from, const ExprRef& row_at, int matrices,
                              bool transpose) {
    LoopIntrinsic node{Kind::kLoadMatrix, {}, nullptr};
    node.immediate = matrices;
    node.transpose = transpose;
    node.type = from->type.dtype;
    node.operands = {{to, number(0), matrices, true}, {from, row_at, 128 / ir::bits(node.type), false}};
    return {std::move(node)};
  }
  static LoopStmt mma(const ir::BufferRef& c, const ir::BufferRef& a, const ir::BufferRef& b, DType type_a,
                      DType type_b) {
    LoopIntrinsic node{Kind::kMma, {}, nullptr};
    node.type = type_a;
    node.type_b = type_b;
    node.operands = {{c, number(0), 4, true}, {a, number(0), 4, false}, {b, number(0), 2, false}};
    return {std::move(node)};
  }

  void add(LoopStmt stmt) { kernel.body.push_back(std::move(stmt)); }
  void barrier() { add({LoopBarrier{}}); }
  // Once in each thread, whose number is thread().
  static LoopStmt each(std::vector<LoopStmt> body, int threads) {
    return {LoopThreads{variable("e", DType::I32), variable("r", DType::I32), threads, false, std::move(body)}};
  }
  void each(std::vector<LoopStmt> body) { add(each(std::move(body), kernel.threads)); }
  // Each thread stores `elements` registers of its own to its part of a tensor.
  void save(const ir::BufferRef& to, const ir::BufferRef& from, int64_t elements) {
    std::vector<LoopStmt> body;
    for (int64_t i = 0; i < elements; ++i) body.push_back(store(to, thread() * elements + i, load(from, number(i))));
    each(std::move(body));
  }

  Simulation run(ThreadOrder order = ThreadOrder::kShuffled, int64_t tiles = 1, uint32_t blocks = 1,
                 const std::vector<MappedTensor>& maps = {}) {
    std::vector<int64_t> params{tiles};
    std::vector<Allocation> memory;
    for (std::vector<uint8_t>& tensor : memory_) {
      params.push_back(std::bit_cast<int64_t>(tensor.data()));
      memory.push_back({tensor.data(), tensor.size()});
    }
    return simulate(kernel, params, memory, blocks, order, maps);
  }

  LoopKernel kernel;

 private:
  static ir::BufferRef made(const char* name, ir::Scope scope, DType type, int64_t elements) {
    return std::make_shared<ir::Buffer>(
        ir::Buffer{name, scope, ir::Direction::kInOut, {type, nullptr}, {ir::make_int(elements)}, {}});
  }
  std::deque<std::vector<uint8_t>> memory_;
};

}  // namespace kachel::lowering::bench
