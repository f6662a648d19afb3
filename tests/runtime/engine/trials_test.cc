// How many configurations a tuning measures, what the host's hooks say of them, and derived spaces.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <map>
#include <set>
#include <thread>

#include "runtime/engine/report/tuning_view.h"
#include "runtime/engine/specialise/configurations.h"
#include "runtime/engine/tuning_hooks.h"
#include "tests/runtime/engine/engine_fixture.h"

namespace kachel::runtime {
namespace {

using tuner::CandidateState;
using tuner::Policy;

constexpr int64_t kM = 512, kN = 256;

// kScale with other tunables.
std::string scale(const std::string& clauses) {
  std::string text = kScale;
  const size_t tune = text.find("tune ");
  return text.replace(tune, text.find('\n', tune) - tune, clauses);
}

struct Tuned : EngineFixture {
  explicit Tuned(std::string store = "", int32_t major = 9)
      : EngineFixture(std::move(store), {.multiprocessors = 132, .compute_major = major}) {
    predicts = true;
    cost = [](int64_t bm, int64_t bn, const FakeLaunch&) { return 1'000'000 / (bm + bn) + bm; };
  }
  Status tune(KernelHandle& kernel, uint32_t trials = 0, std::shared_ptr<const TuningHooks> hooks = nullptr) {
    HostTensorF32 a({kM, kN}, 1.5f), c({kM, kN}, -1);
    Arg args[] = {a.tensor(), c.tensor(), float_arg(2)};
    LaunchSettings launch = settings(Policy::kBlocking);
    launch.tune_trials = trials;
    launch.hooks = std::move(hooks);
    return kernel.launch(args, launch, nullptr);
  }
  TuningView view(KernelHandle& kernel) {
    HostTensorF32 a({kM, kN}, 1.5f), c({kM, kN}, -1);
    Arg args[] = {a.tensor(), c.tensor(), float_arg(2)};
    auto view = read_tuning(kernel, args);
    REQUIRE_MESSAGE(view.ok(), view.status().message());
    return *view;
  }
  std::set<std::string> tried(KernelHandle& kernel) {
    std::set<std::string> texts;
    for (const TuningView::Candidate& candidate : view(kernel).candidates)
      if (candidate.state != CandidateState::kUntried) texts.insert(candidate.configuration);
    return texts;
  }
};

TEST_CASE("what outputs are compared with is compiled beside the candidates") {
  Tuned fixture;
  std::atomic<int> candidates = 0;
  bool beside = false;
  fixture.options.compile_threads = 2;
  fixture.options.lower = [&, own = fixture.options.lower](const ir::Kernel& kernel, const lowering::Target& target,
                                                           uint64_t facts, const lowering::LowerOptions& how) {
    using namespace std::chrono;
    const int before = target.generic ? candidates.load() : candidates++;
    const auto end = steady_clock::now() + seconds(20);
    while (target.generic && !beside && steady_clock::now() < end) {
      std::this_thread::yield();
      beside = candidates > before;
    }
    return own(kernel, target, facts, how);
  };
  REQUIRE(fixture.tune(*fixture.kernel()).ok());
  CHECK(beside);
}

TEST_CASE("so many of a list are measured as the launch asks for, and more add to fewer") {
  TempDir dir;
  std::set<std::string> two;
  {
    Tuned fixture(dir.path());
    auto kernel = fixture.kernel();
    REQUIRE(fixture.tune(*kernel, 2).ok());
    two = fixture.tried(*kernel);
    CHECK(two.size() == 2);
    CHECK(fixture.engine()->stats().tunings == 1);
    // The same handle, then another one.
    REQUIRE(fixture.tune(*kernel, 2).ok());
    REQUIRE(fixture.tune(*kernel, 1).ok());
    CHECK(fixture.engine()->stats().tunings == 1);
  }
  Tuned fixture(dir.path());
  auto kernel = fixture.kernel();
  REQUIRE(fixture.tune(*kernel, 2).ok());
  CHECK(fixture.engine()->stats().measurements == 0);
  REQUIRE(fixture.tune(*kernel, 4).ok());
  CHECK(fixture.engine()->stats().tunings == 1);
  const std::set<std::string> four = fixture.tried(*kernel);
  CHECK(four.size() == 4);
  CHECK(std::includes(four.begin(), four.end(), two.begin(), two.end()));
  REQUIRE(fixture.tune(*kernel, 0).ok());  // all of a list
  CHECK(fixture.tried(*kernel).size() == 6);
  CHECK(fixture.engine()->stats().tunings == 2);
  REQUIRE(fixture.tune(*kernel, kAllTrials).ok());
  REQUIRE(fixture.tune(*kernel, 3).ok());
  CHECK(fixture.engine()->stats().tunings == 2);
}

TEST_CASE("the engine's number serves where a launch says none") {
  Tuned fixture;
  fixture.options.tune_trials = 3;
  auto kernel = fixture.kernel();
  HostTensorF32 a({kM, kN}, 1.5f), c({kM, kN}, -1);
  Arg args[] = {a.tensor(), c.tensor(), float_arg(2)};
  REQUIRE(kernel->launch(args, kernel->defaults(), nullptr).ok());
  CHECK(fixture.tried(*kernel).size() == 3);
}

TEST_CASE("of a derived space sixteen are measured, and a restart measures nothing") {
  TempDir dir;
  std::string winner;
  {
    Tuned fixture(dir.path());
    auto kernel = fixture.kernel(scale("tune auto BM, BN"));
    REQUIRE(fixture.tune(*kernel).ok());
    const TuningView view = fixture.view(*kernel);
    CHECK(view.candidates.size() > 20);
    CHECK(fixture.tried(*kernel).size() == kAutomaticTrials);
    REQUIRE(view.winner >= 0);
    winner = view.candidates[static_cast<size_t>(view.winner)].configuration;
    for (const TuningView::Candidate& candidate : view.candidates) CHECK(candidate.predicted_ns > 0);
    HostTensorF32 a({kM, kN}, 1.5f), c({kM, kN}, -1);
    Arg args[] = {a.tensor(), c.tensor(), float_arg(2)};
    const auto text = kernel->explain(args, fixture.settings(Policy::kOff), ExplainWhat::kSummary);
    REQUIRE_MESSAGE(text.ok(), text.status().message());
    CHECK(text->find(fmt::format("the fastest of 16 tuned, of {} derived", view.candidates.size())) != text->npos);
  }
  Tuned fixture(dir.path());
  auto kernel = fixture.kernel(scale("tune auto BM, BN"));
  REQUIRE(fixture.tune(*kernel).ok());
  CHECK(fixture.engine()->stats().measurements == 0);
  CHECK(fixture.engine()->stats().compiles == 0);
  const TuningView view = fixture.view(*kernel);
  CHECK(view.from_store);
  CHECK(view.candidates[static_cast<size_t>(view.winner)].configuration == winner);
  REQUIRE(fixture.tune(*kernel, 20).ok());
  CHECK(fixture.engine()->stats().compiles == 4);
  CHECK(fixture.tried(*kernel).size() == 20);
}

TEST_CASE("a device without a cost model measures all of the few that are derived") {
  Tuned fixture("", 0);
  auto kernel = fixture.kernel(scale("tune auto BM, BN"));
  REQUIRE(fixture.tune(*kernel).ok());
  CHECK(fixture.view(*kernel).candidates.size() <= kAutomaticTrials);
  CHECK(fixture.tried(*kernel).size() == fixture.view(*kernel).candidates.size());
}

TEST_CASE("where prunes a derived space, and says so where nothing is left") {
  Tuned fixture;
  auto kernel = fixture.kernel(scale("where BM * BN == 1024 && M > 0\ntune auto BM, BN"));
  REQUIRE(fixture.tune(*kernel).ok());
  for (const TuningView::Candidate& candidate : fixture.view(*kernel).candidates) {
    long long bm = 0, bn = 0;
    REQUIRE(std::sscanf(candidate.configuration.c_str(), "BM=%lld,BN=%lld", &bm, &bn) == 2);
    CHECK(bm * bn == 1024);
  }
  auto none = fixture.kernel(scale("where BM > 9000\ntune auto BM, BN"));
  const Status status = fixture.tune(*none);
  CHECK(status.code() == Code::kInvalid);
  CHECK(status.message().find("none of the values that `tune auto` derives for") != std::string::npos);
}

TEST_CASE("a configuration of a derived space may be given, within its limits") {
  Tuned fixture;
  auto kernel = fixture.kernel(scale("tune auto BM, BN"));
  HostTensorF32 a({kM, kN}, 1.5f), c({kM, kN}, -1);
  Arg args[] = {a.tensor(), c.tensor(), float_arg(2)};
  LaunchSettings given = fixture.settings(Policy::kOff);
  given.has_configuration = true;
  given.configuration = "BM=24,BN=40";
  CHECK(kernel->launch(args, given, nullptr).ok());
  for (const char* wrong : {"BM=0,BN=40", "BM=9000,BN=40"}) {
    given.configuration = wrong;
    const Status status = kernel->launch(args, given, nullptr);
    CHECK(status.code() == Code::kInvalid);
    CHECK(status.message().find("use one of 1 to 8192") != std::string::npos);
  }
}

TEST_CASE("shapes of one bucket have one space") {
  Tuned fixture;
  std::string text = scale("tune auto BM, BN");
  text.replace(text.find("key M, N"), 8, "key bucket(M), N");
  auto kernel = fixture.kernel(text);
  REQUIRE(fixture.scale(*kernel, 300, kN, Policy::kBlocking).ok());
  const uint64_t measured = fixture.engine()->stats().measurements;
  REQUIRE(fixture.scale(*kernel, 400, kN, Policy::kBlocking).ok());
  CHECK(fixture.engine()->stats().measurements == measured);
}

std::shared_ptr<TuningHooks> hooks() {
  return std::make_shared<TuningHooks>();
}

TEST_CASE("prune keeps what the host keeps; a decision covers what it dropped") {
  TempDir dir;
  {
    Tuned fixture(dir.path());
    auto kernel = fixture.kernel();
    auto host = hooks();
    host->prune = [&](const TuningCase& tuning, const TuningHooks::Candidates& all, std::vector<uint8_t>* keep) {
      CHECK(tuning.model.kernel.name == "scale");
      CHECK(tuning.dims[0] == kM);
      CHECK(tuning.device == kFakeRef);
      for (size_t i = 0; i < all.size(); ++i) (*keep)[i] = all[i][1] == 32;
      return Status();
    };
    REQUIRE(fixture.tune(*kernel, 0, host).ok());
    CHECK(fixture.tried(*kernel) == std::set<std::string>{"BM=16,BN=32", "BM=32,BN=32", "BM=64,BN=32"});
  }
  Tuned fixture(dir.path());
  auto kernel = fixture.kernel();
  REQUIRE(fixture.tune(*kernel).ok());
  CHECK(fixture.engine()->stats().measurements == 0);
}

TEST_CASE("predict decides which are measured") {
  Tuned fixture;
  auto kernel = fixture.kernel();
  auto host = hooks();
  host->predict = [](const TuningCase&, const TuningHooks::Candidates& all, std::vector<double>* ns) {
    for (size_t i = 0; i < all.size(); ++i) {
      CHECK(std::isnan((*ns)[i]));
      if (all[i][0] == 32) (*ns)[i] = static_cast<double>(all[i][1]);
    }
    return Status();
  };
  REQUIRE(fixture.tune(*kernel, 2, host).ok());
  CHECK(fixture.tried(*kernel) == std::set<std::string>{"BM=32,BN=16", "BM=32,BN=32"});
}

TEST_CASE("a benchmark of the host's runs candidates on private copies") {
  Tuned fixture;
  auto kernel = fixture.kernel();
  auto host = hooks();
  int asked = 0;
  host->benchmark = [&](const TuningCase&, const TunableValues& values,
                        TrialRuns& runs) -> Result<std::vector<double>> {
    ++asked;
    KACHEL_TRY(runs.restore());
    KACHEL_TRY(runs.flush());
    KACHEL_TRY(runs.launch(3));
    KACHEL_TRY(runs.synchronize());
    const double ns = values[0] == 64 && values[1] == 16 ? 10 : 20;
    return std::vector<double>{ns, ns, ns};
  };
  HostTensorF32 a({kM, kN}, 1.5f), c({kM, kN}, -1);
  Arg args[] = {a.tensor(), c.tensor(), float_arg(2)};
  LaunchSettings launch = fixture.settings(Policy::kBlocking);
  launch.hooks = host;
  REQUIRE(kernel->prepare(args, launch, nullptr).ok());
  CHECK(asked == 6);
  CHECK(std::all_of(c.data.begin(), c.data.end(), [](float value) { return value == -1; }));
  const TuningView view = fixture.view(*kernel);
  CHECK(view.candidates[static_cast<size_t>(view.winner)].configuration == "BM=64,BN=16");
  CHECK(view.candidates[static_cast<size_t>(view.winner)].median_ns == 10);
  CHECK(fixture.engine()->stats().measurements == 18);
}

TEST_CASE("hooks stand around every timed run, and runs are as many as asked for") {
  Tuned fixture;
  fixture.options.tuner.limits.block_ns = 0;
  auto kernel = fixture.kernel();
  auto host = hooks();
  int before = 0, after = 0;
  bool inside = false;
  host->before_run = [&](const TuningCase&, const TunableValues&, void*) {
    CHECK_FALSE(inside);
    inside = true;
    ++before;
    return Status();
  };
  host->after_run = [&](const TuningCase&, const TunableValues&, void*) {
    CHECK(inside);
    inside = false;
    ++after;
    return Status();
  };
  host->warmup_runs = 1;
  host->min_runs = host->max_runs = 5;
  REQUIRE(fixture.tune(*kernel, 0, host).ok());
  CHECK(before == after);
  CHECK(static_cast<uint64_t>(before) == fixture.engine()->stats().measurements);
  for (const TuningView::Candidate& candidate : fixture.view(*kernel).candidates)
    CHECK((candidate.samples <= 5 && candidate.samples >= 1));
  CHECK(before <= 6 * (1 + 5));
}

TEST_CASE("whatever callback fails ends the tuning, with its words, and what was measured is kept") {
  for (int which = 0; which < 5; ++which) {
    CAPTURE(which);
    Tuned fixture;
    auto kernel = fixture.kernel();
    auto host = hooks();
    int calls = 0;
    const Status stop(Code::kCancelled, "the host has had enough");
    if (which == 0) host->prune = [&](auto&, auto&, auto*) { return stop; };
    if (which == 1) host->predict = [&](auto&, auto&, auto*) { return stop; };
    if (which == 2) host->before_run = [&](auto&, auto&, void*) { return ++calls > 40 ? stop : Status(); };
    if (which == 3) host->after_run = [&](auto&, auto&, void*) { return ++calls > 40 ? stop : Status(); };
    if (which == 4)
      host->benchmark = [&](auto&, auto&, TrialRuns&) -> Result<std::vector<double>> {
        if (++calls > 2) return stop;
        return std::vector<double>{1, 1, 1};
      };
    const Status status = fixture.tune(*kernel, 0, host);
    CHECK(status.code() == Code::kCancelled);
    CHECK(status.message().find("the host has had enough") != std::string::npos);
    CHECK(fixture.engine()->stats().tunings == 0);
    REQUIRE(fixture.tune(*kernel).ok());
    CHECK(fixture.engine()->stats().tunings == 1);
  }
}

TEST_CASE("a host that keeps nothing is told so") {
  Tuned fixture;
  auto kernel = fixture.kernel();
  auto host = hooks();
  host->prune = [](const TuningCase&, const TuningHooks::Candidates&, std::vector<uint8_t>* keep) {
    std::fill(keep->begin(), keep->end(), 0);
    return Status();
  };
  const Status status = fixture.tune(*kernel, 0, host);
  CHECK(status.code() == Code::kInvalid);
  CHECK(status.message().find("`prune` keeps none of 6 configurations; keep one at least") != std::string::npos);
}

TEST_CASE("a launch that fails in the host's benchmark is the candidate's failure") {
  Tuned fixture;
  auto kernel = fixture.kernel();
  auto host = hooks();
  host->benchmark = [&](const TuningCase&, const TunableValues& values,
                        TrialRuns& runs) -> Result<std::vector<double>> {
    if (values[0] == 16) fixture.state().fail(FakeCall::kLaunch, 1, Status(Code::kLaunch, "the driver refuses"));
    (void)runs.launch(1);
    return std::vector<double>{5, 5, 5};
  };
  REQUIRE(fixture.tune(*kernel, 0, host).ok());
  for (const TuningView::Candidate& candidate : fixture.view(*kernel).candidates)
    CHECK((candidate.state == CandidateState::kLaunchFailed) == (candidate.configuration.substr(0, 5) == "BM=16"));
}

}  // namespace
}  // namespace kachel::runtime
