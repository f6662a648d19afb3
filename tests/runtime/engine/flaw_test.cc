// What the compiler says of a configuration decides whether tuning considers it.
#include <doctest/doctest.h>

#include "runtime/engine/report/tuning_view.h"
#include "tests/runtime/engine/engine_fixture.h"

namespace kachel::runtime {
namespace {

using tuner::CandidateState;
using tuner::Policy;

constexpr const char* kSerialised =
    "ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized";

TuningView view_of(KernelHandle& kernel) {
  HostTensorF32 a({64, 64}, 1), c({64, 64}, 0);
  Arg args[] = {a.tensor(), c.tensor(), float_arg(1)};
  auto view = read_tuning(kernel, args);
  REQUIRE_MESSAGE(view.ok(), view.status().message());
  return *std::move(view);
}

// BM=64 in both widths is by far the fastest.
void prefer_64(EngineFixture& fixture) {
  fixture.cost = [](int64_t bm, int64_t bn, const FakeLaunch&) { return bm == 64 ? 100 : 10'000 + bm + bn; };
}

TEST_CASE("spills and serialised instructions reject a configuration, in later processes too") {
  TempDir dir;
  for (int run = 0; run < 3; ++run) {
    EngineFixture fixture(dir.path());
    prefer_64(fixture);
    auto kernel = fixture.kernel();
    fixture.state().report_usage("f32[64, 16]", {255, 96, 0});
    fixture.state().report_usage("f32[16, 16]", {40, 0, 0});
    fixture.state().report_loss("f32[64, 32]", kSerialised);
    // In the last run two configurations have stored binaries and no samples.
    if (run == 2) {
      HostTensorF32 a({48, 64}, 1), c({48, 64}, 0);
      Arg args[] = {a.tensor(), c.tensor(), float_arg(1)};
      REQUIRE(kernel->launch(args, fixture.settings(Policy::kBlocking), nullptr).ok());
      auto view = read_tuning(*kernel, args);
      REQUIRE(view.ok());
      CHECK(view->candidates[4].state == CandidateState::kRejectedFlaw);
      CHECK(view->candidates[5].message == kSerialised);
    }
    REQUIRE(fixture.scale(*kernel, 64, 64, Policy::kBlocking).ok());
    CHECK(fixture.engine()->stats().compiles == (run == 0 ? 6 : 0));
    const TuningView view = view_of(*kernel);
    REQUIRE(view.candidates.size() == 6);
    CHECK(view.candidates[4].configuration == "BM=64,BN=16");
    CHECK(view.candidates[4].state == CandidateState::kRejectedFlaw);
    CHECK(view.candidates[4].message == "spills 96 bytes");
    CHECK(view.candidates[4].samples == 0);
    CHECK(view.candidates[5].state == CandidateState::kRejectedFlaw);
    CHECK(view.candidates[5].message == kSerialised);
    CHECK(view.candidates[0].state == CandidateState::kMeasured);
    CHECK(view.winner == 0);
  }
}

// kScale with further tunables.
Status launched(const std::string& further) {
  EngineFixture fixture;
  std::string text = kScale;
  const std::string last = "BN = 16 | 32";
  text.replace(text.find(last), last.size(), last + ", " + further);
  return fixture.scale(*fixture.kernel(text), 64, 64, Policy::kOff);
}

TEST_CASE("a tunable named cluster is a power of two, 8 at most") {
  CHECK(launched("cluster = 1 | 2 | 4 | 8").ok());
  CHECK(launched("cluster = 2").ok());
  for (const std::string blocks : {"0", "3", "6", "16", "2147483647"}) {
    const Status status = launched("cluster = " + blocks);
    CAPTURE(status.message());
    CHECK(status.code() == Code::kUnsupported);
    CHECK(status.message().find("cluster=" + blocks) != std::string::npos);
    CHECK(status.message().find("use 1, 2, 4 or 8") != std::string::npos);
  }
}

TEST_CASE("columns of a cluster divide it") {
  CHECK(launched("cluster = 4, cluster_columns = 1 | 2 | 4").ok());
  for (const std::string columns : {"0", "3", "8"}) {
    const Status status = launched("cluster = 4, cluster_columns = " + columns);
    CAPTURE(status.message());
    CHECK(status.code() == Code::kUnsupported);
    CHECK(status.message().find("cluster_columns=" + columns + " does not divide cluster=4") != std::string::npos);
  }
}

TEST_CASE("what spills for the sake of residency is compiled anew without it") {
  TempDir dir;
  for (int run = 0; run < 2; ++run) {
    EngineFixture fixture(dir.path());
    prefer_64(fixture);
    auto kernel = fixture.kernel();
    fixture.state().report_usage("f32[64, 16]", {96, 4, 0});
    fixture.state().report_usage("f32[16, 16]", {255, 4, 0});  // there are no more
    fixture.state().report_usage("roomy", {180, 0, 0});        // what is reported last counts
    REQUIRE(fixture.scale(*kernel, 64, 64, Policy::kBlocking).ok());
    CHECK(fixture.engine()->stats().compiles == (run == 0 ? 7 : 0));
    const TuningView view = view_of(*kernel);
    REQUIRE(view.candidates.size() == 6);
    CHECK(view.candidates[4].configuration == "BM=64,BN=16");
    CHECK(view.candidates[4].state != CandidateState::kRejectedFlaw);
    CHECK(view.candidates[0].state == CandidateState::kRejectedFlaw);
  }
}

TEST_CASE("what has no registers for as many blocks as it is asked for is compiled for one") {
  EngineFixture fixture;
  fixture.blocks = 2;
  prefer_64(fixture);
  auto kernel = fixture.kernel();
  fixture.state().reject_texts_with("close");
  REQUIRE(fixture.scale(*kernel, 64, 64, Policy::kBlocking).ok());
  const TuningView view = view_of(*kernel);
  REQUIRE(view.candidates.size() == 6);
  for (const auto& candidate : view.candidates) CHECK(candidate.state != CandidateState::kCompileFailed);
}

TEST_CASE("where every configuration spills, the fastest serves") {
  EngineFixture fixture;
  prefer_64(fixture);
  auto kernel = fixture.kernel();
  fixture.state().report_usage("f32[", {255, 8, 0});
  REQUIRE(fixture.scale(*kernel, 64, 64, Policy::kBlocking).ok());
  const TuningView view = view_of(*kernel);
  CHECK(view.winner == 4);
  CHECK(view.candidates[4].state == CandidateState::kMeasured);
}

TEST_CASE("policies that do not tune serve a configuration with a flaw as any other") {
  EngineFixture fixture;
  auto kernel = fixture.kernel();
  fixture.state().report_usage("f32[16, 16]", {255, 8, 0});
  REQUIRE(fixture.scale(*kernel, 64, 64, Policy::kOff).ok());
  CHECK(fixture.engine()->stats().compiles == 1);
}

}  // namespace
}  // namespace kachel::runtime
