// What a launch costs in compiles, loads and measurements, seen in the counters of engine and device.
#include <thread>

#include "runtime/engine/report/tuning_view.h"
#include "runtime/engine/specialise/configurations.h"
#include "tests/runtime/engine/engine_fixture.h"

namespace kachel::runtime {
namespace {

using tuner::Policy;

TEST_CASE("two hundred shapes with equal facts compile and load once") {
  EngineFixture fixture;
  auto kernel = fixture.kernel();
  uint64_t seed = 1;
  for (int i = 0; i < 200; ++i) {
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    const int64_t m = 2 + static_cast<int64_t>(seed >> 40) % 60, n = 4 + static_cast<int64_t>(seed >> 50) % 16 * 4;
    Status status = fixture.scale(*kernel, m, n, Policy::kOff);
    REQUIRE_MESSAGE(status.ok(), status.message());
  }
  const EngineStats stats = fixture.engine()->stats();
  CHECK(stats.compiles == 1);
  CHECK(stats.loads == 1);
  CHECK(stats.lowerings == 1);
  CHECK(stats.measurements == 0);
  CHECK(stats.launches == 200);
  CHECK(stats.specialisations == 1);
  CHECK(fixture.state().count(FakeCall::kCompile) == 1);
  CHECK(fixture.state().count(FakeCall::kLoad) == 1);
  CHECK(fixture.state().count(FakeCall::kLaunch) == 200);
}

TEST_CASE("a launch is counted, checked and needs nothing the second time") {
  EngineFixture fixture;
  auto kernel = fixture.kernel();
  REQUIRE(fixture.scale(*kernel, 33, 20, Policy::kOff).ok());
  const int64_t compiles = fixture.state().count(FakeCall::kCompile);
  const cache::StoreStats before = fixture.engine()->store().stat();
  REQUIRE(fixture.scale(*kernel, 33, 20, Policy::kOff).ok());
  const cache::StoreStats after = fixture.engine()->store().stat();
  CHECK(fixture.state().count(FakeCall::kCompile) == compiles);
  CHECK(after.hits + after.misses == before.hits + before.misses);
}

TEST_CASE("a new fact or type is another binary, a new kernel handle is not") {
  EngineFixture fixture;
  auto kernel = fixture.kernel();
  REQUIRE(fixture.scale(*kernel, 16, 16, Policy::kOff).ok());
  HostTensorF32 a({16, 32}, 1), c({16, 16}, 0);
  a.shape = {16, 16};
  a.strides = {32, 2};
  Arg args[] = {a.tensor(), c.tensor(), float_arg(3)};
  REQUIRE(kernel->launch(args, fixture.settings(Policy::kOff), nullptr).ok());
  CHECK(c.data[7] == 3);
  CHECK(fixture.engine()->stats().compiles == 2);
  auto again = fixture.kernel();
  REQUIRE(fixture.scale(*again, 16, 16, Policy::kOff).ok());
  CHECK(fixture.engine()->stats().compiles == 2);
  CHECK(fixture.engine()->stats().loads == 2);
}

TEST_CASE("blocking tunes the first key; a second key only measures") {
  EngineFixture fixture;
  fixture.cost = [](int64_t bm, int64_t bn, const FakeLaunch&) {
    return bm == 32 && bn == 16 ? 5'000 : 10'000 + bm + bn;
  };
  auto kernel = fixture.kernel();
  REQUIRE(fixture.scale(*kernel, 64, 64, Policy::kBlocking).ok());
  EngineStats stats = fixture.engine()->stats();
  CHECK(stats.compiles == 6);
  CHECK(stats.tunings == 1);
  CHECK(stats.measurements > 20);
  const uint64_t measurements = stats.measurements;
  REQUIRE(fixture.scale(*kernel, 48, 64, Policy::kBlocking).ok());
  stats = fixture.engine()->stats();
  CHECK(stats.compiles == 6);
  CHECK(stats.loads == 6);
  CHECK(stats.tunings == 2);
  CHECK(stats.measurements > measurements);
  // Both keys again: nothing happens.
  const uint64_t before = stats.measurements;
  REQUIRE(fixture.scale(*kernel, 64, 64, Policy::kBlocking).ok());
  REQUIRE(fixture.scale(*kernel, 48, 64, Policy::kOff).ok());
  CHECK(fixture.engine()->stats().measurements == before);

  HostTensorF32 a({64, 64}, 1), c({64, 64}, 0);
  Arg args[] = {a.tensor(), c.tensor(), float_arg(1)};
  auto view = read_tuning(*kernel, args);
  REQUIRE_MESSAGE(view.ok(), view.status().message());
  REQUIRE(view->candidates.size() == 6);
  REQUIRE(view->winner >= 0);
  CHECK(view->candidates[static_cast<size_t>(view->winner)].configuration == "BM=32,BN=16");
  CHECK(view->candidates[static_cast<size_t>(view->winner)].median_ns == 5000);
  CHECK_FALSE(view->from_store);
}

TEST_CASE("a restart compiles, measures and lowers nothing, under every policy") {
  TempDir dir;
  {
    EngineFixture fixture(dir.path());
    fixture.cost = [](int64_t bm, int64_t, const FakeLaunch&) { return bm == 64 ? 4'000 : 9'000; };
    auto kernel = fixture.kernel();
    REQUIRE(fixture.scale(*kernel, 64, 64, Policy::kBlocking).ok());
    REQUIRE(fixture.engine()->store().stat().durable);
  }
  for (Policy policy : {Policy::kBlocking, Policy::kOff, Policy::kCachedOnly}) {
    EngineFixture fixture(dir.path());
    auto kernel = fixture.kernel();
    Status status = fixture.scale(*kernel, 64, 64, policy);
    REQUIRE_MESSAGE(status.ok(), status.message());
    const EngineStats stats = fixture.engine()->stats();
    CHECK(stats.compiles == 0);
    CHECK(stats.measurements == 0);
    CHECK(stats.lowerings == 0);
    CHECK(stats.tunings == 0);
    CHECK(stats.loads == 1);
    CHECK(stats.nvrtc_opened + stats.llvm_opened == 0);
    CHECK(stats.last_load_ns > 0);
    CHECK(fixture.state().count(FakeCall::kCompile) == 0);
    HostTensorF32 a({64, 64}, 1), c({64, 64}, 0);
    Arg args[] = {a.tensor(), c.tensor(), float_arg(1)};
    auto view = read_tuning(*kernel, args);
    REQUIRE(view.ok());
    CHECK(view->from_store);
    CHECK(view->candidates[static_cast<size_t>(view->winner)].configuration == "BM=64,BN=16");
  }
}

TEST_CASE("renaming everything finds what was stored; editing the list measures only what is new") {
  TempDir dir;
  auto cost = [](int64_t bm, int64_t, const FakeLaunch&) { return bm == 128 ? 3'000 : 10'000 + bm; };
  {
    EngineFixture fixture(dir.path());
    fixture.cost = cost;
    REQUIRE(fixture.scale(*fixture.kernel(), 64, 64, Policy::kBlocking).ok());
  }
  auto replace = [](std::string text, const std::string& from, const std::string& to) {
    for (size_t at = 0; (at = text.find(from, at)) != text.npos; at += to.size()) text.replace(at, from.size(), to);
    return text;
  };
  {
    EngineFixture fixture(dir.path());
    std::string renamed = replace(replace(replace(kScale, "scale", "other"), "BM", "rows"), "BN", "columns");
    REQUIRE(fixture.scale(*fixture.kernel(renamed), 64, 64, Policy::kBlocking).ok());
    CHECK(fixture.engine()->stats().compiles == 0);
    CHECK(fixture.engine()->stats().measurements == 0);
  }
  {
    EngineFixture fixture(dir.path());
    fixture.cost = cost;
    auto kernel = fixture.kernel(replace(kScale, "16 | 32 | 64", "128 | 64 | 16"));
    REQUIRE(fixture.scale(*kernel, 64, 64, Policy::kBlocking).ok());
    const EngineStats stats = fixture.engine()->stats();
    CHECK(stats.tunings == 1);
    CHECK(stats.compiles == 2);  // the two new configurations; the others have binaries and samples
    HostTensorF32 a({64, 64}, 1), c({64, 64}, 0);
    Arg args[] = {a.tensor(), c.tensor(), float_arg(1)};
    auto view = read_tuning(*kernel, args);
    REQUIRE(view.ok());
    CHECK(view->candidates[static_cast<size_t>(view->winner)].configuration == "BM=128,BN=16");
  }
}

TEST_CASE("cached_only refuses what is not stored") {
  EngineFixture fixture;
  auto kernel = fixture.kernel();
  Status untuned = fixture.scale(*kernel, 64, 64, Policy::kCachedOnly);
  CHECK(untuned.code() == Code::kNotCached);
  CHECK(untuned.message().find("blocking") != std::string::npos);
  CHECK(fixture.state().count(FakeCall::kCompile) == 0);
  // A stored binary of the first configuration is not a tuning.
  REQUIRE(fixture.scale(*kernel, 64, 64, Policy::kOff).ok());
  CHECK(fixture.scale(*kernel, 64, 64, Policy::kCachedOnly).code() == Code::kNotCached);
  REQUIRE(fixture.scale(*kernel, 64, 64, Policy::kBlocking).ok());
  CHECK(fixture.scale(*kernel, 64, 64, Policy::kCachedOnly).ok());
}

TEST_CASE("an empty grid does nothing") {
  EngineFixture fixture;
  auto kernel = fixture.kernel();
  HostTensorF32 a({0, 16}, 1), c({0, 16}, 0);
  Arg args[] = {a.tensor(), c.tensor(), float_arg(3)};
  for (Policy policy : {Policy::kOff, Policy::kBlocking, Policy::kCachedOnly})
    CHECK(kernel->launch(args, fixture.settings(policy), nullptr).ok());
  CHECK(fixture.engine()->stats().compiles == 0);
  CHECK(fixture.state().count(FakeCall::kLaunch) == 0);
  auto call = kernel->bind(args, fixture.settings(Policy::kOff));
  REQUIRE(call.ok());
  void* pointers[] = {nullptr, nullptr};
  int64_t scalars[] = {0};
  CHECK((*call)->launch(pointers, scalars, nullptr).ok());
}

TEST_CASE("exactly the configuration that was asked for") {
  EngineFixture fixture;
  auto kernel = fixture.kernel();
  HostTensorF32 a({64, 64}, 1), c({64, 64}, 0);
  Arg args[] = {a.tensor(), c.tensor(), float_arg(3)};
  std::string launched;
  fixture.cost = [&](int64_t bm, int64_t bn, const FakeLaunch&) {
    launched = fmt::format("{},{}", bm, bn);
    return 1000;
  };
  LaunchSettings settings = fixture.settings(Policy::kBlocking);
  settings.has_configuration = true;
  settings.configuration = "BN=32,BM=64";
  REQUIRE(kernel->launch(args, settings, nullptr).ok());
  CHECK(launched == "64,32");
  CHECK(fixture.engine()->stats().tunings == 0);
  settings.configuration = "BM=64";
  CHECK(kernel->launch(args, settings, nullptr).code() == Code::kInvalid);
  auto pruning =
      fixture.kernel(std::string(kScale).replace(std::string(kScale).find("key M, N"), 0, "where M % BM == 0\n"));
  HostTensorF32 a2({32, 64}, 1), c2({32, 64}, 0);
  Arg small[] = {a2.tensor(), c2.tensor(), float_arg(3)};
  settings.configuration = "BM=64,BN=16";
  CHECK(pruning->launch(small, settings, nullptr).code() == Code::kInvalid);
}

TEST_CASE("where on tunables prunes for the call at hand, whatever the key says") {
  EngineFixture fixture;
  fixture.cost = [](int64_t bm, int64_t, const FakeLaunch&) { return 20'000 - 100 * bm; };  // the largest tile is best
  std::string text = kScale;
  text.replace(text.find("key M, N"), 8, "where M % BM == 0\nkey bucket(M)");
  auto kernel = fixture.kernel(text);
  std::string tile;
  auto launch = [&](int64_t m) {
    HostTensorF32 a({m, 64}, 1.5f), c({m, 64}, 0);
    Arg args[] = {a.tensor(), c.tensor(), float_arg(2)};
    auto status = kernel->launch(args, fixture.settings(Policy::kBlocking), nullptr);
    if (!status.ok()) return status.message();
    CHECK(c.data.back() == 3);
    auto view = read_tuning(*kernel, args);
    return view.ok() ? view->candidates[static_cast<size_t>(view->winner)].configuration : view.status().message();
  };
  CHECK(launch(128) == "BM=64,BN=16");
  CHECK(launch(96) == "BM=32,BN=16");  // the same bucket, but 64 does not divide
  CHECK(launch(128) == "BM=64,BN=16");
  CHECK(launch(80) == "BM=16,BN=16");
  CHECK(launch(100).find("no configuration satisfies") != std::string::npos);
  CHECK(fixture.engine()->stats().compiles == 6);
}

TEST_CASE("a configuration that cannot be built is passed over") {
  EngineFixture fixture;
  fixture.refused_tile = "16, 16";
  auto kernel = fixture.kernel();
  REQUIRE(fixture.scale(*kernel, 64, 64, Policy::kOff).ok());
  CHECK(fixture.engine()->stats().compiles == 1);
  fixture.state().reject_texts_with("f32[32, 16]");
  REQUIRE(fixture.scale(*kernel, 48, 64, Policy::kBlocking).ok());
  HostTensorF32 a({48, 64}, 1), c({48, 64}, 0);
  Arg args[] = {a.tensor(), c.tensor(), float_arg(1)};
  auto view = read_tuning(*kernel, args);
  REQUIRE(view.ok());
  CHECK(view->candidates[0].state == tuner::CandidateState::kCompileFailed);
  CHECK(view->candidates[0].message.find("refused") != std::string::npos);
  CHECK(view->candidates[2].state == tuner::CandidateState::kCompileFailed);
  CHECK(view->winner == 1);
}

TEST_CASE("tuning leaves the caller's tensors alone") {
  EngineFixture fixture;
  // An inout kernel would drift if candidates ran on the caller's memory.
  auto kernel = fixture.kernel(R"(tile 1
kernel scale(A: f32[M, N], C: inout f32[M, N], s: f32)
key M
tune BM = 16 | 32 | 64
grid by < ceildiv(M, BM)
{
  fragment x: f32[BM, 16], y: f32[BM, 16]
  x = A[by*BM +: BM, 0 +: 16]
  y = C[by*BM +: BM, 0 +: 16]
  parallel i < BM, j < 16 { x[i, j] = x[i, j] * s + y[i, j] }
  C[by*BM +: BM, 0 +: 16] = x
})");
  fixture.state().set_default_kernel([](const FakeLaunch& launch) {
    const auto* slots = static_cast<const uint64_t*>(launch.params);
    const auto* a = reinterpret_cast<const float*>(slots[0]);
    auto* c = reinterpret_cast<float*>(slots[3]);
    for (uint64_t i = 0; i < slots[7] * slots[8]; ++i) c[i] += a[i];
  });
  HostTensorF32 a({64, 16}, 1), c({64, 16}, 5);
  Arg args[] = {a.tensor(), c.tensor(), float_arg(1)};
  Status status = kernel->prepare(args, fixture.settings(Policy::kBlocking), nullptr);
  REQUIRE_MESSAGE(status.ok(), status.message());
  CHECK(fixture.engine()->stats().measurements > 10);
  for (float value : c.data) REQUIRE(value == 5);
  CHECK(fixture.engine()->stats().launches == 0);
  REQUIRE(kernel->launch(args, fixture.settings(Policy::kBlocking), nullptr).ok());
  for (float value : c.data) REQUIRE(value == 6);
  CHECK(fixture.state().live_allocations() == 0);
  CHECK(fixture.state().guards_intact());
}

TEST_CASE("progress is reported with the program's names and may cancel") {
  EngineFixture fixture;
  int events = 0;
  bool named = false, done = false;
  fixture.options.progress = [&](const TuneProgress& progress) {
    ++events;
    named |= progress.configuration == "BM=64,BN=32";
    done |= progress.phase == tuner::Phase::kDone;
    return true;
  };
  REQUIRE(fixture.scale(*fixture.kernel(), 64, 64, Policy::kBlocking).ok());
  CHECK(events > 6);
  CHECK(named);
  CHECK(done);

  EngineFixture stopping;
  stopping.options.progress = [](const TuneProgress&) { return false; };
  auto kernel = stopping.kernel();
  CHECK(stopping.scale(*kernel, 64, 64, Policy::kBlocking).code() == Code::kCancelled);
  CHECK(stopping.scale(*kernel, 64, 64, Policy::kOff).ok());
  HostTensorF32 a({64, 64}, 1), c({64, 64}, 0);
  Arg args[] = {a.tensor(), c.tensor(), float_arg(1)};
  CHECK(read_tuning(*kernel, args).status().code() == Code::kNotCached);
}

TEST_CASE("a sole configuration wins without a tuning") {
  EngineFixture fixture;
  std::string text = kScale;
  const size_t tune = text.find("tune ");
  REQUIRE(tune != text.npos);
  text.replace(tune, text.find('\n', tune) - tune, "tune BM = 16, BN = 16");
  auto kernel = fixture.kernel(text);
  REQUIRE(fixture.scale(*kernel, 64, 64, Policy::kBlocking).ok());
  HostTensorF32 a({64, 64}, 1), c({64, 64}, 0);
  Arg args[] = {a.tensor(), c.tensor(), float_arg(1)};
  auto view = read_tuning(*kernel, args);
  REQUIRE(view.ok());
  REQUIRE(view->candidates.size() == 1);
  CHECK(view->winner == 0);
  CHECK(view->candidates[0].samples == 0);
  CHECK(!view->from_store);
}

TEST_CASE("bound calls patch pointers and scalars") {
  EngineFixture fixture;
  auto kernel = fixture.kernel();
  HostTensorF32 a({40, 24}, 2), b({40, 24}, 5), c({40, 24}, 0);
  Arg args[] = {a.tensor(), c.tensor(), float_arg(3)};
  auto call = kernel->bind(args, fixture.settings(Policy::kOff));
  REQUIRE_MESSAGE(call.ok(), call.status().message());
  CHECK(c.data[0] == 0);
  void* pointers[] = {b.data.data(), c.data.data()};
  int64_t scalars[] = {static_cast<int64_t>(std::bit_cast<uint32_t>(4.0f))};
  REQUIRE((*call)->launch(pointers, scalars, nullptr).ok());
  for (float value : c.data) REQUIRE(value == 20);
  CHECK(fixture.engine()->stats().launches == 1);
}

TEST_CASE("a bound call whose grid depends on a scalar follows it") {
  EngineFixture fixture;
  std::string text = kScale;
  text.replace(text.find("s: f32"), 6, "s: i32");
  text.replace(text.find("key M, N"), 8, "where s < 100");
  text.replace(text.find("ceildiv(M, BM)"), 14, "s");
  text.replace(text.find("x[i, j] * s"), 11, "x[i, j] * f32(s)");
  auto kernel = fixture.kernel(text);
  uint64_t tiles = 0;
  fixture.state().set_default_kernel(
      [&](const FakeLaunch& launch) { tiles = static_cast<const uint64_t*>(launch.params)[9]; });
  HostTensorF32 a({32, 16}, 2), c({32, 16}, 0);
  Arg args[] = {a.tensor(), c.tensor(), int_arg(0)};
  auto call = kernel->bind(args, fixture.settings(Policy::kBlocking));
  REQUIRE_MESSAGE(call.ok(), call.status().message());
  void* pointers[] = {a.data.data(), c.data.data()};
  for (int64_t s : {3, 7, 1}) {
    REQUIRE((*call)->launch(pointers, &s, nullptr).ok());
    CHECK(tiles == static_cast<uint64_t>(s));
  }
  const int64_t launches = fixture.state().count(FakeCall::kLaunch);
  int64_t s = 0;
  CHECK((*call)->launch(pointers, &s, nullptr).ok());
  CHECK(fixture.state().count(FakeCall::kLaunch) == launches);
  s = 100;
  CHECK((*call)->launch(pointers, &s, nullptr).code() == Code::kInvalid);
}

TEST_CASE("a bound call keeps to multiples that its binary relies on") {
  EngineFixture fixture;
  std::string text = kScale;
  text.replace(text.find("s: f32"), 6, "s: i32");
  text.replace(text.find("x[i, j] * s"), 11, "x[i, j] * f32(i / s)");
  auto kernel = fixture.kernel(text);
  HostTensorF32 a({32, 16}, 2), c({32, 16}, 0);
  void* pointers[] = {a.data.data(), c.data.data()};
  for (const int64_t bound : {32, 24}) {
    Arg args[] = {a.tensor(), c.tensor(), int_arg(bound)};
    auto call = kernel->bind(args, fixture.settings(Policy::kOff));
    REQUIRE_MESSAGE(call.ok(), call.status().message());
    for (int64_t s : {64, 48, 24, 0}) {
      const Status launched = (*call)->launch(pointers, &s, nullptr);
      CHECK(launched.ok() == (bound == 24 || s == 64));
      if (!launched.ok()) CHECK(launched.message().find("`s` is") != std::string::npos);
    }
  }
}

TEST_CASE("handles keep the engine alive") {
  std::shared_ptr<KernelHandle> kernel;
  EngineFixture fixture;
  {
    std::shared_ptr<Engine> engine = fixture.engine();
    kernel = fixture.kernel();
  }
  CHECK(fixture.scale(*kernel, 16, 16, Policy::kOff).ok());
}

TEST_CASE("a device that is not there is named") {
  EngineFixture fixture;
  auto kernel = fixture.kernel();
  HostTensorF32 a({16, 16}, 1, {2, 5}), c({16, 16}, 0, {2, 5});
  Arg args[] = {a.tensor(), c.tensor(), float_arg(1)};
  Status status = kernel->launch(args, fixture.settings(Policy::kOff), nullptr);
  CHECK(status.code() == Code::kNoDevice);
  CHECK(status.message().find("type 2 with id 5") != std::string::npos);
}

}  // namespace
}  // namespace kachel::runtime
