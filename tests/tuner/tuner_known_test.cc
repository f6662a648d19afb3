// Tuning with samples from earlier: what is measured again, and what is not.
#include <doctest/doctest.h>

#include <algorithm>
#include <thread>

#include "simulated_device.h"
#include "tuner/tuner.h"

namespace kachel::tuner {
namespace {

// Tunes candidates with these base times and returns what would have been stored.
std::vector<CandidateRecord> history(const std::vector<double>& base_ns, double slowdown = 1) {
  FakeClock clock;
  SimulatedDevice device(clock, bases(base_ns));
  device.noise = 0.002;
  device.slowdown = [=](int64_t) { return slowdown; };
  TuningResult result = *Tuner().tune(request_for(base_ns.size()), device, clock);
  std::vector<CandidateRecord> records;
  for (const CandidateRecord& c : result.candidates) records.push_back(*decode_candidate(encode_candidate(c)));
  return records;
}

struct Scene {
  Scene(std::vector<CandidateRecord> known, const std::vector<double>& base_ns)
      : device(clock, bases(base_ns), 5), request(request_for(base_ns.size())) {
    device.noise = 0.002;
    request.known = std::move(known);
  }
  TuningResult tune() {
    Result<TuningResult> result = Tuner().tune(request, device, clock);
    REQUIRE(result.ok());
    return *std::move(result);
  }
  FakeClock clock;
  SimulatedDevice device;
  TuneRequest request;
};

TEST_CASE("one configuration added costs one measurement") {
  Scene slower(history({10'000, 11'000, 20'000}), {10'000, 11'000, 20'000, 14'000});
  TuningResult result = slower.tune();
  CHECK(result.winner == 0);
  CHECK(result.ranking == std::vector<size_t>{0, 1, 3, 2});
  CHECK(slower.device.count('c') == 1);
  CHECK(slower.device.count('k', 3) == 1);
  CHECK(slower.device.count('r', 3) == slower.device.count('r'));
  CHECK(result.counters.measured == 1);
  CHECK(result.counters.remeasured == 0);
  CHECK(result.counters.compiled == 1);

  Scene faster(history({10'000, 11'000, 20'000}), {10'000, 11'000, 20'000, 7'000});
  result = faster.tune();
  CHECK(result.winner == 3);
  CHECK(faster.device.count('r', 3) == faster.device.count('r'));
  CHECK(result.counters.measured == 1);
}

TEST_CASE("where the clock could have made the difference, the leaders are measured together") {
  // The old session was throttled by 15 %, so by the stored samples alone the new candidate would win wrongly.
  std::vector<CandidateRecord> known = history({10'000, 10'800, 30'000}, 1.15);
  CHECK(known[0].median_ns > 11'000);
  Scene scene(known, {10'000, 10'800, 30'000, 10'500});
  TuningResult result = scene.tune();
  CHECK(result.winner == 0);
  CHECK(result.counters.measured == 1);
  CHECK(result.counters.remeasured == 1);
  CHECK(scene.device.count('c', 0) == 1);
  CHECK(scene.device.count('k', 0) == 1);  // a binary that runs anew is checked anew
  CHECK(scene.device.count('r', 1) == 0);
  CHECK(scene.device.count('r', 2) == 0);
  // The old samples are kept beside the new ones, and the sessions differ.
  REQUIRE(result.candidates[0].samples.size() == 2);
  CHECK(result.candidates[0].samples[0].ns == known[0].samples[0].ns);
  CHECK(result.candidates[0].samples[0].session != result.candidates[0].samples[1].session);
  CHECK(result.candidates[3].samples.size() == 2);  // alone, and in the contest
  // The known ones that took no part are placed by the yardstick of those that did.
  CHECK(result.ranking == std::vector<size_t>{0, 3, 1, 2});
}

TEST_CASE("what a contest decided is found again in its records") {
  Scene scene(history({10'000, 10'800, 30'000}, 1.15), {10'000, 10'800, 30'000, 10'500});
  TuningResult first = scene.tune();
  Scene again(first.candidates, {1, 1, 1, 1});
  TuningResult second = again.tune();
  CHECK(second.ranking == first.ranking);
  CHECK(again.device.events().empty());
  CHECK(second.counters == TuningCounters());
}

TEST_CASE("asked whether it still holds, what is known stands for nothing and is kept") {
  const std::vector<CandidateRecord> known = history({10'000, 11'000, 12'000});
  Scene holds(known, {10'000, 11'000, 12'000});
  CHECK(holds.tune().counters.timed_runs == 0);
  holds.request.remeasure = true;
  TuningResult result = holds.tune();
  CHECK(result.winner == 0);
  CHECK(result.counters.measured == 3);
  for (size_t i = 0; i < 3; ++i) {
    CHECK(holds.device.count('r', i) > 0);
    REQUIRE(result.candidates[i].samples.size() == 2);
    CHECK(result.candidates[i].samples[0].ns == known[i].samples[0].ns);
    CHECK(result.candidates[i].samples[1].session != known[i].samples[0].session);
  }

  Scene drifted(known, {13'000, 11'000, 12'000});
  drifted.request.remeasure = true;
  result = drifted.tune();
  CHECK(result.ranking == std::vector<size_t>{1, 2, 0});
  CHECK(result.candidates[0].median_ns > 12'500);

  // Within the noise the first listed stays.
  Scene close(known, {11'030, 11'000, 12'000});
  close.request.remeasure = true;
  CHECK(close.tune().winner == 0);

  // Who was never tried again is not tried now.
  std::vector<CandidateRecord> harmed = known;
  harmed[1].state = CandidateState::kCrashed;
  Scene wary(harmed, {13'000, 11'000, 12'000});
  wary.request.remeasure = true;
  CHECK(wary.tune().winner == 2);
  CHECK(wary.device.count('c', 1) == 0);
}

TEST_CASE("what compilers made that ran over the budget is looked at before it is chosen from") {
  for (const int64_t compile_ms : {60, 400}) {
    FakeClock clock;
    SimulatedDevice device(clock, bases({1'400'000, 1'000'000, 1'200'000, 1'300'000}));
    for (SimulatedCandidate& candidate : device.candidates) candidate.compile_ns = compile_ms * 1'000'000;
    // All have begun when the time is up.
    device.on_compile = [&](size_t) {
      while (device.count('c') < 4) std::this_thread::yield();
    };
    TuneRequest request = request_for(4);
    request.workers = 4;
    request.budget_ns = 200'000'000;
    const auto result = Tuner().tune(request, device, clock);
    REQUIRE(result.ok());
    CHECK(result->winner == 1);
    CHECK(result->total_ns <= 4 * compile_ms * 1'000'000 + 30'000'000);
  }
}

TEST_CASE("later batches are compared with the best so far in series of their own, however the budget ends") {
  int later = 0;
  for (int64_t budget_ms = 1000; budget_ms < 8000; budget_ms += 50) {
    std::vector<double> base_ns(24, 1'050'000);
    std::fill(base_ns.begin(), base_ns.begin() + 12, 1'000'000);
    FakeClock clock;
    SimulatedDevice device(clock, bases(base_ns));
    bool recovered = false;  // the device's clock, when the second batch compiles: slower candidates look faster
    device.on_compile = [&](size_t index) { recovered |= index >= 12; };
    device.slowdown = [&](int64_t) { return recovered ? 1.0 : 1.2; };
    for (SimulatedCandidate& candidate : device.candidates) candidate.compile_ns = 100'000'000;
    TuneRequest request = request_for(24);
    request.workers = 1;
    request.budget_ns = budget_ms * 1'000'000;
    const auto result = Tuner().tune(request, device, clock);
    REQUIRE(result.ok());
    CHECK_MESSAGE(result->winner < 12, "with ", budget_ms, " ms");
    later += recovered && !result->candidates[12].samples.empty();
  }
  CHECK(later > 10);
}

TEST_CASE("without budget for a contest the stored samples decide") {
  Scene scene(history({10'000, 10'500}), {10'000, 10'500, 10'300});
  scene.request.budget_ns = 0;
  TuningResult result = scene.tune();
  CHECK(result.winner == 0);
  CHECK(result.budget_exhausted);
  CHECK(scene.device.count('r') == 0);
}

TEST_CASE("editing the list loses nothing: order of axes and of configurations is free") {
  std::vector<CandidateRecord> known = history({10'000, 12'000});
  known[0].configuration = *Configuration::parse("BM=64,BN=32");
  known[1].configuration = *Configuration::parse("BM=32,BN=64");
  Scene scene(known, {1, 1});
  scene.request.candidates = {*Configuration::parse("BN=64,BM=32"), *Configuration::parse("BN=32,BM=64")};
  TuningResult result = scene.tune();
  CHECK(result.winner == 1);
  CHECK(result.best().configuration.text() == "BN=32,BM=64");
  CHECK(scene.device.events().empty());
}

TEST_CASE("a pruned candidate is measured anew once nobody that beat it is left") {
  std::vector<CandidateRecord> known = history({10'000, 16'000, 17'000});
  REQUIRE(known[1].state == CandidateState::kPruned);
  Scene without(known, {16'000, 17'000});
  without.request.candidates = {known[1].configuration, known[2].configuration};
  TuningResult result = without.tune();
  CHECK(result.winner == 0);
  CHECK(result.counters.measured == 2);
  CHECK(result.best().state == CandidateState::kMeasured);

  Scene with(known, {1, 1});
  with.request.candidates = {known[0].configuration, known[2].configuration};
  CHECK(with.tune().winner == 0);
  CHECK(with.device.events().empty());
}

TEST_CASE("wrong stays wrong, other failures are tried again") {
  std::vector<CandidateRecord> known = history({10'000, 9'000, 9'500});
  known[1] = {.configuration = known[1].configuration, .state = CandidateState::kRejectedWrong, .message = "differs"};
  known[2] = {.configuration = known[2].configuration, .state = CandidateState::kCompileFailed, .message = "no memory"};
  known[0].state = CandidateState::kMeasured;
  Scene scene(known, {10'000, 1'000, 5'000});
  TuningResult result = scene.tune();
  CHECK(result.winner == 2);
  CHECK(result.candidates[1].state == CandidateState::kRejectedWrong);
  CHECK(result.candidates[1].message == "differs");
  CHECK(scene.device.count('c', 1) == 0);
}

TEST_CASE("two slow runs that pruned a candidate are known, two of a budget's end are not") {
  std::vector<CandidateRecord> known = history({25e6, 60e6});
  REQUIRE(known[1].state == CandidateState::kPruned);
  REQUIRE(known[1].samples.back().ns.size() == 2);
  Scene scene(known, {25e6, 60e6, 90e6});
  CHECK(scene.tune().winner == 0);
  CHECK(scene.device.count('r', 2) > 0);
  CHECK(scene.device.count('r', 1) == 0);
}

TEST_CASE("the leavings of a budget do not count as known") {
  std::vector<CandidateRecord> known = history({10'000, 9'000});
  known[1].samples.back().ns.resize(2);
  Scene scene(known, {10'000, 9'000});
  TuningResult result = scene.tune();
  CHECK(scene.device.count('r', 1) > 10);
  CHECK(result.candidates[1].samples.size() >= 2);
}

TEST_CASE("a known winner that no longer compiles loses the contest") {
  Scene scene(history({10'000, 30'000}), {10'000, 30'000, 10'500});
  scene.device.candidates[0].compile = {Code::kCompile, "new compiler, new bug"};
  TuningResult result = scene.tune();
  CHECK(result.winner == 2);
  CHECK(result.candidates[0].state == CandidateState::kCompileFailed);
}

TEST_CASE("session numbers never collide with stored ones") {
  std::vector<CandidateRecord> known = history({10'000, 10'500});
  // Every fake clock starts at the same time, so the first number tried is taken.
  Scene scene(known, {10'000, 10'500, 10'200});
  TuningResult result = scene.tune();
  CHECK(result.candidates[2].samples[0].session != known[0].samples[0].session);
  known[0].samples[0].session = ~uint64_t{0};
  Scene extreme(known, {10'000, 10'500, 10'200});
  extreme.tune();
}

}  // namespace
}  // namespace kachel::tuner
