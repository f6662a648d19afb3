// Blocks that copy for each other, and what goes wrong with them.
#include <doctest/doctest.h>

#include <numeric>

#include "tests/lowering/loop_bench.h"

namespace kachel::lowering::bench {
namespace {

constexpr int kThreads = 32, kSteps = 5;
constexpr int64_t kColumns = 4, kRows = 64, kStage = kRows * kColumns;  // of i32
constexpr uint64_t kThemselves = 0x8040201008040201;

// One stage, of which each block copies a part to all. Each thread adds up two of its elements a step.
struct Plan {
  int blocks = 2;
  uint64_t peers = 0x0303;  // of the copies
  uint64_t told = 0x0303;   // of a release
  bool fence = true;        // reads are over before the copy engine writes
  int64_t arrivals = 2;     // that free a stage
  int64_t tiles = 2;
};
struct Run {
  Simulation simulation;
  bool right = true;
};
Run share(const Plan& plan, ThreadOrder order) {
  const int64_t part = kRows / plan.blocks;
  Bench bench(kThreads);
  LoopKernel& kernel = bench.kernel;
  kernel.cluster = {plan.blocks};
  kernel.rank = variable("rank", DType::I32);
  kernel.producer_threads = 32;
  const auto in = bench.tensor("in", DType::I32, kSteps * kStage),
             out = bench.tensor("out", DType::I32, plan.blocks * kThreads);
  std::iota(bench.data<int32_t>(0), bench.data<int32_t>(0) + kSteps * kStage, 1);
  const auto tile = bench.shared("tile", DType::I32, kStage);
  const auto full = bench.shared("full", DType::I64, 1), empty = bench.shared("empty", DType::I64, 1);
  kernel.phases = {{full, 1, 1}, {empty, 1, plan.arrivals}};
  TensorMap map;
  map.box = {static_cast<int32_t>(part), static_cast<int32_t>(kColumns)};
  map.swizzle = static_cast<int32_t>(kColumns * 4);
  kernel.maps = {map};
  const auto sum = bench.registers("sum", DType::I32, 1);
  auto phase = [](Kind kind, const ir::BufferRef& barrier, int64_t immediate, const ExprRef& parity) {
    LoopIntrinsic node{kind, {{barrier, number(0), 1, true}}, nullptr};
    node.immediate = immediate;
    if (parity) node.coordinates = {parity};
    return LoopStmt{std::move(node)};
  };
  const ExprRef rank = ir::make_var(kernel.rank);

  LoopFor fill{variable("k", DType::I32), number(0), number(kSteps), false, false, {}};
  const ExprRef ahead = ir::make_var(fill.var);
  fill.body.push_back(phase(Kind::kPhaseWait, empty, 0, (ahead + 1) % 2));
  fill.body.push_back(
      phase(Kind::kPhaseExpect, full, plan.peers == kThemselves ? part * kColumns * 4 : kStage * 4, nullptr));
  LoopIntrinsic box{Kind::kBulkCopy, {}, nullptr};
  box.peers = plan.peers;
  box.coordinates = {number(0), ahead * kRows + rank * part};
  box.operands = {
      {tile, rank * (part * kColumns), part * kColumns, true}, {in, number(0), 1, false}, {full, number(0), 1, true}};
  fill.body.push_back({std::move(box)});
  kernel.producer.push_back({std::move(fill)});

  bench.each({Bench::store(sum, number(0), number(0))});
  LoopFor loop{variable("k", DType::I32), number(0), number(kSteps), false, false, {}};
  loop.body.push_back(phase(Kind::kPhaseWait, full, 0, ir::make_var(loop.var) % 2));
  const ExprRef near = Bench::load(tile, bench.thread()), far = Bench::load(tile, bench.thread() + kThreads);
  loop.body.push_back(Bench::each({Bench::store(sum, number(0), Bench::load(sum, number(0)) + near + far)}, kThreads));
  if (plan.fence) loop.body.push_back(Bench::marker(Kind::kProxyFence));
  loop.body.push_back(phase(Kind::kPhaseArrive, empty, 0, nullptr));
  std::get<LoopIntrinsic>(loop.body.back().node).peers = plan.told;
  bench.add({std::move(loop)});
  const ExprRef place = ir::make_cast({DType::I32, nullptr}, ir::make_var(kernel.tile)) * kThreads + bench.thread();
  bench.each({Bench::store(out, place, Bench::load(sum, number(0)))});

  Run result{bench.run(order, plan.tiles, static_cast<uint32_t>(plan.blocks),
                       {{bench.data<int32_t>(0), DType::I32, {kSteps * kRows, kColumns}, {kColumns, 1}}})};
  for (int64_t at = 0; at < plan.tiles * kThreads; ++at) {
    int64_t wanted = 0;
    for (int64_t step = 0; step < kSteps; ++step) wanted += 2 * (step * kStage + at % kThreads + 1) + kThreads;
    result.right &= bench.data<int32_t>(1)[at] == wanted;
  }
  return result;
}

constexpr ThreadOrder kOrders[] = {ThreadOrder::kForward, ThreadOrder::kReversed, ThreadOrder::kShuffled};

void check_right(const Plan& plan) {
  for (ThreadOrder order : kOrders) {
    const Run run = share(plan, order);
    CHECK_MESSAGE(run.simulation.status.ok(), run.simulation.status.message());
    CHECK_MESSAGE(run.simulation.races == 0, run.simulation.first_race);
    CHECK(run.right);
  }
}

TEST_CASE("blocks copy for each other") {
  check_right({});
  constexpr uint64_t kEight = ~uint64_t{0};
  check_right({.blocks = 8, .peers = kEight, .told = kEight, .arrivals = 8, .tiles = 8});
}

TEST_CASE("a copy that reaches one block only") {
  for (ThreadOrder order : kOrders) CHECK(!share({.peers = kThemselves}, order).right);
}

TEST_CASE("a block that does not tell its neighbour of a release") {
  for (ThreadOrder order : kOrders) {
    CHECK(share({.told = kThemselves}, order).simulation.status.message().find("nothing ends") != std::string::npos);
    const Run run = share({.told = kThemselves, .arrivals = 1}, order);
    CHECK((run.simulation.races > 0 || !run.simulation.status.ok() || !run.right));
  }
}

TEST_CASE("a neighbour's copy to what has been read and not fenced") {
  for (ThreadOrder order : kOrders) CHECK(share({.fence = false}, order).simulation.races > 0);
}

TEST_CASE("a stage that awaits more than it is told") {
  for (ThreadOrder order : kOrders)
    CHECK(share({.arrivals = 3}, order).simulation.status.message().find("nothing ends") != std::string::npos);
}

TEST_CASE("a neighbour that has no tile") {
  for (ThreadOrder order : kOrders) CHECK(!share({.tiles = 1}, order).simulation.status.ok());
}

TEST_CASE("a peer that there is not") {
  const Run run = share({.peers = 0x0703}, ThreadOrder::kForward);
  CHECK(run.simulation.status.message().find("no block of the cluster") != std::string::npos);
}

TEST_CASE("who shares what in a cluster, and how many tiles fill its grid") {
  const ClusterShape shape = {1, 4, 2};
  CHECK(blocks_of(shape) == 8);
  CHECK(blocks_of({}) == 1);
  CHECK(rank_step(shape, 1) == 2);
  CHECK(rank_step(shape, 2) == 1);
  CHECK(sharers(shape, {2}) == 0xc0c030300c0c0303);  // pairs
  CHECK(sharers(shape, {1}) == 0xaa55aa55aa55aa55);  // every second block
  CHECK(sharers(shape, {1, 2}) == ~uint64_t{0});     // all
  CHECK(sharers(shape, {0}) == 0x8040201008040201);  // itself
  CHECK(filled_tiles(shape, {3, 5, 3}) == 3 * 8 * 4);
  CHECK(filled_tiles({}, {3, 5}) == 15);
  CHECK(filled_tiles(shape, {3, 0, 3}) == 0);
}

}  // namespace
}  // namespace kachel::lowering::bench
