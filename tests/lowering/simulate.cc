// A thread is a machine of its own: its values, its registers and a stack of the block-level loops and branches that it
// is in, so that it can stop at a barrier and go on later. Thread loops hold no barrier and run to their end at once.
//
// Races are found with a shadow of every byte of shared, workspace and tensor memory: which thread wrote it and which
// read it since the last barrier. Barriers are numbered through all blocks, so that a shadow of an earlier one is
// stale.
#include "tests/lowering/simulate.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <random>

#include "tests/lowering/simulated_program.h"

namespace kachel::lowering {
namespace {

using ir::DType;
using ir::Op;
using ir::Scalar;

constexpr int64_t kMostSteps = int64_t{1} << 33;

struct Shadow {
  static constexpr int32_t kMany = -2, kAtomic = -3;
  uint32_t written_at = 0, read_at = 0;  // barrier number; 0: never
  int32_t writer = -1, reader = -1;
};

struct Region {  // memory with its shadow
  uint8_t* data = nullptr;
  std::vector<Shadow> shadows;
};

struct Level {
  const SimBlock* block;
  size_t at = 0;
  const SimStmt* loop = nullptr;
  int64_t value = 0, end = 0;
};

struct Thread {
  int32_t number = 0;
  std::vector<Scalar> values;
  std::vector<uint8_t> registers;
  std::vector<Level> stack;
};

class Machine {
 public:
  Machine(const LoopKernel& kernel, const std::vector<int64_t>& params, const std::vector<Allocation>& memory,
          uint32_t blocks)
      : kernel_(kernel), program_(compile(kernel, blocks)), params_(params) {
    for (const Allocation& allocation : memory) {
      globals_.push_back({static_cast<uint8_t*>(allocation.data), {}});
      globals_.back().shadows.resize(allocation.bytes);
    }
    arena_.assign(static_cast<size_t>(kernel.shared_bytes), 0);
    workspace_.assign(static_cast<size_t>(kernel.workspace_bytes), 0);
    shared_.data = arena_.data();
    shared_.shadows.resize(arena_.size());
    spilled_.data = workspace_.data();
    spilled_.shadows.resize(workspace_.size());
    for (const SimBuffer& buffer : program_.buffers) region_of_.push_back(find_region(buffer));
  }

  Simulation run(uint32_t blocks, ThreadOrder order) {
    std::vector<uint32_t> sequence(blocks);
    for (uint32_t i = 0; i < blocks; ++i) sequence[i] = order == ThreadOrder::kForward ? i : blocks - 1 - i;
    for (uint32_t block : sequence) {
      if (!result_.status.ok()) break;
      run_block(block, order);
    }
    return std::move(result_);
  }

 private:
  void fail(const std::string& message) {
    if (result_.status.ok()) result_.status = internal(message);
  }
  bool stopped() const { return !result_.status.ok(); }

  Region* find_region(const SimBuffer& buffer) {
    if (buffer.kind == SimBuffer::Kind::kShared) return &shared_;
    if (buffer.kind == SimBuffer::Kind::kWorkspace) return &spilled_;
    if (buffer.kind == SimBuffer::Kind::kRegister) return nullptr;
    const auto* pointer = std::bit_cast<uint8_t*>(params_[static_cast<size_t>(buffer.param)]);
    for (Region& region : globals_)
      if (pointer == region.data) return &region;
    return nullptr;  // the workspace itself
  }

  void start(Thread& thread, int32_t number, uint32_t block) {
    thread.number = number;
    thread.values.assign(static_cast<size_t>(program_.slots), Scalar{});
    // Neither registers nor shared memory hold anything that a program may rely on.
    thread.registers.assign(static_cast<size_t>(program_.register_bytes), 0x7F);
    thread.stack.assign(1, Level{&program_.body});
    for (size_t i = 0; i < program_.param_slots.size(); ++i) {
      if (program_.param_slots[i] < 0) continue;
      const DType type = ir::compute_type(kernel_.params[i].var->type.dtype);
      Scalar& value = thread.values[static_cast<size_t>(program_.param_slots[i])];
      value.type = type;
      if (type == DType::F32)
        value.f = std::bit_cast<float>(static_cast<uint32_t>(params_[i]));
      else
        value.i = ir::wrap_integer(type, params_[i]);
    }
    thread.values[static_cast<size_t>(program_.first_tile)] = {DType::I64, block, 0};
  }

  void run_block(uint32_t block, ThreadOrder order) {
    std::fill(arena_.begin(), arena_.end(), 0x7F);
    std::fill(workspace_.begin(), workspace_.end(), 0x7F);
    std::vector<Thread> threads(static_cast<size_t>(kernel_.threads));
    for (size_t i = 0; i < threads.size(); ++i) start(threads[i], static_cast<int32_t>(i), block);
    std::vector<size_t> turn(threads.size());
    for (size_t i = 0; i < turn.size(); ++i) turn[i] = order == ThreadOrder::kReversed ? turn.size() - 1 - i : i;
    while (!stopped()) {
      ++barrier_;
      if (order == ThreadOrder::kShuffled) std::shuffle(turn.begin(), turn.end(), random_);
      const SimStmt* reached = run_to_barrier(threads[turn[0]]);
      for (size_t i = 1; i < turn.size() && !stopped(); ++i)
        if (run_to_barrier(threads[turn[i]]) != reached)
          fail(fmt::format("threads {} and {} wait at different barriers", turn[0], turn[i]));
      if (!reached) return;
    }
  }

