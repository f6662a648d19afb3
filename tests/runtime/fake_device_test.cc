// What the fake device offers beyond conformance: failures on demand, a clock, counters, capture and guards. Tests of
// the engine rest on these.
#include "tests/runtime/fake_device.h"

#include <doctest/doctest.h>

#include <cstring>

#include "tests/runtime/device_conformance.h"

namespace kachel::runtime {
namespace {

CompileRequest request_for(FakeDevice& device, std::string_view text) {
  return {text, "kernel", device.properties().architecture, 0};
}

TEST_CASE("the nth call of a kind fails, and only that one") {
  FakeDevice device;
  REQUIRE(device.compiler().compile(request_for(device, "a")).ok());
  device.state().fail(FakeCall::kCompile, 2, {Code::kCompile, "planted"});
  CHECK(device.compiler().compile(request_for(device, "b")).ok());
  Result<CompileResult> failed = device.compiler().compile(request_for(device, "c"));
  REQUIRE(!failed.ok());
  CHECK(failed.status().message() == "planted");
  CHECK(device.compiler().compile(request_for(device, "d")).ok());
  CHECK(device.state().count(FakeCall::kCompile) == 4);

  std::string binary = make_fake_binary("a", "kernel", "fake_1");
  device.state().fail(FakeCall::kLoad, 1, {Code::kInvalid, "planted"}, 2);
  CHECK(!device.load(binary).ok());
  CHECK(!device.load(binary).ok());
  CHECK(device.load(binary).ok());

  device.state().fail(FakeCall::kAllocate, 1, {Code::kNoMemory, "planted"});
  CHECK(!device.allocate(8).ok());
  CHECK(device.allocate(8).ok());
}

TEST_CASE("a failing launch does not run its kernel") {
  FakeDevice device;
  int runs = 0;
  device.state().set_default_kernel([&](const FakeLaunch& launch) {
    CHECK(launch.entry == "kernel");
    CHECK(launch.text == "the text");
    CHECK(launch.dims.blocks == 3);
    ++runs;
  });
  auto module = device.load(make_fake_binary("the text", "kernel", "fake_1"));
  REQUIRE(module.ok());
  auto function = (*module)->function("kernel", 128);
  REQUIRE(function.ok());
  CHECK(device.state().live_modules() == 1);
  uint64_t params = 7;
  CHECK((*function)->launch({3, 32, 128}, &params, 8, nullptr).ok());
  device.state().fail(FakeCall::kLaunch, 1, {Code::kLaunch, "planted"});
  CHECK((*function)->launch({3, 32, 0}, &params, 8, nullptr).code() == Code::kLaunch);
  CHECK((*function)->launch({3, 32, 129}, &params, 8, nullptr).code() == Code::kLaunch);
  CHECK((*function)->launch({3, 4096, 0}, &params, 8, nullptr).code() == Code::kLaunch);
  CHECK(runs == 1);
  CHECK(device.state().count(FakeCall::kLaunch) == 4);
  function->reset();
  module->reset();
  CHECK(device.state().live_modules() == 0);
}

TEST_CASE("a lost device stays lost") {
  FakeDevice device;
  auto module = device.load(make_fake_binary("t", "kernel", "fake_1"));
  REQUIRE(module.ok());
  auto function = (*module)->function("kernel", 0);
  REQUIRE(function.ok());
  void* memory = *device.allocate(16);
  device.state().lose();
  uint64_t params = 0;
  CHECK((*function)->launch({1, 1, 0}, &params, 8, nullptr).code() == Code::kDeviceLost);
  CHECK(device.synchronize(nullptr).code() == Code::kDeviceLost);
  CHECK(device.allocate(1).status().code() == Code::kDeviceLost);
  CHECK(device.is_capturing(nullptr).status().code() == Code::kDeviceLost);
  device.free(memory);
  CHECK(device.state().live_allocations() == 0);
}

TEST_CASE("time passes by cost and by hand only") {
  FakeDevice device;
  device.state().set_cost([](const FakeLaunch& launch) { return launch.text == "slow" ? 5000 : 1000; });
  for (const char* text : {"slow", "fast"}) {
    auto module = device.load(make_fake_binary(text, "kernel", "fake_1"));
    REQUIRE(module.ok());
    auto function = (*module)->function("kernel", 0);
    REQUIRE(function.ok());
    auto timer = device.create_timer();
    REQUIRE(timer.ok());
    uint64_t params = 0;
    CHECK((*timer)->start(nullptr).ok());
    CHECK((*function)->launch({1, 1, 0}, &params, 8, nullptr).ok());
    device.state().advance_ns(10);
    CHECK((*timer)->stop(nullptr).ok());
    device.state().advance_ns(10);
    CHECK(*(*timer)->elapsed_ns() == (std::string_view(text) == "slow" ? 5010 : 1010));
  }
}

TEST_CASE("capture forbids what would break it and counts it") {
  FakeDevice device;
  void* stream = *device.create_stream();
  device.state().set_capturing(stream, true);
  CHECK(*device.is_capturing(stream));
  CHECK(!*device.is_capturing(nullptr));
  CHECK(device.synchronize(stream).code() == Code::kBusy);
  CHECK(device.allocate_async(8, stream).status().code() == Code::kBusy);
  CHECK(device.synchronize(nullptr).ok());
  CHECK(device.state().capture_violations() == 2);
  device.state().set_capturing(stream, false);
  CHECK(device.synchronize(stream).ok());
}

TEST_CASE("guards show writes beside an allocation") {
  FakeDevice device;
  auto* exact = static_cast<char*>(*device.allocate(100));
  std::memset(exact, 0, 100);
  CHECK(device.state().guards_intact());
  CHECK(device.state().live_bytes() == 100);
  SUBCASE("after it") {
    exact[100] = 1;
  }
  SUBCASE("before it") {
    exact[-1] = 1;
  }
  CHECK(!device.state().guards_intact());
  device.free(exact);
  CHECK(!device.state().guards_intact());
}

TEST_CASE("binaries belong to an architecture") {
  FakeDevice device;
  CHECK(!device.load(make_fake_binary("t", "kernel", "fake_2")).ok());
  std::string damaged = make_fake_binary("t", "kernel", "fake_1");
  damaged.back() = static_cast<char>(damaged.back() ^ 1);
  CHECK(!device.load(damaged).ok());
}

TEST_CASE("the compiler reports the usage it was told") {
  FakeDevice device;
  ResourceUsage spilling;
  spilling.registers = 255;
  spilling.spill_bytes = 64;
  device.state().report_usage("big tile", spilling);
  CHECK(device.compiler().compile(request_for(device, "a big tile"))->usage.spill_bytes == 64);
  CHECK(device.compiler().compile(request_for(device, "a small tile"))->usage.spill_bytes == -1);
}

}  // namespace
}  // namespace kachel::runtime
