// What happens when candidates fail, time runs out or the host changes its mind.
#include <doctest/doctest.h>

#include <thread>

#include "simulated_device.h"
#include "tuner/tuner.h"

namespace kachel::tuner {
namespace {

struct Scene {
  explicit Scene(const std::vector<double>& base_ns)
      : device(clock, bases(base_ns)), request(request_for(base_ns.size())) {}
  Result<TuningResult> tune(const Progress& progress = {}) { return Tuner().tune(request, device, clock, progress); }

  FakeClock clock;
  SimulatedDevice device;
  TuneRequest request;
};

TEST_CASE("a fast wrong candidate is rejected and never timed") {
  Scene scene({10'000, 1'000, 12'000});
  scene.device.candidates[1].check = {Code::kInternal, "C[3, 5] is 7, expected 9"};
  Result<TuningResult> result = scene.tune();
  REQUIRE(result.ok());
  CHECK(result->winner == 0);
  CHECK(result->candidates[1].state == CandidateState::kRejectedWrong);
  CHECK(result->candidates[1].message == "C[3, 5] is 7, expected 9");
  CHECK(scene.device.count('r', 1) == 0);
  CHECK(result->ranking == std::vector<size_t>{0, 2});
  CHECK(result->counters.rejected == 1);
}

TEST_CASE("a check that could not run is a launch failure, not a wrong result") {
  Scene scene({10'000, 1'000});
  scene.device.candidates[1].check = {Code::kNoMemory, "no memory for scratch"};
  Result<TuningResult> result = scene.tune();
  REQUIRE(result.ok());
  CHECK(result->candidates[1].state == CandidateState::kLaunchFailed);
  CHECK(result->counters.rejected == 0);
}

TEST_CASE("some candidates do not compile") {
  Scene scene({9'000, 10'000, 8'000, 11'000});
  scene.device.candidates[0].compile = {Code::kCompile, "spills 64 bytes"};
  scene.device.candidates[2].compile = {Code::kCompile, "too much shared memory"};
  Result<TuningResult> result = scene.tune();
  REQUIRE(result.ok());
  CHECK(result->winner == 1);
  CHECK(result->candidates[0].state == CandidateState::kCompileFailed);
  CHECK(result->candidates[0].message == "spills 64 bytes");
  CHECK(result->counters.compiled == 2);
  CHECK(result->counters.compile_failed == 2);
  CHECK(scene.device.count('k') == 2);
}

TEST_CASE("nothing to serve is an error that names the reasons") {
  Scene compile({1, 1});
  for (auto& c : compile.device.candidates) c.compile = {Code::kCompile, "line 3: oops"};
  Status status = compile.tune().status();
  CHECK(status.code() == Code::kCompile);
  CHECK(status.message().find("line 3: oops") != std::string::npos);
  CHECK(status.log().find("i=1: compile_failed: line 3: oops") != std::string::npos);
  CHECK(compile.device.count('p') == 0);

  Scene wrong({1, 1});
  wrong.device.candidates[0].check = {Code::kInternal, "differs"};
  wrong.device.candidates[1].runs_before_failure = 1;
  status = wrong.tune().status();
  CHECK(status.code() == Code::kLaunch);
  CHECK(status.log().find("i=0: rejected_wrong: differs") != std::string::npos);
  CHECK(status.log().find("i=1: launch_failed: illegal address") != std::string::npos);
}

TEST_CASE("if whoever beat them fails, pruned candidates serve") {
  Scene scene({10'000, 16'000, 17'000});
  scene.device.candidates[0].runs_before_failure = 7;
  Result<TuningResult> result = scene.tune();
  REQUIRE(result.ok());
  CHECK(result->winner == 1);
  CHECK(result->best().state == CandidateState::kMeasured);
  CHECK(result->ranking == std::vector<size_t>{1, 2});
}

TEST_CASE("without an oracle nothing wins") {
  Scene scene({10'000});
  scene.device.prepare_status = {Code::kUnsupported, "no generic lowering"};
  CHECK(scene.tune().status().code() == Code::kUnsupported);
  CHECK(scene.device.count('r') == 0);
}

TEST_CASE("a lost device ends the tuning wherever it happens") {
  const Status lost{Code::kDeviceLost, "gone"};
  Scene compile({1, 1, 1}), check({1, 1, 1}), run({1, 1, 1});
  compile.device.candidates[1].compile = lost;
  CHECK(compile.tune().status().code() == Code::kDeviceLost);
  CHECK(compile.device.count('p') == 0);
  check.device.candidates[1].check = lost;
  CHECK(check.tune().status().code() == Code::kDeviceLost);
  CHECK(check.device.count('r') == 0);
  run.device.candidates[1].runs_before_failure = 4;
  run.device.candidates[1].launch_failure = lost;
  CHECK(run.tune().status().code() == Code::kDeviceLost);
}

TEST_CASE("an empty budget measures the default and nothing else") {
  Scene scene({12'000, 10'000, 11'000});
  scene.request.default_index = 1;
  scene.request.budget_ns = 0;
  scene.request.workers = 1;
  Result<TuningResult> result = scene.tune();
  REQUIRE(result.ok());
  CHECK(result->winner == 1);
  CHECK(result->budget_exhausted);
  CHECK(result->counters.compiled == 1);
  CHECK(scene.device.runs() == std::vector<size_t>{1});
  CHECK(result->candidates[0].state == CandidateState::kUntried);
  CHECK(result->candidates[0].message.find("budget") != std::string::npos);
}

TEST_CASE("with an empty budget and a default that fails, the next one is taken") {
  Scene scene({9'000, 10'000, 11'000, 12'000});
  scene.request.budget_ns = 0;
  scene.request.workers = 1;
  scene.device.candidates[0].compile = {Code::kCompile, "no"};
  scene.device.candidates[1].check = {Code::kInternal, "wrong"};
  scene.device.candidates[2].runs_before_failure = 0;
  Result<TuningResult> result = scene.tune();
  REQUIRE(result.ok());
  CHECK(result->winner == 3);
}

TEST_CASE("compiling takes half of what is left of the budget at most") {
  Scene scene(std::vector<double>(10, 10'000));
  for (auto& c : scene.device.candidates) c.compile_ns = 100'000'000;
  scene.request.budget_ns = 600'000'000;
  scene.request.workers = 1;
  Result<TuningResult> result = scene.tune();
  REQUIRE(result.ok());
  CHECK(result->counters.compiled == 5);  // three, and two more when those had been measured
  CHECK(result->counters.measured == 5);
  CHECK(result->budget_exhausted);
  CHECK(result->candidates[9].state == CandidateState::kUntried);
  CHECK(result->candidates[0].samples[0].ns.size() == 10);
}

TEST_CASE("a budget that ends among the rounds stops with the best so far") {
  Scene scene({12'000'000, 10'000'000, 11'000'000});
  scene.device.noise = 0.01;
  scene.request.budget_ns = 250'000'000;  // 6 warm-up runs and 5 rounds
  Result<TuningResult> result = scene.tune();
  REQUIRE(result.ok());
  CHECK(result->winner == 1);
  CHECK(result->budget_exhausted);
  CHECK(result->total_ns < 270'000'000);
}

TEST_CASE("checking takes half of a budget at most and leaves the others untried") {
  Scene scene({12'000, 10'000, 11'000, 9'000});
  scene.device.check_ns = 1'000'000;
  scene.request.budget_ns = 3'500'000;
  Result<TuningResult> result = scene.tune();
  REQUIRE(result.ok());
  CHECK(scene.device.count('k') == 2);
  CHECK(result->winner == 1);
  CHECK(result->candidates[2].state == CandidateState::kUntried);
  CHECK(result->candidates[3].state == CandidateState::kUntried);
}

TEST_CASE("the host cancels at any event") {
  // Count the events, then cancel at each of them in turn.
  auto tune = [](size_t cancel_at, size_t& events) {
    Scene scene({10'000, 10'100, 1'000'000'000});
    scene.request.workers = 2;
    return scene.tune([&](const ProgressEvent&) { return ++events != cancel_at; }).status().code();
  };
  size_t total = 0;
  CHECK(tune(0, total) == Code::kOk);
  CHECK(total > 10);
  for (size_t at = 1; at <= total; ++at) {
    size_t seen = 0;
    CHECK(tune(at, seen) == Code::kCancelled);
    CHECK(seen == at);  // nothing is reported after the host has said no
  }
}

TEST_CASE("what a cancelled tuning has measured is known to the next one") {
  std::vector<CandidateRecord> left;
  uint64_t first_runs = 0;
  {
    Scene scene({10'000, 10'100, 40'000});
    scene.request.on_cancelled = [&](const std::vector<CandidateRecord>& records) { left = records; };
    size_t rounds = 0;
    CHECK(scene.tune([&](const ProgressEvent& e) { return e.phase != Phase::kMeasuring || ++rounds < 8; })
              .status()
              .code() == Code::kCancelled);
    first_runs = scene.device.count('r');
  }
  REQUIRE(left.size() == 3);
  CHECK(left[0].state == CandidateState::kMeasured);
  CHECK(left[2].state == CandidateState::kPruned);
  REQUIRE(left[0].samples.size() == 1);
  CHECK(left[0].samples[0].ns.size() >= 3);
  CHECK(left[0].median_ns > 9'000);
  // Nothing is missing, so nothing is run.
  Scene scene({10'000, 10'100, 40'000});
  scene.request.known = left;
  scene.request.on_cancelled = [](const std::vector<CandidateRecord>&) { FAIL("not cancelled"); };
  auto result = scene.tune();
  REQUIRE(result.ok());
  CHECK(result->winner == 0);
  CHECK(scene.device.count('r') == 0);
  CHECK(first_runs > 0);

  // Before the first sample there is nothing to keep.
  Scene early({10'000, 10'100});
  early.request.on_cancelled = [&](const std::vector<CandidateRecord>& records) { left = records; };
  CHECK(early.tune([](const ProgressEvent&) { return false; }).status().code() == Code::kCancelled);
  REQUIRE(left.size() == 2);
  CHECK(left[0].state == CandidateState::kUntried);
  CHECK(left[0].samples.empty());
}

TEST_CASE("cancelling while compiling starts no further compilation") {
  Scene scene(std::vector<double>(500, 10'000));
  scene.device.on_compile = [](size_t) { std::this_thread::sleep_for(std::chrono::milliseconds(1)); };
  CHECK(scene.tune([](const ProgressEvent&) { return false; }).status().code() == Code::kCancelled);
  CHECK(scene.device.count('c') < 500);
}

TEST_CASE("slow candidates can be cancelled between two runs of a round") {
  Scene scene({1e9, 1e9, 1e9, 1e9});
  size_t measuring = 0;
  Status status =
      scene.tune([&](const ProgressEvent& e) { return e.phase != Phase::kMeasuring || ++measuring < 2; }).status();
  CHECK(status.code() == Code::kCancelled);
  CHECK(scene.device.count('r') == 2);
}

}  // namespace
}  // namespace kachel::tuner
