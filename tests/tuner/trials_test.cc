// Tunings that measure a part of the candidates, and samples that the host takes by itself.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "simulated_device.h"

namespace kachel::tuner {
namespace {

// Candidate i takes 10 + i us; forecasts say the opposite of the list: the last is expected to be the fastest, and is.
std::vector<SimulatedCandidate> reversed(size_t count) {
  std::vector<SimulatedCandidate> candidates;
  for (size_t i = 0; i < count; ++i) {
    SimulatedCandidate& candidate = candidates.emplace_back();
    candidate.base_ns = 10'000 + 1000.0 * static_cast<double>(count - 1 - i);
    candidate.forecast.ns = candidate.base_ns;
  }
  return candidates;
}

std::set<size_t> compiled(const SimulatedDevice& device) {
  std::set<size_t> indices;
  for (const auto& event : device.events())
    if (event.what == 'c') indices.insert(event.index);
  return indices;
}

TEST_CASE("those are measured from which most is expected, so many as are asked for") {
  for (size_t trials : {size_t{1}, size_t{4}, size_t{19}}) {
    FakeClock clock;
    SimulatedDevice device(clock, reversed(20));
    TuneRequest request = request_for(20);
    request.trials = trials;
    TuningResult result = *Tuner().tune(request, device, clock);
    CHECK(result.winner == 19);
    CHECK(result.counters.measured == trials);
    CHECK_FALSE(result.budget_exhausted);
    CHECK(compiled(device).size() == trials);
    for (size_t i = 0; i < 20; ++i) {
      const bool tried = i >= 20 - trials;
      CHECK(compiled(device).count(i) == tried);
      CHECK((result.candidates[i].state == CandidateState::kUntried) == !tried);
      if (!tried) CHECK(result.candidates[i].message.find("from which most is expected") != std::string::npos);
    }
  }
}

TEST_CASE("without forecasts the first listed are tried, and the default among them") {
  FakeClock clock;
  SimulatedDevice device(clock, bases(std::vector<double>(10, 10'000)));
  TuneRequest request = request_for(10);
  request.trials = 3;
  request.default_index = 7;
  REQUIRE(Tuner().tune(request, device, clock).ok());
  CHECK(compiled(device) == std::set<size_t>{0, 1, 7});
}

TEST_CASE("what is decided for a key that is near is tried, whatever is expected of it") {
  for (size_t trials : {size_t{1}, size_t{3}}) {
    FakeClock clock;
    SimulatedDevice device(clock, reversed(10));
    TuneRequest request = request_for(10);
    request.trials = trials;
    request.favourite = 2;
    REQUIRE(Tuner().tune(request, device, clock).ok());
    CHECK(compiled(device) == (trials == 1 ? std::set<size_t>{2, 9} : std::set<size_t>{2, 7, 8, 9}));
    SimulatedDevice other(clock, reversed(10));  // it is one of the trials anyway
    request.favourite = 9;
    REQUIRE(Tuner().tune(request, other, clock).ok());
    CHECK(compiled(other) == (trials == 1 ? std::set<size_t>{9} : std::set<size_t>{7, 8, 9}));
    request.favourite = 10;
    CHECK(Tuner().tune(request, device, clock).status().code() == Code::kInvalid);
  }
}

TEST_CASE("as many trials as candidates, or none said, measure all") {
  for (size_t trials : {size_t{0}, size_t{10}, size_t{500}}) {
    FakeClock clock;
    SimulatedDevice device(clock, reversed(10));
    TuneRequest request = request_for(10);
    request.trials = trials;
    CHECK(Tuner().tune(request, device, clock)->counters.measured == 10);
  }
}

TEST_CASE("forecasts that come with the request replace the runner's") {
  FakeClock clock;
  SimulatedDevice device(clock, reversed(10));
  TuneRequest request = request_for(10);
  request.trials = 2;
  request.forecasts.resize(10);
  request.forecasts[3].ns = 1, request.forecasts[5].ns = 2;
  REQUIRE(Tuner().tune(request, device, clock).ok());
  CHECK(compiled(device) == std::set<size_t>{3, 5});
  request.forecasts.resize(9);
  CHECK(Tuner().tune(request, device, clock).status().code() == Code::kInvalid);
}

TEST_CASE("more trials add to fewer") {
  FakeClock clock;
  SimulatedDevice device(clock, reversed(20));
  TuneRequest request = request_for(20);
  request.trials = 4;
  const TuningResult first = *Tuner().tune(request, device, clock);
  for (const CandidateRecord& record : first.candidates)
    if (!record.samples.empty()) request.known.push_back(record);
  SimulatedDevice again(clock, reversed(20));
  for (size_t trials : {size_t{4}, size_t{3}}) {
    request.trials = trials;
    CHECK(Tuner().tune(request, again, clock)->winner == 19);
    CHECK(again.events().empty());
  }
  request.trials = 9;
  const TuningResult more = *Tuner().tune(request, again, clock);
  CHECK(more.counters.measured == 5);
  CHECK(more.winner == 19);
  for (size_t i : {11, 12, 13, 14, 15}) CHECK(compiled(again).count(i) == 1);
  for (size_t i = 0; i < 11; ++i) CHECK(compiled(again).count(i) == 0);
}

TEST_CASE("where none of them can be served, the next are tried") {
  FakeClock clock;
  SimulatedDevice device(clock, reversed(20));
  for (size_t i = 14; i < 20; ++i) device.candidates[i].compile = Status(Code::kCompile, "no");
  TuneRequest request = request_for(20);
  request.trials = 4;
  const TuningResult result = *Tuner().tune(request, device, clock);
  CHECK(result.winner == 13);
  CHECK(compiled(device).size() == 8);
  for (size_t i = 0; i < 20; ++i) device.candidates[i].compile = Status(Code::kCompile, "no");
  CHECK(Tuner().tune(request, device, clock).status().code() == Code::kCompile);
}

TEST_CASE("flawed ones give way to the next, and serve where there are no others") {
  FakeClock clock;
  SimulatedDevice device(clock, reversed(8));
  for (size_t i = 5; i < 8; ++i) device.candidates[i].flaw = "spills";
  TuneRequest request = request_for(8);
  request.trials = 3;
  CHECK(Tuner().tune(request, device, clock)->winner == 4);
  for (auto& candidate : device.candidates) candidate.flaw = "spills";
  CHECK(Tuner().tune(request, device, clock)->winner == 7);
}

TEST_CASE("where fewer than half of the trials are of use, as many again are made while there is time") {
  FakeClock clock;
  SimulatedDevice device(clock, reversed(20));
  TuneRequest request = request_for(20);
  request.trials = 4;
  for (size_t flawed : {size_t{2}, size_t{3}}) {
    for (size_t i = 0; i < flawed; ++i) device.candidates[19 - i].flaw = "spills";
    const TuningResult result = *Tuner().tune(request, device, clock);
    CHECK(result.winner == 19 - flawed);
    CHECK(result.counters.compiled == (flawed == 2 ? 4 : 8));
    CHECK(result.counters.measured == (flawed == 2 ? 2 : 5));
  }
}

TEST_CASE("a benchmark of the host's replaces the protocol, after compile and check") {
  FakeClock clock;
  SimulatedDevice device(clock, reversed(5));
  device.candidates[4].check = Status(Code::kInvalid, "wrong");
  device.own_benchmark = [](size_t index) -> Result<std::vector<double>> {
    return std::vector<double>{100.0 + static_cast<double>(index), 100.0 + static_cast<double>(index), 200};
  };
  TuneRequest request = request_for(5);
  request.own_benchmark = true;
  const TuningResult result = *Tuner().tune(request, device, clock);
  std::vector<size_t> asked;
  for (const auto& event : device.events())
    if (event.what == 'b') asked.push_back(event.index);
  CHECK(asked == std::vector<size_t>{3, 2, 1, 0});
  CHECK(device.count('r') == 0);
  CHECK(result.winner == 0);
  CHECK(result.candidates[0].median_ns == 100);
  CHECK(result.candidates[4].state == CandidateState::kRejectedWrong);
  CHECK(result.counters.measured == 4);
  CHECK(result.counters.timed_runs == 12);
}

TEST_CASE("a benchmark that gives no times loses the candidate, one that is cancelled the tuning") {
  for (const std::vector<double>& wrong : {std::vector<double>{}, {0.0}, {-1.0}, {std::nan("")}}) {
    FakeClock clock;
    SimulatedDevice device(clock, reversed(2));
    device.own_benchmark = [&](size_t index) -> Result<std::vector<double>> {
      return index == 1 ? wrong : std::vector<double>{5, 5, 5};
    };
    TuneRequest request = request_for(2);
    request.own_benchmark = true;
    const TuningResult result = *Tuner().tune(request, device, clock);
    CHECK(result.winner == 0);
    CHECK(result.candidates[1].state == CandidateState::kLaunchFailed);
    CHECK(result.candidates[1].message.find("gave no samples") != std::string::npos);
  }
  FakeClock clock;
  SimulatedDevice device(clock, reversed(3));
  device.own_benchmark = [](size_t index) -> Result<std::vector<double>> {
    if (index == 1) return Status(Code::kCancelled, "enough");
    return std::vector<double>{5, 5, 5};
  };
  TuneRequest request = request_for(3);
  request.own_benchmark = true;
  std::vector<CandidateRecord> kept;
  request.on_cancelled = [&](const std::vector<CandidateRecord>& records) { kept = records; };
  CHECK(Tuner().tune(request, device, clock).status().message() == "enough");
  REQUIRE(kept.size() == 3);
  CHECK(kept[2].state == CandidateState::kMeasured);
}

}  // namespace
}  // namespace kachel::tuner
