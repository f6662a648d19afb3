// Candidates that their compiler holds something against.
#include <doctest/doctest.h>

#include "simulated_device.h"
#include "tuner/tuner.h"

namespace kachel::tuner {
namespace {

struct Scene {
  explicit Scene(const std::vector<double>& base_ns)
      : device(clock, bases(base_ns)), request(request_for(base_ns.size())) {
    device.noise = 0.002;
  }
  void flaw(std::initializer_list<size_t> indices) {
    for (size_t index : indices) device.candidates[index].flaw = "spills 96 bytes";
  }
  TuningResult tune() {
    Result<TuningResult> result = Tuner().tune(request, device, clock);
    REQUIRE_MESSAGE(result.ok(), result.status().message());
    return *std::move(result);
  }
  // With what `earlier` left behind, as the store gives it back.
  void know(const TuningResult& earlier) {
    request.known.clear();
    for (const CandidateRecord& c : earlier.candidates) {
      auto stored = decode_candidate(encode_candidate(c));
      REQUIRE(stored);
      request.known.push_back(*stored);
    }
  }
  FakeClock clock;
  SimulatedDevice device;
  TuneRequest request;
};

TEST_CASE("a flaw is a rejection, however fast the candidate would be") {
  Scene scene({10'000, 2'000, 9'000, 3'000});
  scene.flaw({1, 3});
  TuningResult result = scene.tune();
  CHECK(result.winner == 2);
  CHECK(result.ranking == std::vector<size_t>{2, 0});
  for (size_t index : {1, 3}) {
    CHECK(result.candidates[index].state == CandidateState::kRejectedFlaw);
    CHECK(result.candidates[index].message == "spills 96 bytes");
    CHECK(scene.device.count('c', index) == 1);
    CHECK(scene.device.count('k', index) == 0);
    CHECK(scene.device.count('r', index) == 0);
  }
  CHECK(result.counters.rejected == 0);  // these are the wrong ones
}

TEST_CASE("where every candidate has a flaw, the fastest of them wins") {
  Scene scene({10'000, 9'000, 12'000});
  scene.flaw({0, 1, 2});
  TuningResult result = scene.tune();
  CHECK(result.winner == 1);
  CHECK(result.ranking.size() == 3);
  CHECK(result.best().state == CandidateState::kMeasured);
  CHECK(result.best().flaw == "spills 96 bytes");
  CHECK(scene.device.count('c') == 3);
}

TEST_CASE("and where those without one do not work") {
  Scene scene({10'000, 9'000, 12'000, 8'000});
  scene.flaw({0, 1});
  scene.device.candidates[2].check = invalid("differs");
  scene.device.candidates[3].runs_before_failure = 0;
  TuningResult result = scene.tune();
  CHECK(result.winner == 1);
  CHECK(result.candidates[2].state == CandidateState::kRejectedWrong);
  CHECK(result.candidates[3].state == CandidateState::kLaunchFailed);
}

TEST_CASE("a candidate without a flaw replaces the known ones that have one, and gives way again") {
  Scene first({10'000, 9'000, 12'000});
  first.flaw({0, 1, 2});
  TuningResult flawed = first.tune();

  Scene second({10'000, 9'000, 12'000, 30'000});
  second.flaw({0, 1, 2});
  second.know(flawed);
  TuningResult result = second.tune();
  CHECK(result.winner == 3);
  CHECK(result.candidates[1].state == CandidateState::kRejectedFlaw);
  CHECK(result.candidates[1].samples.size() == 1);  // kept
  CHECK(second.device.count('c') == 1);

  // Known throughout: nothing is run.
  Scene third({1, 1, 1, 1});
  third.know(result);
  CHECK(third.tune().winner == 3);
  CHECK(third.device.events().empty());

  // Without it those with flaws are all there is.
  Scene fourth({10'000, 9'000, 12'000});
  fourth.flaw({0, 1, 2});
  fourth.know(result);
  CHECK(fourth.tune().winner == 1);
}

TEST_CASE("known flaws stand among themselves: one more costs one measurement") {
  Scene first({10'000, 9'000});
  first.flaw({0, 1});
  Scene second({10'000, 9'000, 20'000});
  second.flaw({0, 1, 2});
  second.know(first.tune());
  CHECK(second.tune().winner == 1);
  CHECK(second.device.count('c') == 1);
  CHECK(second.device.count('r', 2) == second.device.count('r'));
}

TEST_CASE("a budget that ends among flaws still gives a winner") {
  Scene scene(std::vector<double>(20, 10'000));
  for (SimulatedCandidate& candidate : scene.device.candidates) {
    candidate.flaw = "spills 8 bytes";
    candidate.compile_ns = 1'000'000'000;
  }
  scene.request.budget_ns = 4'000'000'000;
  scene.request.workers = 1;
  TuningResult result = scene.tune();
  CHECK(result.budget_exhausted);
  CHECK(result.winner == 0);
  CHECK(scene.device.count('c') == 4);
}

}  // namespace
}  // namespace kachel::tuner
