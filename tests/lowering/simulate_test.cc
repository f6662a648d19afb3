// What the simulator notices, on loops written by hand.
#include "tests/lowering/simulate.h"

#include <doctest/doctest.h>

#include <bit>
#include <numeric>

#include "ir/expr.h"

namespace kachel::lowering {
namespace {

using ir::DType;
using ir::ExprRef;
using ir::Op;

constexpr int kThreads = 32;

ir::VarRef variable(const char* name, DType type) {
  return std::make_shared<ir::Var>(ir::Var{ir::VarKind::kLet, name, {type, nullptr}, {}});
}
ExprRef operator+(const ExprRef& a, int b) {
  return ir::make_typed(Op::kAdd, {a, ir::make_int(b, a->type)});
}
ExprRef operator-(int a, const ExprRef& b) {
  return ir::make_typed(Op::kSub, {ir::make_int(a, b->type), b});
}

// One block of 32 threads with `out`: i32[32] in global and `tile`: i32[32] in shared memory.
struct Bench {
  LoopKernel kernel;
  ir::BufferRef out, tile;
  ir::VarRef index = variable("e", DType::I32), slot = variable("r", DType::I32);
  ExprRef e = ir::make_var(index);
  std::vector<int32_t> memory = std::vector<int32_t>(kThreads, -1);

  Bench() {
    auto buffer = [](const char* name, ir::Scope scope) {
      return std::make_shared<ir::Buffer>(
          ir::Buffer{name, scope, ir::Direction::kInOut, {DType::I32, nullptr}, {ir::make_int(kThreads)}, {}});
    };
    out = buffer("out", ir::Scope::kGlobal);
    tile = buffer("tile", ir::Scope::kShared);
    kernel.threads = kThreads;
    kernel.tile = variable("t", DType::I64);
    kernel.tiles = variable("tiles", DType::I64);
    kernel.params.push_back({{Slot::Kind::kPointer, 0, 0}, nullptr, out});
    kernel.params.push_back({{Slot::Kind::kBlocks, 0, 0}, kernel.tiles, nullptr});
    kernel.buffers.push_back({tile, kThreads, 0});
    kernel.shared_bytes = kThreads * 4;
  }
  ExprRef load(const ExprRef& at) const { return ir::make_load(tile, {at}); }
  void each(std::vector<LoopStmt> body) {
    kernel.body.push_back({LoopThreads{variable("e", DType::I32), slot, kThreads, false, {}}});
    auto& threads = std::get<LoopThreads>(kernel.body.back().node);
    threads.index = index;
    threads.body = std::move(body);
  }
  void barrier() { kernel.body.push_back({LoopBarrier{}}); }
  Simulation run(ThreadOrder order, int64_t tiles = 1) {
    return simulate(kernel, {std::bit_cast<int64_t>(memory.data()), tiles}, {{memory.data(), memory.size() * 4}}, 1,
                    order);
  }
};

// tile[e] = e; (barrier;) out[e] = tile[31 - e]
void reverse(Bench& bench, bool with_barrier) {
  bench.each({{LoopStore{bench.tile, bench.e, bench.e}}});
  if (with_barrier) bench.barrier();
  bench.each({{LoopStore{bench.out, bench.e, bench.load(kThreads - 1 - bench.e)}}});
}

TEST_CASE("threads exchange values through shared memory") {
  for (ThreadOrder order : {ThreadOrder::kForward, ThreadOrder::kReversed, ThreadOrder::kShuffled}) {
    Bench bench;
    reverse(bench, true);
    Simulation simulation = bench.run(order);
    CHECK(simulation.status.ok());
    CHECK(simulation.races == 0);
    std::vector<int32_t> wanted(kThreads);
    std::iota(wanted.rbegin(), wanted.rend(), 0);
    CHECK(bench.memory == wanted);
  }
}

TEST_CASE("a missing barrier is a race and gives wrong values") {
  Bench bench;
  reverse(bench, false);
  Simulation simulation = bench.run(ThreadOrder::kForward);
  CHECK(simulation.races == kThreads);
  CHECK(simulation.first_race == "thread 16 writes element 16 of `tile` that thread 15 has read");
  CHECK(bench.memory[0] != kThreads - 1);
}

TEST_CASE("a tile must not begin before other threads have done with the last") {
  Bench bench;
  reverse(bench, true);
  CHECK(bench.run(ThreadOrder::kForward, 2).first_race ==
        "thread 16 reads element 15 of `tile` that thread 15 has written");
  bench.barrier();
  CHECK(bench.run(ThreadOrder::kForward, 2).races == 0);
}

TEST_CASE("two threads that write one element") {
  Bench bench;
  bench.each({{LoopStore{bench.tile, ir::make_int(3, DType::I32), bench.e}}});
  CHECK(bench.run(ThreadOrder::kReversed).first_race ==
        "thread 30 writes element 3 of `tile` that thread 31 has written");
}

TEST_CASE("atomics may meet each other but not reads") {
  Bench bench;
  const ExprRef first = ir::make_int(0, DType::I32);
  bench.memory[0] = 0;
  bench.each({{LoopAtomic{bench.out, first, ir::AtomicOp::kAdd, bench.e}}});
  Simulation simulation = bench.run(ThreadOrder::kShuffled);
  CHECK(simulation.races == 0);
  CHECK(bench.memory[0] == kThreads * (kThreads - 1) / 2);
  bench.each({{LoopStore{bench.tile, bench.e, ir::make_load(bench.out, {first})}}});
  CHECK(bench.run(ThreadOrder::kForward).races > 0);
}

TEST_CASE("an access outside of its buffer") {
  for (bool global : {false, true}) {
    Bench bench;
    bench.each({{LoopStore{global ? bench.out : bench.tile, bench.e + 1, bench.e}}});
    CHECK(bench.run(ThreadOrder::kForward).status.message() ==
          (global ? "element 32 of `out` is outside of its memory" : "element 32 of `tile` is outside of its memory"));
  }
}

// if (tile[0] == the value of the last thread) barrier
TEST_CASE("threads that part ways before a barrier") {
  Bench bench;
  const ExprRef first = ir::make_int(0, DType::I32);
  bench.each({{LoopIf{ir::make_typed(Op::kEq, {bench.e, ir::make_int(7, DType::I32)}),
                      {{LoopStore{bench.tile, first, bench.e}}},
                      {}}}});
  LoopBlock waits;
  waits.push_back({LoopBarrier{}});
  bench.kernel.body.push_back(
      {LoopIf{ir::make_typed(Op::kEq, {bench.load(first), ir::make_int(7, DType::I32)}), std::move(waits), {}}});
  CHECK(bench.run(ThreadOrder::kForward).status.message() == "threads 0 and 7 wait at different barriers");
}

}  // namespace
}  // namespace kachel::lowering
