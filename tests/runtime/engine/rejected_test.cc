// Candidates whose results are not the reference's.
#include "runtime/engine/report/tuning_view.h"
#include "tests/runtime/engine/engine_fixture.h"

namespace kachel::runtime {
namespace {

using tuner::Policy;

TEST_CASE("a fast candidate with a wrong result is rejected and stays so") {
  TempDir dir;
  for (int run = 0; run < 2; ++run) {
    EngineFixture fixture(dir.path());
    fixture.wrong_tile = "64, 32";
    fixture.cost = [](int64_t bm, int64_t bn, const FakeLaunch&) { return bm == 64 && bn == 32 ? 100 : 10'000; };
    auto kernel = fixture.kernel();
    REQUIRE(fixture.scale(*kernel, 64, 64, Policy::kBlocking).ok());
    HostTensorF32 a({64, 64}, 1), c({64, 64}, 0);
    Arg args[] = {a.tensor(), c.tensor(), float_arg(1)};
    auto view = read_tuning(*kernel, args);
    REQUIRE(view.ok());
    const auto& wrong = view->candidates[5];
    CHECK(wrong.configuration == "BM=64,BN=32");
    CHECK(wrong.state == tuner::CandidateState::kRejectedWrong);
    CHECK(wrong.message.find("1 of 4096 elements are wrong") != std::string::npos);
    CHECK(view->winner != 5);
  }
}

TEST_CASE("elements that hang on rounding may be apart, as many as they are in another order of sums") {
  for (const bool more : {false, true}) {
    EngineFixture fixture("", {.compute_major = 9});
    fixture.hangs = true;
    fixture.hangs_more = more;
    auto kernel = fixture.kernel();
    (void)fixture.scale(*kernel, 64, 64, Policy::kBlocking);  // which finds that elements are apart
    HostTensorF32 a({64, 64}, 1), c({64, 64}, 0);
    Arg args[] = {a.tensor(), c.tensor(), float_arg(1)};
    CHECK(kernel->launch(args, {.policy = Policy::kBlocking}, nullptr).ok() == !more);
    const auto view = read_tuning(*kernel, args);
    REQUIRE(view.ok() == !more);
    if (more) continue;
    for (const auto& candidate : view->candidates) CHECK(candidate.state != tuner::CandidateState::kRejectedWrong);
  }
}

TEST_CASE("differences of long sums may be four times as far apart as another order puts them, within what is small") {
  struct Row {
    float drift, candidates;
    bool right;
  };
  for (const auto& [drift, candidates, right] :
       {Row{1e-4f, 3e-4f, true}, {1e-4f, 6e-4f, false}, {1e-6f, 3e-4f, false}, {2e-3f, 7e-3f, false}}) {
    CAPTURE(drift);
    CAPTURE(candidates);
    EngineFixture fixture("", {.compute_major = 9});
    fixture.drift = drift;
    fixture.candidates_drift = candidates;
    auto kernel = fixture.kernel();
    HostTensorF32 a({64, 64}, 1), c({64, 64}, 0);
    Arg args[] = {a.tensor(), c.tensor(), float_arg(1)};
    CHECK(kernel->launch(args, {.policy = Policy::kBlocking}, nullptr).ok() == right);
  }
}

}  // namespace
}  // namespace kachel::runtime