  // Null: the thread is done.
  const SimStmt* run_to_barrier(Thread& thread) {
    while (!thread.stack.empty() && !stopped()) {
      Level& top = thread.stack.back();
      if (top.at == top.block->size()) {
        if (top.loop && (top.value += top.loop->step) < top.end) {
          thread.values[static_cast<size_t>(top.loop->slot)] = {DType::I64, top.value, 0};
          top.at = 0;
        } else {
          thread.stack.pop_back();
        }
        continue;
      }
      const SimStmt& stmt = (*top.block)[top.at++];
      if (stmt.kind == SimStmt::Kind::kBarrier) return &stmt;
      if (stmt.kind == SimStmt::Kind::kFor) {
        const int64_t begin = eval(stmt.a, thread).i, end = eval(stmt.b, thread).i;
        if (begin >= end) continue;
        thread.values[static_cast<size_t>(stmt.slot)] = {DType::I64, begin, 0};
        thread.stack.push_back({&stmt.body, 0, &stmt, begin, end});
      } else if (stmt.kind == SimStmt::Kind::kIf) {
        thread.stack.push_back({eval(stmt.a, thread).i ? &stmt.body : &stmt.otherwise});
      } else {
        execute(stmt, thread);
      }
    }
    return nullptr;
  }

  void execute(const SimBlock& block, Thread& thread) {
    for (const SimStmt& stmt : block) {
      if (stopped()) return;
      execute(stmt, thread);
    }
  }
  void execute(const SimStmt& stmt, Thread& thread) {
    switch (stmt.kind) {
      case SimStmt::Kind::kLet: {
        const Scalar value = eval(stmt.a, thread);
        thread.values[static_cast<size_t>(stmt.slot)] = value;
        break;
      }
      case SimStmt::Kind::kStore: {
        const int64_t at = eval(stmt.a, thread).i;
        const Scalar value = eval(stmt.b, thread);
        if (uint8_t* base = access(stmt.buffer, at, thread, Access::kWrite))
          ir::store_element(type_of(stmt.buffer), base, at, value);
        break;
      }
      case SimStmt::Kind::kAtomic: {
        const int64_t at = eval(stmt.a, thread).i;
        const Scalar value = ir::convert(eval(stmt.b, thread), type_of(stmt.buffer));  // as the emitters do
        constexpr Op kOps[] = {Op::kAdd, Op::kAdd, Op::kMax, Op::kMin};
        if (uint8_t* base = access(stmt.buffer, at, thread, Access::kAtomic)) {
          const Scalar both[] = {ir::load_element(type_of(stmt.buffer), base, at), value};
          ir::store_element(type_of(stmt.buffer), base, at, ir::apply_op(kOps[static_cast<int>(stmt.atomic)], both));
        }
        break;
      }
      case SimStmt::Kind::kFor: {
        const int64_t begin = eval(stmt.a, thread).i, end = eval(stmt.b, thread).i;
        for (int64_t i = begin; i < end && !stopped(); ++i) {
          thread.values[static_cast<size_t>(stmt.slot)] = {DType::I64, i, 0};
          execute(stmt.body, thread);
        }
        break;
      }
      case SimStmt::Kind::kThreads:
        for (int64_t slot = 0, index = thread.number; index < stmt.extent && !stopped();
             ++slot, index += kernel_.threads) {
          thread.values[static_cast<size_t>(stmt.slot)] = {DType::I32, index, 0};
          thread.values[static_cast<size_t>(stmt.second)] = {DType::I32, slot, 0};
          execute(stmt.body, thread);
        }
        break;
      case SimStmt::Kind::kIf:
        execute(eval(stmt.a, thread).i ? stmt.body : stmt.otherwise, thread);
        break;
      case SimStmt::Kind::kBarrier:
        fail("a barrier inside a thread loop");
        break;
    }
  }

  DType type_of(int buffer) const { return program_.buffers[static_cast<size_t>(buffer)].type; }

