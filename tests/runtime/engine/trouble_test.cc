// Captured streams, failures at every step, damaged stores, lost devices.
#include <fstream>
#include <set>

#include "runtime/engine/report/tuning_view.h"
#include "runtime/engine/specialise/plan_record.h"
#include "tests/runtime/engine/engine_fixture.h"

namespace kachel::runtime {
namespace {

using tuner::Policy;

void* const kStream = reinterpret_cast<void*>(0x77);

TEST_CASE("under capture only what is loaded is launched") {
  EngineFixture fixture;
  auto kernel = fixture.kernel();
  FakeState& state = fixture.state();
  state.set_capturing(kStream, true);
  for (Policy policy : {Policy::kOff, Policy::kBlocking, Policy::kCachedOnly}) {
    Status busy = fixture.scale(*kernel, 64, 64, policy, kStream);
    CHECK(busy.code() == Code::kBusy);
    CHECK(busy.message().find("kachel_prepare") != std::string::npos);
  }
  CHECK(state.count(FakeCall::kCompile) == 0);
  CHECK(state.count(FakeCall::kLoad) == 0);
  // Prepared on another stream, it launches; another key does not.
  HostTensorF32 a({64, 64}, 1.5f), c({64, 64}, 0);
  Arg args[] = {a.tensor(), c.tensor(), float_arg(2)};
  REQUIRE(kernel->prepare(args, fixture.settings(Policy::kOff), nullptr).ok());
  CHECK(fixture.scale(*kernel, 64, 64, Policy::kOff, kStream).ok());
  CHECK(fixture.scale(*kernel, 32, 64, Policy::kOff, kStream).code() == Code::kBusy);
  LaunchSettings exact = fixture.settings(Policy::kOff);
  exact.has_configuration = true;
  exact.configuration = "BM=64,BN=32";
  CHECK(kernel->launch(args, exact, kStream).code() == Code::kBusy);
  CHECK(state.capture_violations() == 0);
}

TEST_CASE("under capture a binary with weaker facts serves") {
  EngineFixture fixture;
  auto kernel = fixture.kernel();
  HostTensorF32 wide({16, 32}, 2), c({16, 16}, 0);
  wide.shape = {16, 16};
  wide.strides = {32, 2};
  Arg strided[] = {wide.tensor(), c.tensor(), float_arg(2)};
  REQUIRE(kernel->prepare(strided, fixture.settings(Policy::kOff), nullptr).ok());
  fixture.state().set_capturing(kStream, true);
  // Unit strides offer more than that binary asks for.
  CHECK(fixture.scale(*kernel, 16, 16, Policy::kOff, kStream).ok());
  CHECK(fixture.engine()->stats().compiles == 1);
  fixture.state().set_capturing(kStream, false);
  // Without capture the binary made for them is used.
  CHECK(fixture.scale(*kernel, 16, 16, Policy::kOff, kStream).ok());
  CHECK(fixture.engine()->stats().compiles == 2);
  // And never the other way round.
  EngineFixture other;
  auto second = other.kernel();
  REQUIRE(other.scale(*second, 16, 16, Policy::kOff).ok());
  other.state().set_capturing(kStream, true);
  CHECK(second->launch(strided, other.settings(Policy::kOff), kStream).code() == Code::kBusy);
}

TEST_CASE("scratch is per resident block, stream-ordered, and never under capture unless bound") {
  EngineFixture fixture;
  fixture.workspace_bytes = 1024;
  uint64_t blocks = 0, workspace = 0;
  auto kernel = fixture.kernel();
  FakeState& state = fixture.state();
  state.set_default_kernel([&](const FakeLaunch& launch) {
    blocks = launch.dims.blocks;
    workspace = static_cast<const uint64_t*>(launch.params)[12];
  });
  HostTensorF32 a({640, 640}, 1), c({640, 640}, 0);
  Arg args[] = {a.tensor(), c.tensor(), float_arg(2)};
  REQUIRE(kernel->launch(args, fixture.settings(Policy::kOff), kStream).ok());
  CHECK(blocks == 4 * 8);  // multiprocessors * occupancy, of 1600 tiles
  CHECK(workspace != 0);
  CHECK(workspace % 256 == 0);
  CHECK(state.live_allocations() == 0);
  auto call = kernel->bind(args, fixture.settings(Policy::kOff));
  REQUIRE(call.ok());
  CHECK(state.live_allocations() == 1);
  CHECK(state.live_bytes() == 32 * 1024);
  state.set_capturing(kStream, true);
  CHECK(kernel->launch(args, fixture.settings(Policy::kOff), kStream).code() == Code::kBusy);
  void* pointers[] = {a.data.data(), c.data.data()};
  int64_t scalars[] = {0};
  CHECK((*call)->launch(pointers, scalars, kStream).ok());
  CHECK(state.capture_violations() == 0);
  state.set_capturing(kStream, false);
  call->reset();
  CHECK(state.live_allocations() == 0);
}

TEST_CASE("blocks of few threads go on to further tiles, others have one each") {
  for (const auto& [threads, blocks] : {std::pair{32, 4 * 8 * 8}, {64, 4 * 8 * 8}, {128, 1600}}) {
    EngineFixture fixture;
    fixture.threads = threads;
    auto kernel = fixture.kernel();
    uint64_t launched = 0;
    fixture.state().set_default_kernel([&](const FakeLaunch& launch) { launched = launch.dims.blocks; });
    HostTensorF32 a({640, 640}, 1), c({640, 640}, 0);
    Arg args[] = {a.tensor(), c.tensor(), float_arg(2)};
    REQUIRE(kernel->launch(args, fixture.settings(Policy::kOff), kStream).ok());
    CHECK(launched == static_cast<uint64_t>(blocks));  // of 1600 tiles; multiprocessors * occupancy * 8
  }
}

TEST_CASE("the host's scratch is used where it gives some") {
  EngineFixture fixture;
  fixture.workspace_bytes = 512;
  alignas(256) static char pool[1 << 16];
  int given = 0, returned = 0;
  bool refuse = false, misalign = false;
  void* stream_seen = nullptr;
  fixture.options.scratch.alloc = [&](DeviceRef device, size_t size, size_t align, void* stream) -> void* {
    CHECK(device == kFakeRef);
    CHECK(align == 256);
    CHECK(size <= sizeof(pool));
    stream_seen = stream;
    if (refuse) return nullptr;
    ++given;
    return pool + (misalign ? 8 : 0);
  };
  fixture.options.scratch.free = [&](DeviceRef, void* pointer, void*) {
    CHECK(static_cast<char*>(pointer) >= pool);
    ++returned;
  };
  auto kernel = fixture.kernel();
  fixture.state().set_default_kernel([](const FakeLaunch&) {});
  HostTensorF32 a({64, 64}, 1), c({64, 64}, 0);
  Arg args[] = {a.tensor(), c.tensor(), float_arg(2)};
  REQUIRE(kernel->launch(args, fixture.settings(Policy::kOff), kStream).ok());
  CHECK(stream_seen == kStream);
  CHECK(given == 1);
  CHECK(returned == 1);
  CHECK(fixture.state().count(FakeCall::kAllocate) == 0);
  refuse = true;
  CHECK(kernel->launch(args, fixture.settings(Policy::kOff), kStream).code() == Code::kNoMemory);
  refuse = false;
  misalign = true;
  CHECK(kernel->launch(args, fixture.settings(Policy::kOff), kStream).code() == Code::kInvalid);
}

// Every step fails once; afterwards the same call succeeds, the store serves, and nothing leaks. A failure costs the
// candidate that met it, and too little memory costs the tuning; only a device that refuses what every tuning begins
// with fails the call.
TEST_CASE("a failure at any step leaves a store that serves") {
  constexpr FakeCall kSteps[] = {
      FakeCall::kCompile, FakeCall::kLoad,         FakeCall::kFunction,    FakeCall::kLaunch,      FakeCall::kAllocate,
      FakeCall::kCopy,    FakeCall::kCreateStream, FakeCall::kSynchronize, FakeCall::kCreateTimer, FakeCall::kFlush};
  std::set<std::pair<FakeCall, int64_t>> failed;
  for (FakeCall step : kSteps)
    for (int64_t nth : {1, 2, 9})
      for (Code code : {Code::kLaunch, Code::kNoMemory}) {
        CAPTURE(static_cast<int>(step));
        CAPTURE(nth);
        CAPTURE(static_cast<int>(code));
        TempDir dir;
        {
          EngineFixture fixture(dir.path());
          auto kernel = fixture.kernel();
          FakeState& state = fixture.state();
          state.fail(step, nth, {code, "injected"});
          Status first = fixture.scale(*kernel, 64, 64, Policy::kBlocking);
          if (!first.ok()) {
            CHECK(code == Code::kLaunch);
            CHECK(first.code() == code);
            CHECK_MESSAGE(first.message().find("injected") != std::string::npos, first.message());
            failed.insert({step, nth});
          }
          state.fail(step, 1, {}, 0);
          Status second = fixture.scale(*kernel, 64, 64, Policy::kBlocking);
          REQUIRE_MESSAGE(second.ok(), second.message());
          CHECK(state.live_allocations() == 0);
          CHECK(state.guards_intact());
        }
        EngineFixture later(dir.path());
        Status served = later.scale(*later.kernel(), 64, 64, Policy::kBlocking);
        REQUIRE_MESSAGE(served.ok(), served.message());
        CHECK(later.engine()->stats().store_damaged == 0);
      }
  const std::set<std::pair<FakeCall, int64_t>> expected = {
      {FakeCall::kAllocate, 1}, {FakeCall::kCreateStream, 1}, {FakeCall::kSynchronize, 1}, {FakeCall::kCreateTimer, 1}};
  CHECK(failed == expected);
}

TEST_CASE("nothing is stored after the device is lost") {
  TempDir dir;
  {
    EngineFixture fixture(dir.path());
    auto kernel = fixture.kernel();
    FakeState& state = fixture.state();
    REQUIRE(fixture.scale(*kernel, 64, 64, Policy::kOff).ok());
    const uint64_t entries = fixture.engine()->store().stat().entries;
    CHECK(entries == 1);
    int64_t launches = 0;
    fixture.cost = [&](int64_t, int64_t, const FakeLaunch&) {
      if (++launches == 40) state.lose();
      return 10'000;
    };
    Status lost = fixture.scale(*kernel, 64, 64, Policy::kBlocking);
    CHECK(lost.code() == Code::kDeviceLost);
    // The plans of the candidates were made before the fault; nothing came after it, and no decision.
    bool tuning = false;
    (void)fixture.engine()->store().iterate(std::nullopt, [&](const cache::EntryView& entry) {
      tuning |= entry.kind != cache::Kind::kPlan;
      return true;
    });
    CHECK_FALSE(tuning);
    const uint64_t puts = fixture.engine()->stats().store_puts;
    CHECK(fixture.scale(*kernel, 32, 64, Policy::kOff).code() == Code::kDeviceLost);
    CHECK(fixture.engine()->stats().store_puts == puts);
  }
  EngineFixture fresh(dir.path());
  CHECK(fresh.scale(*fresh.kernel(), 64, 64, Policy::kOff).ok());
}

TEST_CASE("a stored plan that cannot be used is made again") {
  TempDir dir;
  auto spoil = [&](const std::function<std::string(const std::string&)>& change) {
    EngineFixture fixture(dir.path());
    std::vector<std::pair<cache::Key, std::string>> plans;
    (void)fixture.engine()->store().iterate(cache::Kind::kPlan, [&](const cache::EntryView& entry) {
      plans.push_back({{entry.kind, cache::digest_of(entry.key), std::string(entry.key)}, std::string(entry.payload)});
      return true;
    });
    REQUIRE(plans.size() == 1);
    REQUIRE(fixture.engine()->store().put(plans[0].first, change(plans[0].second)).ok());
  };
  auto launch = [&] {
    EngineFixture fixture(dir.path());
    REQUIRE(fixture.scale(*fixture.kernel(), 64, 64, Policy::kOff).ok());
    return fixture.engine()->stats();
  };
  CHECK(launch().compiles == 1);
  CHECK(launch().compiles == 0);
  spoil([](const std::string& bytes) { return bytes.substr(0, bytes.size() / 2); });
  EngineStats stats = launch();
  CHECK(stats.compiles == 1);
  CHECK(stats.store_damaged == 1);
  CHECK(launch().compiles == 0);
  // Decodes, but the device does not take the binary.
  spoil([](std::string bytes) {
    bytes[bytes.size() - 3] = static_cast<char>(bytes[bytes.size() - 3] ^ 1);
    return bytes;
  });
  CHECK(launch().compiles == 1);
  CHECK(launch().compiles == 0);
}

TEST_CASE("what fails to launch is replaced by the next best, and only then") {
  EngineFixture fixture;
  fixture.cost = [](int64_t bm, int64_t bn, const FakeLaunch&) {
    return bm == 64 && bn == 32 ? 5'000 : bm == 32 ? 6'000 : 9'000;
  };
  auto kernel = fixture.kernel();
  FakeState& state = fixture.state();
  REQUIRE(fixture.scale(*kernel, 64, 64, Policy::kBlocking).ok());
  std::string launched;
  auto inner = fixture.cost;
  fixture.cost = [&, inner](int64_t bm, int64_t bn, const FakeLaunch& launch) {
    launched = fmt::format("{},{}", bm, bn);
    return inner(bm, bn, launch);
  };
  REQUIRE(fixture.scale(*kernel, 64, 64, Policy::kBlocking).ok());
  CHECK(launched == "64,32");
  state.fail(FakeCall::kLaunch, 1, {Code::kLaunch, "injected"});
  REQUIRE(fixture.scale(*kernel, 64, 64, Policy::kBlocking).ok());
  CHECK(launched == "32,16");
  REQUIRE(fixture.scale(*kernel, 64, 64, Policy::kOff).ok());
  CHECK(launched == "32,16");
  // A stream that takes nothing is not a configuration's fault.
  state.fail(FakeCall::kLaunch, 1, {Code::kLaunch, "injected"}, 10);
  Status refused = fixture.scale(*kernel, 64, 64, Policy::kBlocking);
  CHECK(refused.code() == Code::kLaunch);
  state.fail(FakeCall::kLaunch, 1, {}, 0);
  REQUIRE(fixture.scale(*kernel, 64, 64, Policy::kBlocking).ok());
  CHECK(launched == "32,16");
}

TEST_CASE("memory too short for private copies means no tuning, not no launch") {
  FakeOptions device;
  device.memory_bytes = 1000;
  EngineFixture fixture("", device);
  auto kernel = fixture.kernel();
  REQUIRE(fixture.scale(*kernel, 64, 64, Policy::kBlocking).ok());
  CHECK(fixture.engine()->stats().tunings == 0);
  CHECK(fixture.engine()->stats().measurements == 0);
  const int64_t attempts = fixture.state().count(FakeCall::kAllocate);
  REQUIRE(fixture.scale(*kernel, 64, 64, Policy::kBlocking).ok());
  CHECK(fixture.state().count(FakeCall::kAllocate) == attempts);
}

TEST_CASE("a tuning in which nothing compiles says so in the program's names") {
  EngineFixture fixture;
  auto kernel = fixture.kernel();
  fixture.state().reject_texts_with("kernel");
  Status status = fixture.scale(*kernel, 64, 64, Policy::kBlocking);
  CHECK(status.code() == Code::kCompile);
  CHECK_MESSAGE(status.message().find("BM=16,BN=16") != std::string::npos, status.message());
  CHECK(status.log().find("BM=64,BN=32: compile_failed") != std::string::npos);
  CHECK((status.message() + status.log()).find("t0=") == std::string::npos);

  EngineFixture without;
  auto other = without.kernel();
  without.state().fail(FakeCall::kCompile, 1, {Code::kNoDevice, "there is no compiler; install one"}, 1000);
  Status missing = without.scale(*other, 64, 64, Policy::kBlocking);
  CHECK(missing.code() == Code::kNoDevice);
  CHECK(missing.message() == "there is no compiler; install one");
}

TEST_CASE("budgets end tunings") {
  EngineFixture fixture;
  fixture.options.tune_budget_ns = 1;
  auto kernel = fixture.kernel();
  REQUIRE(fixture.scale(*kernel, 64, 64, Policy::kBlocking).ok());
  CHECK(fixture.engine()->stats().tunings == 1);
  CHECK(fixture.engine()->stats().measurements < 40);
}

}  // namespace
}  // namespace kachel::runtime
