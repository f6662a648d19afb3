// Wide and asynchronous copies, and what goes wrong with them.
#include <doctest/doctest.h>

#include <numeric>

#include "tests/lowering/loop_bench.h"

namespace kachel::lowering::bench {
namespace {

constexpr int kThreads = 64, kSteps = 5;
constexpr int64_t kVector = 4, kStage = kThreads * kVector;  // elements of i32

// A pipeline of three stages: each thread copies 16 bytes a step, and adds up those that its opposite has copied.
struct Plan {
  int64_t left_open = 1;  // groups that a wait leaves under way
  bool barrier = true, commit = true;
  int64_t into = 2;  // stages ahead of the one that is read
};
struct Run {
  Simulation simulation;
  bool right = true;
};
Run pipeline(const Plan& plan, ThreadOrder order) {
  Bench bench(kThreads);
  const auto in = bench.tensor("in", DType::I32, kSteps * kStage), out = bench.tensor("out", DType::I32, kStage);
  std::iota(bench.data<int32_t>(0), bench.data<int32_t>(0) + kSteps * kStage, 1);
  const auto tile = bench.shared("tile", DType::I32, 3 * kStage);
  const auto sum = bench.registers("sum", DType::I32, kVector);
  const ExprRef mine = bench.thread() * kVector, opposite = (kThreads - 1 - bench.thread()) * kVector;
  auto fill = [&](const ExprRef& step, const ExprRef& stage, LoopBlock* to) {
    LoopBlock issue;
    issue.push_back(Bench::each(
        {Bench::copy(Kind::kCopyAsync, tile, stage * kStage + mine, in, step * kStage + mine, kVector)}, kThreads));
    to->push_back({LoopIf{step < kSteps, std::move(issue), {}}});
    if (plan.commit) to->push_back(Bench::marker(Kind::kAsyncCommit));
  };
  for (int64_t i = 0; i < kVector; ++i) bench.each({Bench::store(sum, number(i), number(0))});
  for (int64_t stage = 0; stage < 2; ++stage) fill(number(stage), number(stage), &bench.kernel.body);
  LoopFor loop{variable("k", DType::I32), number(0), number(kSteps), false, false, {}};
  const ExprRef k = ir::make_var(loop.var);
  loop.body.push_back(Bench::marker(Kind::kAsyncWait, plan.left_open));
  if (plan.barrier) loop.body.push_back({LoopBarrier{}});
  fill(k + 2, (k + plan.into) % 3, &loop.body);
  std::vector<LoopStmt> add;
  for (int64_t i = 0; i < kVector; ++i)
    add.push_back(
        Bench::store(sum, number(i), Bench::load(sum, number(i)) + Bench::load(tile, k % 3 * kStage + opposite + i)));
  loop.body.push_back(Bench::each(std::move(add), kThreads));
  bench.add({std::move(loop)});
  bench.add(Bench::marker(Kind::kAsyncWait, 0));
  bench.save(out, sum, kVector);
  Run result{bench.run(order)};
  for (int64_t at = 0; at < kStage; ++at) {
    int32_t wanted = 0;
    for (int64_t step = 0; step < kSteps; ++step)
      wanted += static_cast<int32_t>(step * kStage + (kThreads - 1 - at / kVector) * kVector + at % kVector + 1);
    result.right &= bench.data<int32_t>(1)[at] == wanted;
  }
  return result;
}

constexpr ThreadOrder kOrders[] = {ThreadOrder::kForward, ThreadOrder::kReversed, ThreadOrder::kShuffled};

TEST_CASE("a pipeline of asynchronous copies") {
  for (ThreadOrder order : kOrders) {
    const Run run = pipeline({}, order);
    CHECK_MESSAGE(run.simulation.status.ok(), run.simulation.status.message());
    CHECK_MESSAGE(run.simulation.races == 0, run.simulation.first_race);
    CHECK(run.right);
  }
}

TEST_CASE("a wait with one group too few") {
  for (ThreadOrder order : kOrders) {
    const Run run = pipeline({.left_open = 2}, order);
    CHECK(run.simulation.races > 0);
    CHECK(run.simulation.first_race.find("not finished copying") != std::string::npos);
    CHECK(!run.right);
  }
}

TEST_CASE("no barrier after a wait") {
  for (ThreadOrder order : kOrders) CHECK(pipeline({.barrier = false}, order).simulation.races > 0);
}

TEST_CASE("copies into the stage that is read") {
  for (ThreadOrder order : kOrders) {
    const Run run = pipeline({.into = 0}, order);
    CHECK(run.simulation.races > 0);
    CHECK(!run.right);
  }
}

TEST_CASE("copies that belong to no group are never waited for") {
  const Run run = pipeline({.commit = false}, ThreadOrder::kForward);
  CHECK(run.simulation.races > 0);
  CHECK(run.simulation.status.message() == "thread 0 ends before its asynchronous copies");
}

TEST_CASE("where the guard is false zeros are written and nothing is read") {
  for (Kind kind : {Kind::kCopyVector, Kind::kCopyAsync}) {
    Bench bench(32);
    const auto in = bench.tensor("in", DType::I32, 10 * kVector), out = bench.tensor("out", DType::I32, 32 * kVector);
    std::iota(bench.data<int32_t>(0), bench.data<int32_t>(0) + 10 * kVector, 1);
    const auto tile = bench.shared("tile", DType::I32, 32 * kVector);
    const ExprRef at = bench.thread() * kVector;
    bench.each({Bench::copy(kind, tile, at, in, at, kVector, bench.thread() < 10)});
    bench.add(Bench::marker(Kind::kAsyncCommit));
    bench.add(Bench::marker(Kind::kAsyncWait, 0));
    bench.each({Bench::copy(Kind::kCopyVector, out, at, tile, at, kVector, bench.thread() < 31)});
    const Simulation simulation = bench.run();
    REQUIRE_MESSAGE(simulation.status.ok(), simulation.status.message());
    CHECK(simulation.races == 0);
    CHECK(simulation.vector_conflicts == 0);
    for (int i = 0; i < 32 * kVector; ++i) {
      const int32_t wanted = i < 10 * kVector ? i + 1 : 0;
      CHECK(bench.data<int32_t>(1)[i] == wanted);
    }
  }
}

TEST_CASE("a vector's address is a multiple of its size") {
  for (bool in_shared : {false, true}) {
    Bench bench(32);
    const auto in = bench.tensor("in", DType::I32, 64 * kVector);
    const auto tile = bench.shared("tile", DType::I32, 64 * kVector);
    const ExprRef at = bench.thread() * kVector;
    bench.each({Bench::copy(Kind::kCopyVector, tile, in_shared ? at + 2 : at, in, in_shared ? at : at + 1, kVector)});
    CHECK(bench.run(ThreadOrder::kForward).status.message() ==
          (in_shared ? "an access of 16 bytes at element 2 of `tile` is not aligned"
                     : "an access of 16 bytes at element 1 of `in` is not aligned"));
  }
}

TEST_CASE("vectors one row of banks apart meet in the same banks") {
  for (int64_t pitch : {4, 32, 36}) {
    Bench bench(32);
    const auto tile = bench.shared("tile", DType::I32, 32 * 36);
    const auto part = bench.registers("part", DType::I32, kVector);
    bench.each({Bench::copy(Kind::kCopyVector, part, number(0), tile, bench.thread() * pitch, kVector)});
    CHECK(bench.run().vector_conflicts == (pitch == 32 ? 4 * 7 : 0));
  }
}

// The copy is done when it is waited for: here, after its source has changed.
TEST_CASE("a tensor that changes while it is copied") {
  Bench bench(32);
  const auto in = bench.tensor("in", DType::I32, 32 * kVector);
  const auto tile = bench.shared("tile", DType::I32, 32 * kVector);
  const ExprRef at = bench.thread() * kVector;
  bench.each({Bench::copy(Kind::kCopyAsync, tile, at, in, at, kVector)});
  bench.add(Bench::marker(Kind::kAsyncCommit));
  bench.barrier();
  bench.each({Bench::store(in, at, number(1))});
  bench.barrier();
  bench.add(Bench::marker(Kind::kAsyncWait, 0));
  CHECK(bench.run(ThreadOrder::kForward).first_race == "`in` changes while thread 0 copies it");
}

}  // namespace
}  // namespace kachel::lowering::bench
