#include "tuner/measurement.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <set>

#include "simulated_device.h"

namespace kachel::tuner {
namespace {

// A device, its candidates' records and one series of measurements over them.
struct Bench {
  explicit Bench(std::vector<SimulatedCandidate> candidates, uint64_t seed = 1)
      : device(clock, std::move(candidates), seed), records(device.candidates.size()), reporter(progress, clock) {}

  Status measure(int64_t budget_ns = Deadline::kNever) {
    std::vector<Trial> trials;
    for (size_t i = 0; i < records.size(); ++i)
      trials.push_back({i, &records[i], device.candidates[i].forecast.effort});
    Deadline deadline(clock, clock.now_ns(), budget_ns);
    Measurement measurement({device, clock, reporter, limits, rules, deadline}, trials, 1, false);
    Status status = measurement.run();
    cut_short = measurement.cut_short();
    CHECK(measurement.timed_runs() == device.count('r'));
    return status;
  }
  CandidateState state(size_t i) const { return records[i].state; }
  size_t samples(size_t i) const { return records[i].samples.empty() ? 0 : records[i].samples[0].ns.size(); }

  FakeClock clock;
  SimulatedDevice device;
  std::vector<CandidateRecord> records;
  MeasurementLimits limits;
  DecisionRules rules;
  Progress progress;
  Reporter reporter;
  bool cut_short = false;
};

TEST_CASE("rounds go back and forth and every candidate has each neighbour in turn") {
  CHECK(round_order(3, 0) == std::vector<size_t>{0, 1, 2});
  CHECK(round_order(3, 1) == std::vector<size_t>{2, 1, 0});
  CHECK(round_order(3, 2) == std::vector<size_t>{1, 2, 0});
  for (size_t round = 0; round < 20; ++round) {
    std::vector<size_t> order = round_order(7, round);
    CHECK(std::set<size_t>(order.begin(), order.end()).size() == 7);
  }
}

TEST_CASE("runs are interleaved and each starts from flushed caches") {
  Bench bench(bases({10'000, 10'050, 10'100}));
  REQUIRE(bench.measure().ok());
  std::vector<size_t> runs = bench.device.runs();
  // Warm-up and the first four rounds, as the protocol lays them down.
  std::vector<size_t> expected{0, 1, 2, 0, 1, 2, 0, 1, 2, 2, 1, 0, 1, 2, 0, 0, 2, 1};
  REQUIRE(runs.size() > expected.size());
  CHECK(std::vector<size_t>(runs.begin(), runs.begin() + expected.size()) == expected);
  const auto& events = bench.device.events();
  for (size_t i = 0; i < events.size(); ++i) {
    if (events[i].what == 'r') CHECK((i > 0 && events[i - 1].what == 'f'));
  }
  CHECK(bench.device.count('f') == bench.device.count('r'));
  CHECK(bench.samples(0) == bench.device.count('r', 0) - 2);  // all kept but the warm-up
}

TEST_CASE("short runs follow each other where operands can rotate") {
  Bench bench(bases({10'000, 10'050, 10'100}));
  bench.device.rotates = true;
  REQUIRE(bench.measure().ok());
  CHECK(bench.device.count('a') == 1);
  CHECK(bench.device.asked_to_rotate_ns == 10'000);
  CHECK(bench.device.count('f') == 6);  // the warm-up's
  CHECK(bench.device.count('o') == bench.device.count('r') - 6);
  CHECK(bench.samples(0) == bench.device.count('r', 0) - 2);
}

TEST_CASE("who cannot rotate operands, and who has blocks to come, measures behind flushes") {
  Bench unable(bases({10'000, 10'050}));
  REQUIRE(unable.measure().ok());
  CHECK(unable.device.count('a') == 1);
  CHECK(unable.device.count('o') == 0);

  Bench slow(bases({300e3, 305e3}));
  slow.device.rotates = true;
  REQUIRE(slow.measure().ok());
  CHECK(slow.device.count('a') == 0);
  CHECK(slow.device.count('o') == 0);
}

TEST_CASE("without noise ten rounds are enough") {
  Bench bench(bases({10'000, 10'050}));
  REQUIRE(bench.measure().ok());
  CHECK(bench.samples(0) == 10);
  CHECK(bench.state(0) == CandidateState::kMeasured);
  CHECK(bench.state(1) == CandidateState::kMeasured);
}

TEST_CASE("the clearly slower leave early and keep their samples") {
  Bench bench(bases({10'000, 16'000, 10'300, 90'000}));
  bench.device.noise = 0.003;
  REQUIRE(bench.measure().ok());
  CHECK(bench.state(0) == CandidateState::kMeasured);
  CHECK(bench.state(1) == CandidateState::kPruned);
  CHECK(bench.samples(1) == 3);
  CHECK(bench.samples(3) == 3);
  CHECK(bench.state(2) == CandidateState::kPruned);  // 3 % slower shows at the first interval
  CHECK(bench.samples(2) == 8);
  CHECK(bench.records[1].message.find("times the best after 3 runs") != std::string::npos);
}

TEST_CASE("one outlier among the first samples prunes nobody") {
  Bench bench(bases({10'000, 9'000}));
  int runs = 0;
  bench.device.slowdown = [&](int64_t) { return ++runs == 6 ? 20.0 : 1.0; };  // candidate 1 in its first round
  REQUIRE(bench.measure().ok());
  CHECK(bench.records[1].samples[0].ns[0] > 100'000);
  CHECK(bench.state(1) == CandidateState::kMeasured);
  CHECK(bench.state(0) == CandidateState::kPruned);
}

TEST_CASE("noisy candidates are measured longer, up to the limit") {
  Bench bench(bases({10'000, 10'000}));
  bench.device.noise = 0.02;
  REQUIRE(bench.measure().ok());
  CHECK(bench.samples(0) > 10);
  Bench worse(bases({10'000, 10'000}));
  worse.device.noise = 0.2;
  REQUIRE(worse.measure().ok());
  CHECK(worse.samples(0) == 192);
}

TEST_CASE("long kernels are decided in blocks, short ones are not") {
  Bench bench(bases({1'000'000, 1'010'000, 1'020'000, 1'030'000, 1'040'000, 1'300'000}));
  bench.device.noise = 0.001;
  REQUIRE(bench.measure().ok());
  CHECK(bench.state(5) == CandidateState::kPruned);
  CHECK(bench.state(4) == CandidateState::kPruned);
  CHECK(bench.records[4].message.find("finalists") != std::string::npos);
  for (size_t i = 0; i < 4; ++i) {
    CHECK(bench.state(i) == CandidateState::kMeasured);
    REQUIRE(bench.records[i].samples.size() == 2);
    CHECK(bench.records[i].samples[1].session == 2);
    CHECK(bench.records[i].samples[1].ns.size() == 2 * 19);  // a quarter of 80 ms at 1 ms, twice around
  }
  // After the rounds each finalist runs without a change for the length of a block; back and forth.
  std::vector<size_t> runs = bench.device.runs(), blocks;
  for (size_t i = 60, length = 1; i < runs.size(); ++i) {
    length = runs[i] == runs[i - 1] ? length + 1 : 1;
    if (length == 45) blocks.push_back(runs[i]);
  }
  CHECK(blocks == std::vector<size_t>{0, 1, 2, 3, 2, 1, 0});  // the two blocks of 3 follow each other

  Bench quick(bases({10'000, 10'050}));
  REQUIRE(quick.measure().ok());
  CHECK(quick.records[0].samples.size() == 1);
}

TEST_CASE("two that noise keeps apart go on in blocks without those that have lost") {
  Bench bench(bases({1'000'000, 1'001'000, 1'070'000, 1'080'000}));
  bench.device.noise = 0.02;
  bench.limits.target_half_width = 0.0001;
  REQUIRE(bench.measure().ok());
  std::vector<size_t> samples;
  for (const CandidateRecord& record : bench.records) {
    REQUIRE(record.samples.size() == 2);
    samples.push_back(record.samples[1].ns.size());
  }
  CHECK(samples[0] == samples[1]);
  CHECK(samples[2] == samples[3]);
  CHECK(samples[0] == 2 * samples[2]);  // four blocks, and two
  CHECK(bench.state(1) == CandidateState::kMeasured);
  CHECK(bench.state(2) == CandidateState::kPruned);
  CHECK(bench.records[2].message.find("the best in blocks") != std::string::npos);
}

TEST_CASE("finalists are the best of each kind, then the best of all") {
  const Effort hungry{.operands = 100, .l2 = 100}, thrifty{.operands = 80, .l2 = 90};
  auto bench_of = [&](bool known) {
    std::vector<SimulatedCandidate> candidates =
        bases({1'000'000, 1'010'000, 1'020'000, 1'030'000, 1'040'000, 1'050'000});
    for (size_t i = 0; i < 6; ++i) {
      candidates[i].power = i == 4 ? 0 : 0.10;
      if (known) candidates[i].forecast.effort = i == 4 ? thrifty : hungry;
    }
    return Bench(candidates);
  };
  Bench unknown = bench_of(false), known = bench_of(true);
  for (Bench* bench : {&unknown, &known}) REQUIRE(bench->measure().ok());
  auto finalists = [](const Bench& bench) {
    std::string text;
    for (size_t i = 0; i < 6; ++i) text += bench.records[i].samples.size() == 2 ? std::to_string(i) : "";
    return text;
  };
  CHECK(finalists(unknown) == "0123");
  CHECK(finalists(known) == "0124");  // and 4, being thrifty, has the fastest blocks
  double fastest = 1e9;
  for (size_t i : {0, 1, 2}) fastest = std::min(fastest, known.records[i].samples[1].ns[0]);
  CHECK(known.records[4].samples[1].ns[0] < fastest);

  CHECK(alike(hungry, {.operands = 95, .l2 = 105}));
  CHECK_FALSE(alike(hungry, thrifty));
  CHECK_FALSE(alike({}, {}));
}

TEST_CASE("a candidate that draws too much power wins the rounds and loses the blocks") {
  std::vector<SimulatedCandidate> candidates = bases({980'000, 1'000'000});
  candidates[0].power = 0.10;
  candidates[1].power = 0.02;
  auto winner = [](Bench& bench) {
    REQUIRE(bench.measure().ok());
    std::vector<Contender> contenders;
    for (size_t i = 0; i < 2; ++i)
      contenders.push_back({i, bench.state(i) == CandidateState::kMeasured, &bench.records[i].samples});
    return rank(contenders, bench.rules)[0].index;
  };
  Bench rounds_only(candidates);
  rounds_only.limits.block_ns = 0;
  CHECK(winner(rounds_only) == 0);
  Bench with_blocks(candidates);
  CHECK(winner(with_blocks) == 1);
}

TEST_CASE("within a block only the first run starts from flushed caches") {
  Bench bench(bases({300e3, 305e3}));
  REQUIRE(bench.measure().ok());
  const auto& events = bench.device.events();
  size_t last_flush = 0;
  for (size_t i = 0; i < events.size(); ++i)
    if (events[i].what == 'f') last_flush = i;
  // What follows the last flush is a whole block of one candidate.
  CHECK(events.size() - last_flush > 120);
  for (size_t i = last_flush + 1; i < events.size(); ++i) {
    CHECK(events[i].what == 'r');
    CHECK(events[i].index == events[last_flush + 1].index);
  }
}

TEST_CASE("of slow runs each is a sample, and few are taken") {
  Bench bench(bases({40e6, 20e6, 31e6, 20.3e6, 25e6}));
  bench.device.noise = 0.003;
  bench.limits.block_ns = 0;
  REQUIRE(bench.measure().ok());
  CHECK(bench.device.count('r') == 2 + 10 + 2 + 10 + 3);  // no warm-up, no blocks
  CHECK(bench.samples(0) == 2);
  CHECK(bench.samples(2) == 2);
  CHECK(bench.samples(4) == 3);
  CHECK(bench.state(0) == CandidateState::kPruned);
  CHECK(bench.records[0].message.find("times the best after 2 runs") != std::string::npos);
  CHECK(bench.state(4) == CandidateState::kPruned);
  for (size_t i : {1, 3}) {
    CHECK(bench.state(i) == CandidateState::kMeasured);
    CHECK(bench.records[i].samples.size() == 1);
    CHECK(bench.samples(i) == 10);
  }
  // Back and forth from the first run on.
  std::vector<size_t> runs = bench.device.runs();
  CHECK(std::vector<size_t>(runs.begin(), runs.begin() + 10) == std::vector<size_t>{0, 1, 2, 3, 4, 4, 3, 2, 1, 0});
}

TEST_CASE("the slower the runs, the fewer") {
  Bench twentieth(bases({50e6, 50.5e6})), second(bases({1e9, 1.01e9})), alone(bases({20e6, 60e6}));
  for (Bench* bench : {&twentieth, &second, &alone}) {
    bench->limits.block_ns = 0;
    REQUIRE(bench->measure().ok());
  }
  CHECK(twentieth.samples(0) == 4);
  CHECK(second.samples(0) == 3);
  CHECK(alone.samples(0) == 3);  // its rival has left
  CHECK(alone.samples(1) == 2);
}

TEST_CASE("slow runs shorter than a block are decided in blocks, by few finalists") {
  std::vector<SimulatedCandidate> candidates = bases({29.7e6, 30e6, 90e6});
  candidates[0].power = 0.30;
  candidates[1].power = 0.02;
  Bench bench(candidates);
  REQUIRE(bench.measure().ok());
  CHECK(bench.samples(0) == 3);
  REQUIRE(bench.records[0].samples.size() == 2);
  CHECK(bench.records[0].samples[1].ns.size() == 4);
  std::vector<Contender> contenders;
  for (size_t i = 0; i < 2; ++i) contenders.push_back({i, true, &bench.records[i].samples});
  CHECK(rank(contenders, bench.rules)[0].index == 1);
}

TEST_CASE("without blocks, noise is not fought for ever") {
  Bench bench(bases({10e6, 10e6}));
  bench.device.noise = 0.2;
  bench.limits.block_ns = 0;
  REQUIRE(bench.measure().ok());
  CHECK(bench.samples(0) >= 36);
  CHECK(bench.samples(0) <= 44);
}

TEST_CASE("runs are slow only if the fastest is") {
  Bench bench(bases({19e6, 90e6}));
  REQUIRE(bench.measure().ok());
  CHECK(bench.samples(1) == 3);
  CHECK(bench.device.count('r', 1) == 2 + 3);
}

TEST_CASE("one disturbed slow run prunes nobody and wins nothing") {
  for (int disturbed = 1; disturbed <= 6; ++disturbed) {
    Bench bench(bases({20e6, 19e6}));
    int runs = 0;
    bench.device.slowdown = [&](int64_t) { return ++runs == disturbed ? 5.0 : 1.0; };
    REQUIRE(bench.measure().ok());
    CHECK(bench.state(1) == CandidateState::kMeasured);
    std::vector<Contender> contenders;
    for (size_t i = 0; i < 2; ++i) contenders.push_back({i, true, &bench.records[i].samples});
    CHECK(rank(contenders, bench.rules)[0].index == 1);
  }
}

TEST_CASE("out of time among the first slow runs: the fastest so far is known") {
  Bench bench(bases({500e6, 400e6, 300e6, 200e6}));
  REQUIRE(bench.measure(1'000'000'000).ok());
  CHECK(bench.cut_short);
  CHECK(bench.device.count('r') == 3);
  for (size_t i : {0, 1, 2}) CHECK(bench.samples(i) == 1);
  CHECK(bench.state(3) == CandidateState::kUntried);
}

TEST_CASE("a candidate that stops launching is taken out, its samples stay") {
  std::vector<SimulatedCandidate> candidates = bases({10'000, 9'000, 11'000});
  candidates[1].runs_before_failure = 6;
  Bench bench(candidates);
  REQUIRE(bench.measure().ok());
  CHECK(bench.state(1) == CandidateState::kLaunchFailed);
  CHECK(bench.records[1].message == "illegal address");
  CHECK(bench.samples(1) == 4);
  CHECK(bench.device.count('r', 1) == 7);
  CHECK(bench.state(0) == CandidateState::kMeasured);
}

TEST_CASE("failing in the warm-up or inside a block ends the candidate alone") {
  std::vector<SimulatedCandidate> candidates = bases({1'000'000, 1'001'000, 1'002'000});
  candidates[0].runs_before_failure = 0;
  candidates[1].runs_before_failure = 30;
  Bench bench(candidates);
  REQUIRE(bench.measure().ok());
  CHECK(bench.state(0) == CandidateState::kLaunchFailed);
  CHECK(bench.device.count('r', 0) == 1);
  CHECK(bench.state(1) == CandidateState::kLaunchFailed);
  CHECK(bench.device.count('r', 1) == 31);
  CHECK(bench.state(2) == CandidateState::kMeasured);
}

TEST_CASE("a time that is none fails the candidate") {
  Bench bench(bases({10'000, 10'000}));
  int runs = 0;
  bench.device.slowdown = [&](int64_t) { return ++runs == 8 ? -1.0 : 1.0; };
  REQUIRE(bench.measure().ok());
  CHECK(bench.state(0) != bench.state(1));
}

TEST_CASE("a lost device ends everything") {
  std::vector<SimulatedCandidate> candidates = bases({10'000, 10'000});
  candidates[1].runs_before_failure = 5;
  candidates[1].launch_failure = {Code::kDeviceLost, "gone"};
  Bench bench(candidates);
  CHECK(bench.measure().code() == Code::kDeviceLost);
  CHECK(bench.device.count('r', 1) == 6);
}

TEST_CASE("the deadline leaves at least one sample, of the first that launches") {
  std::vector<SimulatedCandidate> candidates = bases({10'000, 10'000, 10'000});
  candidates[0].runs_before_failure = 0;
  Bench bench(candidates);
  REQUIRE(bench.measure(0).ok());
  CHECK(bench.cut_short);
  CHECK(bench.state(0) == CandidateState::kLaunchFailed);
  CHECK(bench.state(1) == CandidateState::kMeasured);
  CHECK(bench.samples(1) == 1);
  CHECK(bench.state(2) == CandidateState::kUntried);
  CHECK(bench.device.count('r') == 2);
}

}  // namespace
}  // namespace kachel::tuner
