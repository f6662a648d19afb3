// The policy background: what serves at once, what is tuned later, and on which memory.
#include <limits>
#include <mutex>
#include <thread>

#include "tests/runtime/engine/background_fixture.h"

namespace kachel::runtime {
namespace {

using tuner::Policy;

TEST_CASE("a launch is served at once by the first listed, later by the winner") {
  BackgroundFixture fixture;
  auto kernel = fixture.kernel();
  REQUIRE(fixture.scale(*kernel, 64, 64, Policy::kBackground).ok());
  CHECK(fixture.served() == "16, 16");
  CHECK(fixture.engine()->stats().tunings == 0);
  REQUIRE(fixture.scale(*kernel, 64, 64, Policy::kBackground).ok());
  CHECK(fixture.served() == "16, 16");
  fixture.settle();
  EngineStats stats = fixture.engine()->stats();
  CHECK(stats.tunings == 1);
  CHECK(stats.background_tunings == 1);
  CHECK(stats.background_failures == 0);
  CHECK(stats.background_pending == 0);
  const uint64_t measurements = stats.measurements;
  for (Policy policy : {Policy::kBackground, Policy::kBlocking, Policy::kOff, Policy::kCachedOnly}) {
    REQUIRE(fixture.scale(*kernel, 64, 64, policy).ok());
    CHECK(fixture.served() == "32, 16");
  }
  CHECK(fixture.engine()->background().wait(0));
  stats = fixture.engine()->stats();
  CHECK(stats.measurements == measurements);
  CHECK(stats.background_tunings == 1);
  CHECK(fixture.state().live_allocations() == 0);
  CHECK(fixture.state().guards_intact());
}

TEST_CASE("arguments may be overwritten and freed as soon as the call returns") {
  BackgroundFixture fixture;
  auto kernel = fixture.kernel();
  {
    HostTensorF32 a({48, 36}, 1.5f), c({48, 36}, -1);
    Arg args[] = {a.tensor(), c.tensor(), float_arg(2)};
    REQUIRE(kernel->launch(args, fixture.settings(Policy::kBackground), nullptr).ok());
    for (float value : c.data) REQUIRE(value == 3);
    a.data.assign(a.data.size(), std::numeric_limits<float>::quiet_NaN());
    a.shape.assign(2, -7);
    a.strides.assign(2, int64_t{1} << 40);
  }
  fixture.settle();
  CHECK(fixture.engine()->stats().background_tunings == 1);
  CHECK_FALSE(fixture.read_strange_inputs());
  CHECK(fixture.state().guards_intact());
  CHECK(fixture.state().live_allocations() == 0);
}

TEST_CASE("copies of the arguments keep their facts") {
  BackgroundFixture fixture;
  auto kernel = fixture.kernel();
  HostTensorF32 a({64, 64}, 1.5f), c({64, 64}, -1);
  a.arg.byte_offset = 4;  // no row begins at a multiple of 16 bytes
  a.shape[0] = 63;
  c.shape[0] = 63;
  Arg args[] = {a.tensor(), c.tensor(), float_arg(2)};
  REQUIRE(kernel->launch(args, fixture.settings(Policy::kBackground), nullptr).ok());
  fixture.settle();
  const uint64_t specialisations = fixture.engine()->stats().specialisations;
  REQUIRE(kernel->launch(args, fixture.settings(Policy::kBackground), nullptr).ok());
  CHECK(fixture.served() == "32, 16");
  CHECK(fixture.engine()->stats().specialisations == specialisations);
  CHECK(fixture.engine()->background().wait(0));
}

TEST_CASE("a key whose copies are too large is left as it is served, and asked once") {
  BackgroundFixture fixture;
  fixture.options.background_bytes = 4096;
  std::vector<std::string> lines;
  fixture.options.log = [&](LogLevel, std::string_view line) { lines.emplace_back(line); };
  auto kernel = fixture.kernel();
  for (int i = 0; i < 3; ++i) REQUIRE(fixture.scale(*kernel, 64, 64, Policy::kBackground).ok());
  fixture.settle();
  const EngineStats stats = fixture.engine()->stats();
  CHECK(stats.background_failures == 1);
  CHECK(stats.tunings == 0);
  CHECK(fixture.served() == "16, 16");
  const auto told = std::count_if(lines.begin(), lines.end(), [](const std::string& line) {
    return line.find("not tuned in the background") != line.npos && line.find("4096") != line.npos;
  });
  CHECK(told == 1);
}

TEST_CASE("keys whose copies have no room yet are tuned when there is some") {
  BackgroundFixture fixture;
  fixture.options.background_bytes = 40'000;  // one launch's copies take 33792 bytes
  auto kernel = fixture.kernel();
  for (int64_t m : {64, 63, 62}) REQUIRE(fixture.scale(*kernel, m, 64, Policy::kBackground).ok());
  CHECK(fixture.state().live_bytes() < 2 * 33'792 + 1);
  fixture.settle();
  CHECK(fixture.engine()->stats().tunings == 1);
  for (uint64_t tunings : {2, 3, 3}) {
    for (int64_t m : {64, 63, 62}) REQUIRE(fixture.scale(*kernel, m, 64, Policy::kBackground).ok());
    fixture.settle();
    CHECK(fixture.engine()->stats().tunings == tunings);
  }
  CHECK(fixture.engine()->stats().background_failures == 0);
  CHECK(fixture.engine()->background_taken() == 0);
}

TEST_CASE("a tuning that fails leaves what serves, and is not tried again") {
  BackgroundFixture fixture;
  auto kernel = fixture.kernel();
  fixture.state().fail(FakeCall::kCreateStream, 1, Status(Code::kNoMemory, "no stream"));
  fixture.gate.open();
  for (int i = 0; i < 3; ++i) {
    REQUIRE(fixture.scale(*kernel, 64, 64, Policy::kBackground).ok());
    fixture.settle();
  }
  CHECK(fixture.engine()->stats().background_failures == 1);
  CHECK(fixture.engine()->stats().tunings == 0);
  CHECK(fixture.served() == "16, 16");
  // Another key is another matter.
  REQUIRE(fixture.scale(*kernel, 64, 32, Policy::kBackground).ok());
  fixture.settle();
  CHECK(fixture.engine()->stats().tunings == 1);
}

TEST_CASE("a kernel that is released ends its tuning") {
  BackgroundFixture fixture;
  auto kernel = fixture.kernel();
  REQUIRE(fixture.scale(*kernel, 64, 64, Policy::kBackground).ok());
  REQUIRE(fixture.scale(*kernel, 32, 64, Policy::kBackground).ok());
  fixture.gate.wait_until_reached();
  std::thread release([&] { kernel.reset(); });
  // It waits for the tuning that runs, and drops the one that does not.
  while (fixture.engine()->background().pending() > 1) std::this_thread::yield();
  fixture.gate.open();
  release.join();
  CHECK(fixture.engine()->background().pending() == 0);
  CHECK(fixture.engine()->stats().tunings == 0);
  CHECK(fixture.state().live_allocations() == 0);
}

TEST_CASE("a tuning that waits for another one's of its key can be ended") {
  BackgroundFixture fixture;
  auto first = fixture.kernel(), second = fixture.kernel();
  Status blocked;
  std::thread tunes([&] { blocked = fixture.scale(*first, 64, 64, Policy::kBlocking); });
  fixture.gate.wait_until_reached();
  REQUIRE(fixture.scale(*second, 64, 64, Policy::kBackground).ok());
  second.reset();  // while the gate is closed
  CHECK(fixture.engine()->background().pending() == 0);
  fixture.gate.open();
  tunes.join();
  CHECK(blocked.ok());
  CHECK(fixture.engine()->stats().tunings == 1);
}

TEST_CASE("what a tuning had measured when it was ended is not measured again") {
  TempDir dir;
  uint64_t measured = 0;
  {
    BackgroundFixture fixture(dir.path());
    std::atomic<int> rounds{0};
    fixture.options.progress = [&](const TuneProgress& progress) {
      if (progress.phase == tuner::Phase::kMeasuring && ++rounds == 8) fixture.gate.pass();
      return true;
    };
    auto kernel = fixture.kernel();
    REQUIRE(fixture.scale(*kernel, 64, 64, Policy::kBackground).ok());
    fixture.gate.wait_until_reached();
    measured = fixture.engine()->stats().measurements;
    std::thread release([&] { kernel.reset(); });
    while (!fixture.engine()->background().ends()) std::this_thread::yield();
    fixture.gate.open();
    release.join();
    CHECK(fixture.engine()->stats().tunings == 0);
  }
  CHECK(measured > 0);
  BackgroundFixture fixture(dir.path());
  auto kernel = fixture.kernel();
  REQUIRE(fixture.scale(*kernel, 64, 64, Policy::kBackground).ok());
  fixture.settle();
  CHECK(fixture.engine()->stats().background_tunings == 1);
  CHECK(fixture.engine()->stats().measurements < measured);
}

TEST_CASE("shapes of one bucket are tuned once") {
  BackgroundFixture fixture;
  std::string text = kScale;
  text.replace(text.find("key M, N"), 8, "key bucket(M), N");
  auto kernel = fixture.kernel(text);
  for (int64_t m : {33, 50, 64}) REQUIRE(fixture.scale(*kernel, m, 64, Policy::kBackground).ok());
  CHECK(fixture.engine()->stats().background_pending == 1);
  fixture.settle();
  CHECK(fixture.engine()->stats().tunings == 1);
  for (int64_t m : {33, 50, 64, 40}) {
    REQUIRE(fixture.scale(*kernel, m, 64, Policy::kBackground).ok());
    CHECK(fixture.served() == "32, 16");
  }
  CHECK(fixture.engine()->background().wait(0));
  CHECK(fixture.engine()->stats().background_tunings == 1);
}

TEST_CASE("an unknown key is served as the nearest known one") {
  BackgroundFixture fixture;
  fixture.gate.open();
  auto kernel = fixture.kernel();
  for (Policy policy : {Policy::kBlocking, Policy::kOff}) {
    REQUIRE(fixture.scale(*kernel, 64, 64, policy).ok());
    CHECK(fixture.served() == "32, 16");
  }
  // A key far away whose winner is another one.
  fixture.cost = [own = fixture.cost](int64_t bm, int64_t bn, const FakeLaunch& launch) -> int64_t {
    const int64_t usual = own(bm, bn, launch);
    return bm == 64 && bn == 32 ? 1'000 : usual;
  };
  REQUIRE(fixture.scale(*kernel, 4, 4, Policy::kBlocking).ok());
  CHECK(fixture.served() == "64, 32");
  REQUIRE(fixture.scale(*kernel, 60, 80, Policy::kOff).ok());
  CHECK(fixture.served() == "32, 16");
  REQUIRE(fixture.scale(*kernel, 8, 4, Policy::kOff).ok());
  CHECK(fixture.served() == "64, 32");
  CHECK(fixture.engine()->stats().tunings == 2);
}

TEST_CASE("a capture is not disturbed") {
  BackgroundFixture fixture;
  auto kernel = fixture.kernel();
  void* stream = reinterpret_cast<void*>(uintptr_t{0x77});
  fixture.state().set_capturing(stream, true);
  CHECK(fixture.scale(*kernel, 64, 64, Policy::kBackground, stream).code() == Code::kBusy);
  CHECK(fixture.engine()->stats().background_pending == 0);
  REQUIRE(fixture.scale(*kernel, 64, 64, Policy::kBackground).ok());
  CHECK(fixture.scale(*kernel, 64, 64, Policy::kBackground, stream).ok());
  fixture.settle();
  // What served is forgotten, and looking it up would load code.
  const Code code = fixture.scale(*kernel, 64, 64, Policy::kBackground, stream).code();
  CHECK((code == Code::kBusy || code == Code::kOk));
  fixture.state().set_capturing(stream, false);
  CHECK(fixture.scale(*kernel, 64, 64, Policy::kBackground, stream).ok());
  CHECK(fixture.state().capture_violations() == 0);
}

TEST_CASE("prepare and bind leave their tuning to later as well") {
  BackgroundFixture fixture;
  auto kernel = fixture.kernel();
  HostTensorF32 a({64, 64}, 1.5f), c({64, 64}, -1);
  Arg args[] = {a.tensor(), c.tensor(), float_arg(2)};
  REQUIRE(kernel->prepare(args, fixture.settings(Policy::kBackground), nullptr).ok());
  CHECK(c.data[5] == -1);
  auto bound = kernel->bind(args, fixture.settings(Policy::kBackground));
  REQUIRE(bound.ok());
  fixture.settle();
  CHECK(fixture.engine()->stats().background_tunings == 1);
  CHECK(c.data[5] == -1);
  // A bound call keeps what it was bound to.
  void* pointers[] = {a.data.data(), c.data.data()};
  const int64_t scalars[] = {static_cast<int64_t>(std::bit_cast<uint32_t>(2.0f))};
  REQUIRE((*bound)->launch(pointers, scalars, nullptr).ok());
  CHECK(fixture.served() == "16, 16");
  auto again = kernel->bind(args, fixture.settings(Policy::kBackground));
  REQUIRE(again.ok());
  REQUIRE((*again)->launch(pointers, scalars, nullptr).ok());
  CHECK(fixture.served() == "32, 16");
  CHECK(c.data[5] == 3);
}

TEST_CASE("a call bound on an empty grid has nothing to tune") {
  BackgroundFixture fixture;
  auto kernel = fixture.kernel();
  HostTensorF32 a({0, 16}, 1.5f), c({0, 16}, -1);
  Arg args[] = {a.tensor(), c.tensor(), float_arg(2)};
  LaunchSettings settings = fixture.settings(Policy::kBackground);
  settings.needs_code = true;
  REQUIRE(kernel->prepare(args, settings, nullptr).ok());
  fixture.settle();
  CHECK(fixture.engine()->stats().background_failures == 0);
  CHECK(fixture.engine()->stats().background_tunings == 0);
}

TEST_CASE("callbacks of the background may freeze the engine and do not wait for themselves") {
  BackgroundFixture fixture;
  Engine* engine = nullptr;
  std::atomic<int> waited{0};
  fixture.options.progress = [&](const TuneProgress&) {
    fixture.gate.pass();
    waited += engine->background().wait(-1);
    engine->freeze();
    return true;
  };
  engine = fixture.engine().get();
  auto kernel = fixture.kernel();
  REQUIRE(fixture.scale(*kernel, 64, 64, Policy::kBackground).ok());
  fixture.settle();
  CHECK(waited == 0);
  CHECK(engine->frozen());
  CHECK(engine->stats().tunings == 0);
}

TEST_CASE("a frozen engine tunes nothing and replaces nothing") {
  BackgroundFixture fixture;
  auto kernel = fixture.kernel();
  REQUIRE(fixture.scale(*kernel, 64, 64, Policy::kBackground).ok());
  fixture.gate.wait_until_reached();
  std::thread freeze([&] { fixture.engine()->freeze(); });
  while (!fixture.engine()->frozen()) std::this_thread::yield();
  fixture.gate.open();
  freeze.join();
  CHECK(fixture.engine()->background().wait(0));
  for (Policy policy : {Policy::kBackground, Policy::kBlocking, Policy::kOff}) {
    REQUIRE(fixture.scale(*kernel, 64, 64, policy).ok());
    CHECK(fixture.served() == "16, 16");
    REQUIRE(fixture.scale(*kernel, 32, 48, policy).ok());
    CHECK(fixture.served() == "16, 16");
  }
  CHECK(fixture.scale(*kernel, 8, 8, Policy::kCachedOnly).code() == Code::kNotCached);
  CHECK(fixture.engine()->stats().tunings == 0);
  CHECK(fixture.engine()->stats().background_pending == 0);
}

TEST_CASE("decisions of the background are stored") {
  TempDir dir;
  {
    BackgroundFixture fixture(dir.path());
    auto kernel = fixture.kernel();
    REQUIRE(fixture.scale(*kernel, 64, 64, Policy::kBackground).ok());
    fixture.settle();
  }
  BackgroundFixture fixture(dir.path());
  auto kernel = fixture.kernel();
  REQUIRE(fixture.scale(*kernel, 64, 64, Policy::kBackground).ok());
  CHECK(fixture.served() == "32, 16");
  const EngineStats stats = fixture.engine()->stats();
  CHECK(stats.compiles == 0);
  CHECK(stats.background_pending == 0);
}

TEST_CASE("threads launch while their keys are tuned") {
  BackgroundFixture fixture;
  fixture.gate.open();
  auto kernel = fixture.kernel();
  (void)fixture.state();
  std::atomic<int> failed{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      auto own = t % 2 ? kernel : fixture.kernel();
      for (int i = 0; i < 200; ++i)
        failed += !fixture.scale(*own, 1 + (i + t) % 9, 4 + 4 * (i % 3), Policy::kBackground).ok();
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(failed == 0);
  fixture.settle();
  CHECK(fixture.engine()->stats().background_failures == 0);
  CHECK(fixture.state().live_allocations() == 0);
  CHECK(fixture.state().guards_intact());
}

}  // namespace
}  // namespace kachel::runtime
