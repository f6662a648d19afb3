// Two blocks that copy for each other, and what goes wrong with them.
#include <doctest/doctest.h>

#include <numeric>

#include "tests/lowering/loop_bench.h"

namespace kachel::lowering::bench {
namespace {

constexpr int kThreads = 32, kSteps = 5;
constexpr int64_t kColumns = 4, kPart = 8, kRows = 2 * kPart, kStage = kRows * kColumns;  // of i32

// One stage, of which each block copies a half to both. Each thread adds up two of its elements a step.
struct Plan {
  bool tell = true;  // the other block of a release
  bool multicast = true;
  bool fence = true;     // reads are over before the copy engine writes
  int64_t arrivals = 2;  // that free a stage
  int64_t tiles = 2;
};
struct Run {
  Simulation simulation;
  bool right = true;
};
Run pair(const Plan& plan, ThreadOrder order) {
  Bench bench(kThreads);
  LoopKernel& kernel = bench.kernel;
  kernel.cluster = 2;
  kernel.rank = variable("rank", DType::I32);
  kernel.producer_threads = 32;
  const auto in = bench.tensor("in", DType::I32, kSteps * kStage), out = bench.tensor("out", DType::I32, 2 * kThreads);
  std::iota(bench.data<int32_t>(0), bench.data<int32_t>(0) + kSteps * kStage, 1);
  const auto tile = bench.shared("tile", DType::I32, kStage);
  const auto full = bench.shared("full", DType::I64, 1), empty = bench.shared("empty", DType::I64, 1);
  kernel.phases = {{full, 1, 1}, {empty, 1, plan.arrivals}};
  TensorMap map;
  map.box = {static_cast<int32_t>(kPart), static_cast<int32_t>(kColumns)};
  map.swizzle = static_cast<int32_t>(kColumns * 4);
  kernel.maps = {map};
  const auto sum = bench.registers("sum", DType::I32, 1);
  auto phase = [](Kind kind, const ir::BufferRef& barrier, int64_t immediate, const ExprRef& parity,
                  const ExprRef& guard) {
    LoopIntrinsic node{kind, {{barrier, number(0), 1, true}}, guard};
    node.immediate = immediate;
    if (parity) node.coordinates = {parity};
    return LoopStmt{std::move(node)};
  };
  const ExprRef rank = ir::make_var(kernel.rank);

  LoopFor fill{variable("k", DType::I32), number(0), number(kSteps), false, false, {}};
  const ExprRef ahead = ir::make_var(fill.var);
  fill.body.push_back(phase(Kind::kPhaseWait, empty, 0, (ahead + 1) % 2, nullptr));
  fill.body.push_back(phase(Kind::kPhaseExpect, full, plan.multicast ? kStage * 4 : kStage * 2, nullptr, nullptr));
  LoopIntrinsic box{Kind::kBulkCopy, {}, nullptr};
  box.multicast = plan.multicast;
  box.coordinates = {number(0), ahead * kRows + rank * kPart};
  box.operands = {
      {tile, rank * (kPart * kColumns), kPart * kColumns, true}, {in, number(0), 1, false}, {full, number(0), 1, true}};
  fill.body.push_back({std::move(box)});
  kernel.producer.push_back({std::move(fill)});

  bench.each({Bench::store(sum, number(0), number(0))});
  LoopFor loop{variable("k", DType::I32), number(0), number(kSteps), false, false, {}};
  loop.body.push_back(phase(Kind::kPhaseWait, full, 0, ir::make_var(loop.var) % 2, nullptr));
  const ExprRef near = Bench::load(tile, bench.thread()), far = Bench::load(tile, bench.thread() + kThreads);
  loop.body.push_back(Bench::each({Bench::store(sum, number(0), Bench::load(sum, number(0)) + near + far)}, kThreads));
  if (plan.fence) loop.body.push_back(Bench::marker(Kind::kProxyFence));
  loop.body.push_back(phase(Kind::kPhaseArrive, empty, 0, nullptr, ir::make_bool(plan.tell)));
  bench.add({std::move(loop)});
  const ExprRef place = ir::make_cast({DType::I32, nullptr}, ir::make_var(kernel.tile)) * kThreads + bench.thread();
  bench.each({Bench::store(out, place, Bench::load(sum, number(0)))});

  Run result{bench.run(order, plan.tiles, 2,
                       {{bench.data<int32_t>(0), DType::I32, {kSteps * kRows, kColumns}, {kColumns, 1}}})};
  for (int64_t at = 0; at < plan.tiles * kThreads; ++at) {
    int64_t wanted = 0;
    for (int64_t step = 0; step < kSteps; ++step) wanted += 2 * (step * kStage + at % kThreads + 1) + kThreads;
    result.right &= bench.data<int32_t>(1)[at] == wanted;
  }
  return result;
}

constexpr ThreadOrder kOrders[] = {ThreadOrder::kForward, ThreadOrder::kReversed, ThreadOrder::kShuffled};

TEST_CASE("two blocks copy for each other") {
  for (ThreadOrder order : kOrders) {
    const Run run = pair({}, order);
    CHECK_MESSAGE(run.simulation.status.ok(), run.simulation.status.message());
    CHECK_MESSAGE(run.simulation.races == 0, run.simulation.first_race);
    CHECK(run.right);
  }
}

TEST_CASE("a copy that reaches one block only") {
  for (ThreadOrder order : kOrders) CHECK(!pair({.multicast = false}, order).right);
}

TEST_CASE("a block that does not tell its neighbour of a release") {
  bool overwritten = false;
  for (ThreadOrder order : kOrders) {
    const Run run = pair({.tell = false}, order);
    overwritten |= run.simulation.races > 0 || !run.simulation.status.ok() || !run.right;
  }
  CHECK(overwritten);
}

TEST_CASE("a neighbour's copy to what has been read and not fenced") {
  for (ThreadOrder order : kOrders) CHECK(pair({.fence = false}, order).simulation.races > 0);
}

TEST_CASE("a stage that awaits more than it is told") {
  for (ThreadOrder order : kOrders)
    CHECK(pair({.arrivals = 3}, order).simulation.status.message().find("nothing ends") != std::string::npos);
}

TEST_CASE("a neighbour that has no tile") {
  for (ThreadOrder order : kOrders) CHECK(!pair({.tiles = 1}, order).simulation.status.ok());
}

}  // namespace
}  // namespace kachel::lowering::bench
