#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "simulated_device.h"
#include "tuner/tuner.h"

namespace kachel::tuner {
namespace {

constexpr int64_t kCompileNs = 400'000'000;

// Twelve candidates, the first the fastest, of which some are compiled already.
std::vector<SimulatedCandidate> twelve(const std::vector<size_t>& at_hand) {
  std::vector<SimulatedCandidate> candidates(12);
  for (size_t i = 0; i < candidates.size(); ++i) {
    SimulatedCandidate& mine = candidates[i];
    mine.base_ns = mine.forecast.ns = 10'000 + 500 * static_cast<double>(i);
    const bool there = std::count(at_hand.begin(), at_hand.end(), i) > 0;
    mine.compile_ns = there ? 0 : kCompileNs;
    mine.expected_compile_ns = static_cast<double>(mine.compile_ns);
  }
  return candidates;
}

struct Outcome {
  TuningResult result;
  std::vector<size_t> compiled;
};

Outcome tuned(const std::vector<SimulatedCandidate>& candidates, int64_t budget_ns, size_t trials = 0) {
  FakeClock clock;
  SimulatedDevice device(clock, candidates);
  TuneRequest request = request_for(candidates.size());
  request.budget_ns = budget_ns;
  request.trials = trials;
  request.workers = 1;
  auto result = Tuner().tune(request, device, clock);
  REQUIRE(result.ok());
  Outcome outcome{*std::move(result), {}};
  for (const auto& event : device.events())
    if (event.what == 'c') outcome.compiled.push_back(event.index);
  std::sort(outcome.compiled.begin(), outcome.compiled.end());
  return outcome;
}

TEST_CASE("a budget that compiling would exceed goes to what is compiled already, and is kept") {
  for (size_t trials : {0, 8}) {
    const Outcome outcome = tuned(twelve({3, 5, 6}), 300'000'000, trials);
    CHECK(outcome.compiled == std::vector<size_t>{3, 5, 6});
    CHECK(outcome.result.winner == 3);
    CHECK(outcome.result.total_ns <= 300'000'000);
    CHECK(outcome.result.budget_exhausted);
    CHECK(outcome.result.candidates[0].message == "the budget ended before its turn");
  }
}

TEST_CASE("where nothing is compiled yet, or nobody knows, something is compiled whatever it takes") {
  Outcome outcome = tuned(twelve({}), 300'000'000);
  CHECK(outcome.result.winner == 0);
  auto unknown = twelve({3, 5, 6});
  for (SimulatedCandidate& candidate : unknown)
    candidate.expected_compile_ns = std::numeric_limits<double>::quiet_NaN();
  outcome = tuned(unknown, 300'000'000);
  CHECK(outcome.result.winner == 0);
}

TEST_CASE("a budget with room for compiling takes candidates in their order") {
  const Outcome outcome = tuned(twelve({3, 5, 6}), 12'000'000'000);
  CHECK(outcome.compiled.size() == 12);
  CHECK(outcome.result.winner == 0);
  CHECK(tuned(twelve({3, 5, 6}), Deadline::kNever).result.winner == 0);
}

TEST_CASE("what is left after those at hand goes to one that takes no longer") {
  auto candidates = twelve({3, 5, 6});
  for (SimulatedCandidate& candidate : candidates)
    if (candidate.compile_ns) candidate.expected_compile_ns = candidate.compile_ns = 200'000'000;
  const Outcome outcome = tuned(candidates, 350'000'000);
  CHECK(outcome.compiled.size() > 3);
  CHECK(outcome.result.winner == 0);
}

}  // namespace
}  // namespace kachel::tuner
