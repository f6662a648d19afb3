// Candidates that do harm to the process that tries them, and runners that can try no more.
#include <doctest/doctest.h>

#include "simulated_device.h"

namespace kachel::tuner {
namespace {

struct Scene {
  explicit Scene(const std::vector<double>& base_ns)
      : device(clock, bases(base_ns)), request(request_for(base_ns.size())) {
    request.workers = 1;
    request.on_harm = [this](size_t index, const CandidateRecord& record) { harmed.emplace_back(index, record.state); };
  }
  Result<TuningResult> tune() { return Tuner().tune(request, device, clock); }

  FakeClock clock;
  SimulatedDevice device;
  TuneRequest request;
  std::vector<std::pair<size_t, CandidateState>> harmed;
};

TEST_CASE("whoever crashes or hangs, at any step, is told of at once and never tried again") {
  Scene scene({10'000, 9'000, 8'000, 7'000, 12'000});
  auto& candidates = scene.device.candidates;
  candidates[1].compile = {Code::kCompile, "the worker was killed by signal 11"};
  candidates[1].verdict = Verdict::kCrashed;
  candidates[2].check = {Code::kLaunch, "no end after 30 s"};
  candidates[2].verdict = Verdict::kTimedOut;
  candidates[3].runs_before_failure = 5;
  candidates[3].verdict = Verdict::kCrashed;
  Result<TuningResult> result = scene.tune();
  REQUIRE(result.ok());
  CHECK(result->ranking == std::vector<size_t>{0, 4});
  const std::pair<size_t, CandidateState> expected[] = {
      {1, CandidateState::kCrashed}, {2, CandidateState::kTimedOut}, {3, CandidateState::kCrashed}};
  REQUIRE(scene.harmed.size() == 3);
  for (size_t i = 0; i < 3; ++i) CHECK(scene.harmed[i] == expected[i]);
  CHECK(result->candidates[3].message == "illegal address");

  // In another process, by what was stored; one candidate is new.
  Scene later({10'000, 9'000, 8'000, 7'000, 12'000, 11'000});
  for (const CandidateRecord& record : result->candidates) {
    auto known = decode_candidate(encode_candidate(record));
    REQUIRE(known.has_value());
    CHECK(known->state == record.state);
    later.request.known.push_back(*known);
  }
  Result<TuningResult> again = later.tune();
  REQUIRE(again.ok());
  CHECK(again->winner == 0);
  for (size_t index : {1, 2, 3}) {
    CHECK(later.device.count('c', index) == 0);
    CHECK(is_harmful(again->candidates[index].state));
    CHECK(again->candidates[index].message == result->candidates[index].message);
  }
  CHECK(later.device.count('r', 5) > 0);
}

TEST_CASE("who fails otherwise, or is set aside, is told of once, and who did harm is not told of twice") {
  Scene scene({10'000, 9'000, 8'000, 7'000, 6'000, 12'000});
  auto& candidates = scene.device.candidates;
  candidates[0].compile = {Code::kCompile, "line 3: oops"};
  candidates[1].flaw = "spills 96 bytes";
  candidates[2].check = {Code::kInternal, "differs"};
  candidates[3].runs_before_failure = 5;
  candidates[4].check = {Code::kLaunch, "no end after 30 s"};
  candidates[4].verdict = Verdict::kTimedOut;
  std::vector<std::pair<size_t, CandidateState>> dropped;
  std::vector<std::string> why;
  scene.request.on_dropped = [&](size_t index, const CandidateRecord& record) {
    dropped.emplace_back(index, record.state);
    why.push_back(record.message);
  };
  Result<TuningResult> result = scene.tune();
  REQUIRE(result.ok());
  CHECK(result->ranking == std::vector<size_t>{5});
  const std::vector<std::pair<size_t, CandidateState>> expected = {{0, CandidateState::kCompileFailed},
                                                                   {1, CandidateState::kRejectedFlaw},
                                                                   {2, CandidateState::kRejectedWrong},
                                                                   {3, CandidateState::kLaunchFailed}};
  CHECK(dropped == expected);
  CHECK(why == std::vector<std::string>{"line 3: oops", "spills 96 bytes", "differs", "illegal address"});
  REQUIRE(scene.harmed.size() == 1);
  CHECK(scene.harmed[0].first == 4);
}

TEST_CASE("who does harm while something else is tried is told of as well, also where it was measured before") {
  Scene scene({10'000, 9'000, 8'000, 7'000});
  scene.request.known.push_back({.configuration = scene.request.candidates[3],
                                 .state = CandidateState::kMeasured,
                                 .samples = {{1, {7'000, 7'000, 7'000}}}});
  scene.device.harms_of_prepare = {{2, Verdict::kTimedOut, "no end after 30 s"}, {3, Verdict::kCrashed, "signal 11"}};
  Result<TuningResult> result = scene.tune();
  REQUIRE(result.ok());
  CHECK(result->ranking == std::vector<size_t>{1, 0});
  CHECK(scene.harmed ==
        std::vector<std::pair<size_t, CandidateState>>{{2, CandidateState::kTimedOut}, {3, CandidateState::kCrashed}});
  CHECK(result->candidates[2].message == "no end after 30 s");
  CHECK(result->candidates[3].message == "signal 11");
  CHECK(scene.device.count('k', 2) == 0);
  CHECK(scene.device.count('r', 2) == 0);
  // One that was set aside for a flaw is not taken up again.
  Scene flawed({10'000, 9'000});
  for (SimulatedCandidate& candidate : flawed.device.candidates) candidate.flaw = "spills";
  flawed.device.candidates[0].flaw = "";
  flawed.device.candidates[0].check = {Code::kInvalid, "wrong"};
  flawed.device.harms_of_prepare = {{1, Verdict::kCrashed, "signal 11"}};
  CHECK(flawed.tune().status().code() == Code::kLaunch);
  CHECK(flawed.harmed.size() == 1);
  CHECK(flawed.device.count('k', 1) == 0);
}

TEST_CASE("a flaw does not hide that a candidate crashes") {
  Scene scene({10'000, 9'000});
  scene.request.known.push_back({.configuration = scene.request.candidates[1],
                                 .state = CandidateState::kCrashed,
                                 .flaw = "spills 8 bytes",
                                 .message = "killed"});
  Result<TuningResult> result = scene.tune();
  REQUIRE(result.ok());
  CHECK(result->candidates[1].state == CandidateState::kCrashed);
  CHECK(scene.device.count('c', 1) == 0);
}

TEST_CASE("where nothing can be tried any more, what was measured decides, and the rest is untried") {
  for (int calls = 0; calls < 60; ++calls) {
    Scene scene({10'000, 9'000, 8'000});
    scene.device.calls_left = calls;
    Result<TuningResult> result = scene.tune();
    CAPTURE(calls);
    CHECK(scene.harmed.empty());
    if (!result.ok()) {
      CHECK(result.status().code() == Code::kLaunch);
      CHECK(result.status().message().find("nothing can be tried any more") != std::string::npos);
      CHECK(calls < 3 + 3 + 6 + 1);  // compiled, checked, warmed up, and one sample
      continue;
    }
    CHECK(result->best().state == CandidateState::kMeasured);
    for (const CandidateRecord& record : result->candidates)
      CHECK((record.state == CandidateState::kUntried) == record.samples.empty());
  }
}

TEST_CASE("known candidates stand where they can no longer be measured against a new one") {
  Scene first({10'000, 9'000});
  Result<TuningResult> result = first.tune();
  REQUIRE(result.ok());
  Scene later({10'000, 9'000, 9'100});
  later.request.known = result->candidates;
  later.device.calls_left = 40;
  Result<TuningResult> again = later.tune();
  REQUIRE(again.ok());
  CHECK(again->candidates[1].state != CandidateState::kUntried);
  CHECK(!again->candidates[1].samples.empty());
}

}  // namespace
}  // namespace kachel::tuner