  enum class Access : uint8_t { kRead, kWrite, kAtomic };
  // Where the buffer begins; null, and a failure, if the element is outside of it.
  uint8_t* access(int number, int64_t at, Thread& thread, Access kind) {
    if (++steps_ > kMostSteps) fail("the simulator's step limit is exceeded");
    const SimBuffer& buffer = program_.buffers[static_cast<size_t>(number)];
    const int width = ir::bits(buffer.type);
    const int64_t first = width == 4 ? at >> 1 : at * (width / 8), bytes = width == 4 ? 1 : width / 8;
    if (buffer.kind == SimBuffer::Kind::kRegister) {
      if (at < 0 || at >= buffer.elements) return outside(buffer, at);
      return thread.registers.data() + buffer.offset;
    }
    Region* region = region_of_[static_cast<size_t>(number)];
    const bool global = buffer.kind == SimBuffer::Kind::kGlobal;
    const int64_t limit = !region  ? 0
                          : global ? static_cast<int64_t>(region->shadows.size())
                                   : ir::storage_bytes(buffer.type, buffer.elements);
    if (at < 0 || first + bytes > limit) return outside(buffer, at);
    const char* conflict = nullptr;
    int32_t other = -1;
    for (int64_t i = 0; i < bytes; ++i)
      note(region->shadows[static_cast<size_t>(buffer.offset + first + i)], thread.number, kind, &conflict, &other);
    if (conflict && result_.races++ == 0)
      result_.first_race = fmt::format("thread {} {} element {} of `{}` that thread {} has {}", thread.number,
                                       kind == Access::kRead ? "reads" : "writes", at, buffer.name, other, conflict);
    return region->data + buffer.offset;
  }
  uint8_t* outside(const SimBuffer& buffer, int64_t at) {
    fail(fmt::format("element {} of `{}` is outside of its memory", at, buffer.name));
    return nullptr;
  }

  // Sets `conflict` to what another thread has done to this byte.
  void note(Shadow& shadow, int32_t thread, Access kind, const char** conflict, int32_t* other) {
    const bool written = shadow.written_at == barrier_, read = shadow.read_at == barrier_;
    const bool both_atomic = kind == Access::kAtomic && shadow.writer == Shadow::kAtomic;
    if (written && shadow.writer != thread && !both_atomic) {
      *conflict = "written";
      *other = shadow.writer;
    }
    if (kind == Access::kRead) {
      shadow.reader = read && shadow.reader != thread ? Shadow::kMany : thread;
      shadow.read_at = barrier_;
      return;
    }
    if (read && shadow.reader != thread) {
      *conflict = "read";
      *other = shadow.reader;
    }
    shadow.writer = kind == Access::kAtomic ? Shadow::kAtomic : thread;
    shadow.written_at = barrier_;
  }

  Scalar eval(int number, Thread& thread) {
    const SimNode& node = program_.nodes[static_cast<size_t>(number)];
    switch (node.kind) {
      case ir::ExprKind::kInt:
      case ir::ExprKind::kBool:
      case ir::ExprKind::kFloat:
        return node.constant;
      case ir::ExprKind::kVar:
        return thread.values[static_cast<size_t>(node.slot)];
      case ir::ExprKind::kCast:
        return ir::convert(eval(node.args[0], thread), node.cast);
      case ir::ExprKind::kLoad: {
        const int64_t at = eval(node.args[0], thread).i;
        const DType type = type_of(node.buffer);
        const uint8_t* base = access(node.buffer, at, thread, Access::kRead);
        return base ? ir::load_element(type, base, at) : Scalar{ir::compute_type(type), 0, 0};
      }
      case ir::ExprKind::kApply:
        return apply(node, thread);
      case ir::ExprKind::kReduce:
        break;
    }
    fail("a reduction in loop IR");
    return {};
  }

  Scalar apply(const SimNode& node, Thread& thread) {
    const Scalar first = eval(node.args[0], thread);
    // The operands that are not needed are not evaluated: they may be guarded loads.
    if (node.op == Op::kSelect) return eval(node.args[first.i ? 1 : 2], thread);
    if ((node.op == Op::kAnd && !first.i) || (node.op == Op::kOr && first.i)) return first;
    Scalar args[3] = {first};
    for (int i = 1; i < node.arity; ++i) args[i] = eval(node.args[i], thread);
    if (first.type == DType::I64) {  // index arithmetic
      const auto a = static_cast<uint64_t>(first.i), b = static_cast<uint64_t>(args[1].i);
      if (node.op == Op::kAdd) return {DType::I64, static_cast<int64_t>(a + b), 0};
      if (node.op == Op::kMul) return {DType::I64, static_cast<int64_t>(a * b), 0};
      if (node.op == Op::kLt) return {DType::Bool, first.i < args[1].i, 0};
      if (node.op == Op::kGe) return {DType::Bool, first.i >= args[1].i, 0};
    }
    return ir::apply_op(node.op, {args, static_cast<size_t>(node.arity)});
  }

  const LoopKernel& kernel_;
  const SimProgram program_;
  const std::vector<int64_t>& params_;
  std::vector<Region> globals_;
  Region shared_, spilled_;
  std::vector<uint8_t> arena_, workspace_;
  std::vector<Region*> region_of_;  // by buffer
  uint32_t barrier_ = 0;
  int64_t steps_ = 0;
  std::mt19937 random_{1};
  Simulation result_;
};

}  // namespace

Simulation simulate(const LoopKernel& kernel, const std::vector<int64_t>& params, const std::vector<Allocation>& memory,
                    uint32_t blocks, ThreadOrder order) {
  return Machine(kernel, params, memory, blocks).run(blocks, order);
}

}  // namespace kachel::lowering
