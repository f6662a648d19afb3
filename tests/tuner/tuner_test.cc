#include "tuner/tuner.h"

#include <doctest/doctest.h>

#include <chrono>
#include <cmath>
#include <limits>
#include <thread>

#include "simulated_device.h"

namespace kachel::tuner {
namespace {

size_t winner_of(SimulatedDevice& device, FakeClock& clock) {
  Result<TuningResult> result = Tuner().tune(request_for(device.candidates.size()), device, clock);
  REQUIRE(result.ok());
  return result->winner;
}

TEST_CASE("the fastest wins and everything is recorded") {
  FakeClock clock;
  SimulatedDevice device(clock, bases({14'000, 12'000, 10'000, 13'000}));
  device.noise = 0.005;
  for (auto& c : device.candidates) c.compile_ns = 1000;
  Result<TuningResult> result = Tuner().tune(request_for(4), device, clock);
  REQUIRE(result.ok());
  CHECK(result->winner == 2);
  CHECK(result->ranking == std::vector<size_t>{2, 1, 3, 0});
  CHECK(result->best().state == CandidateState::kMeasured);
  CHECK(result->best().median_ns == doctest::Approx(10'000).epsilon(0.01));
  CHECK(result->best().ci.low <= result->best().median_ns);
  CHECK(result->best().ci.high >= result->best().median_ns);
  CHECK(result->best().compile_ns >= 1000);
  CHECK(result->counters.compiled == 4);
  CHECK(result->counters.checked == 4);
  CHECK(result->counters.measured == 4);
  CHECK(result->counters.remeasured == 0);
  CHECK(result->counters.timed_runs == device.count('r'));
  CHECK(!result->budget_exhausted);
  CHECK(result->total_ns > 0);
  size_t kept = 0;
  for (const CandidateRecord& c : result->candidates) kept += c.samples[0].ns.size();
  CHECK(kept + 4 * 2 == device.count('r'));
}

TEST_CASE("the phases come in order: all compiled, then one oracle, each checked before it runs") {
  FakeClock clock;
  SimulatedDevice device(clock, bases({10'000, 11'000, 12'000, 13'000}));
  winner_of(device, clock);
  std::string phases;
  for (const auto& event : device.events())
    if (event.what != 'f' && event.what != 'g' && (phases.empty() || phases.back() != event.what))
      phases.push_back(event.what);
  CHECK(phases == "cpkrar");  // asked to rotate between warm-up and rounds
  CHECK(device.count('c') == 4);
  CHECK(device.count('p') == 1);
  CHECK(device.count('k') == 4);
}

TEST_CASE("the same measurements choose the same winner") {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    auto tune = [&] {
      FakeClock clock;
      SimulatedDevice device(clock, bases({10'000, 10'050, 9'950, 10'200, 10'010}), seed);
      device.noise = 0.03;
      device.outlier_rate = 0.05;
      return *Tuner().tune(request_for(5), device, clock);
    };
    TuningResult a = tune(), b = tune();
    CHECK(a.winner == b.winner);
    CHECK(a.ranking == b.ranking);
    CHECK(encode_candidate(a.best()).size() == encode_candidate(b.best()).size());
    // And from the stored samples alone, without a device.
    FakeClock clock;
    SimulatedDevice none(clock, bases({1, 1, 1, 1, 1}));
    TuneRequest request = request_for(5);
    for (const CandidateRecord& c : a.candidates) request.known.push_back(*decode_candidate(encode_candidate(c)));
    Result<TuningResult> again = Tuner().tune(request, none, clock);
    REQUIRE(again.ok());
    CHECK(again->ranking == a.ranking);
    CHECK(none.events().empty());
  }
}

// 100 tunings of candidates of which the first listed, which wins every tie, is 3 % slower than the best.
int losses(double base_ns, double noise, const std::function<void(SimulatedDevice&)>& disturb = {}) {
  int lost = 0;
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    FakeClock clock;
    SimulatedDevice device(clock, bases({1.03 * base_ns, 1.10 * base_ns, base_ns, 1.05 * base_ns}), seed);
    device.noise = noise;
    if (disturb) disturb(device);
    lost += winner_of(device, clock) != 2;
  }
  return lost;
}

TEST_CASE("a candidate 3 % slower never wins through noise of 2 %") {
  CHECK(losses(10'000, 0.02) == 0);
  CHECK(losses(1'000'000, 0.02) == 0);  // decided in blocks
}

TEST_CASE("nor through drift, throttling steps or outliers") {
  CHECK(losses(10'000, 0.01, [](SimulatedDevice& d) {
          d.slowdown = [](int64_t now_ns) { return 1 + 10e-9 * static_cast<double>(now_ns); };  // 1 % per ms
        }) == 0);
  CHECK(losses(10'000, 0.01, [](SimulatedDevice& d) {
          d.slowdown = [](int64_t now_ns) { return now_ns / 3'000'000 % 2 == 0 ? 1.0 : 1.18; };  // steps of 3 ms
        }) == 0);
  CHECK(losses(10'000, 0.01, [](SimulatedDevice& d) { d.outlier_rate = 0.10; }) == 0);
}

TEST_CASE("near equals: the first listed wins, run after run") {
  int first = 0;
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    FakeClock clock;
    SimulatedDevice device(clock, bases({10'030, 10'000, 10'010, 10'020}), seed);
    device.noise = 0.005;
    first += winner_of(device, clock) == 0;
  }
  CHECK(first == 100);
}

TEST_CASE("slow kernels do not use up the budget") {
  constexpr int64_t kBudgetNs = 10'000'000'000;
  std::vector<double> times;
  for (int i = 0; i < 24; ++i) times.push_back(25e6 * (1 + 0.06 * ((i * 7) % 24)));  // up to 2.4 times the best
  auto tune = [&](const TunerOptions& options) {
    FakeClock clock;
    SimulatedDevice device(clock, bases(times));
    device.noise = 0.02;
    device.check_ns = 25'000'000;
    device.flush_ns = 10'000'000;
    TuneRequest request = request_for(times.size());
    request.budget_ns = kBudgetNs;
    return *Tuner(options).tune(request, device, clock);
  };
  TuningResult result = tune({});
  CHECK(result.winner == 0);
  CHECK(!result.budget_exhausted);
  CHECK(result.total_ns < 6'000'000'000);
  TunerOptions options;
  options.limits.block_ns = 0;
  const int64_t without_blocks_ns = tune(options).total_ns;
  CHECK(without_blocks_ns < 5'000'000'000);
  options.limits.slow_run_ns = std::numeric_limits<double>::infinity();
  CHECK(tune(options).total_ns > without_blocks_ns * 3 / 2);
}

TEST_CASE("a configuration without rivals still gets its samples") {
  FakeClock clock;
  SimulatedDevice device(clock, bases({10'000}));
  TuneRequest request = request_for(1);
  request.candidates = {Configuration()};
  Result<TuningResult> result = Tuner().tune(request, device, clock);
  REQUIRE(result.ok());
  CHECK(result->best().samples[0].ns.size() == 10);
}

TEST_CASE("candidates compile in parallel, each once") {
  FakeClock clock;
  SimulatedDevice device(clock, std::vector<SimulatedCandidate>(64));
  TuneRequest request = request_for(64);
  request.workers = 8;
  Result<TuningResult> result = Tuner().tune(request, device, clock);
  REQUIRE(result.ok());
  for (size_t i = 0; i < 64; ++i) CHECK(device.count('c', i) == 1);
  CHECK(device.most_compiling_at_once() <= 8);
}

TEST_CASE("the reference compiles once, ahead of the candidates and of what else there is in later batches") {
  for (unsigned workers : {1u, 3u}) {
    FakeClock clock;
    SimulatedDevice device(clock, bases(std::vector<double>(30, 10'000)));
    for (SimulatedCandidate& candidate : device.candidates) candidate.compile_ns = 100'000'000;
    TuneRequest request = request_for(30);
    request.workers = workers;
    request.budget_ns = 2'500'000'000;
    REQUIRE(Tuner().tune(request, device, clock).ok());
    CHECK(device.count('g') == 1);
    CHECK(device.count('c') > 0);
    size_t ahead = 0;
    while (device.events()[ahead].what != 'g') ++ahead;
    CHECK(ahead <= workers - 1);
  }
}

TEST_CASE("candidates are checked while others compile, where runner and threads allow it") {
  for (const bool beside : {false, true}) {
    FakeClock clock;
    SimulatedDevice device(clock, bases({10'000, 9'000, 11'000}));
    device.checks_beside = beside;
    device.candidates[1].check = {Code::kInternal, "differs"};
    // The last one is not ready before the others have been looked at, or before long.
    bool looked_at = false;
    device.on_compile = [&](size_t index) {
      using namespace std::chrono;
      const auto end = steady_clock::now() + (beside ? seconds(30) : milliseconds(0));
      while (index == 2 && device.count('k') < 2 && steady_clock::now() < end) std::this_thread::yield();
      if (index == 2) looked_at = device.count('k') == 2;
    };
    const auto result = Tuner().tune(request_for(3), device, clock);
    REQUIRE(result.ok());
    CHECK(result->winner == 0);
    CHECK(result->counters.checked == 3);
    CHECK(result->counters.rejected == 1);
    for (size_t index : {0, 1, 2}) CHECK(device.count('k', index) == 1);
    CHECK(device.count('p') == 1);
    CHECK(looked_at == beside);
  }
  FakeClock clock;
  SimulatedDevice device(clock, bases({10'000, 9'000, 11'000}));
  device.checks_beside = true;
  TuneRequest request = request_for(3);
  request.workers = 1;
  std::string phases;
  REQUIRE(Tuner().tune(request, device, clock).ok());
  for (const auto& event : device.events()) phases.push_back(event.what);
  CHECK(phases.substr(0, 8) == "gcccpkkk");
}

TEST_CASE("progress tells the phases, how far they are, and the best so far") {
  FakeClock clock;
  SimulatedDevice device(clock, bases({12'000, 10'000, 11'000}));
  std::vector<Phase> phases;
  std::string last;
  bool best_seen = false, within = true;
  auto progress = [&](const ProgressEvent& event) {
    if (phases.empty() || phases.back() != event.phase) phases.push_back(event.phase);
    within &= event.done <= event.total;
    if (event.phase == Phase::kMeasuring && event.best_ns) best_seen |= *event.best_ns == doctest::Approx(10'000);
    last = event.configuration ? event.configuration->text() : "";
    return true;
  };
  REQUIRE(Tuner().tune(request_for(3), device, clock, progress).ok());
  CHECK(phases == std::vector<Phase>{Phase::kCompiling, Phase::kChecking, Phase::kMeasuring, Phase::kDone});
  CHECK(phase_name(phases[2]) == "measuring");
  CHECK(last == "i=1");
  CHECK(within);
  CHECK(best_seen);
}

TEST_CASE("malformed requests are refused") {
  FakeClock clock;
  SimulatedDevice device(clock, bases({10'000, 10'000}));
  auto code = [&](const TuneRequest& request) { return Tuner().tune(request, device, clock).status().code(); };
  CHECK(code({}) == Code::kInvalid);
  TuneRequest request = request_for(2);
  request.default_index = 2;
  CHECK(code(request) == Code::kInvalid);
  request = request_for(2);
  request.candidates[1] = request.candidates[0];
  CHECK(code(request) == Code::kInvalid);
  CHECK(code(request_for(4097)) == Code::kInvalid);
  CHECK(device.events().empty());
}

}  // namespace
}  // namespace kachel::tuner
