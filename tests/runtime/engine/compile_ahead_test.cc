// Binaries for devices that are elsewhere, and the device that stands for one.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "runtime/engine/bind/facts.h"
#include "runtime/engine/target_device.h"
#include "tests/runtime/engine/engine_fixture.h"

namespace kachel::runtime {
namespace {

using tuner::Policy;

Result<CompiledAhead> compile(EngineFixture& fixture, KernelHandle& kernel, size_t most,
                              std::string_view configuration = "") {
  HostTensorF32 a({300, 200}, 1), c({300, 200}, 0);
  Arg args[] = {a.tensor(), c.tensor(), float_arg(1)};
  LaunchSettings settings = fixture.settings(Policy::kOff);
  settings.has_configuration = !configuration.empty();
  settings.configuration = configuration;
  return kernel.compile(args, settings, most);
}

TEST_CASE("what is compiled ahead is loaded by another engine, which compiles nothing") {
  TempDir folder;
  {
    EngineFixture maker(folder.path());
    auto kernel = maker.kernel();
    const auto made = compile(maker, *kernel, 0);
    REQUIRE(made.ok());
    CHECK(made->compiled == 6);
    CHECK(made->present == 0);
    CHECK(made->refused == 0);
    CHECK(maker.engine()->stats().compiles == 6);
    CHECK(maker.engine()->stats().loads == 0);
    const auto again = compile(maker, *kernel, 0);
    REQUIRE(again.ok());
    CHECK(again->compiled == 0);
    CHECK(again->present == 6);
  }
  for (bool as_layer : {false, true}) {
    CAPTURE(as_layer);
    TempDir own;
    EngineFixture server(as_layer ? own.path() : folder.path());
    if (as_layer) server.options.store_layers = {folder.path()};
    auto kernel = server.kernel();
    REQUIRE(server.scale(*kernel, 300, 200, Policy::kOff).ok());
    REQUIRE(server.scale(*kernel, 700, 200, Policy::kBlocking).ok());
    CHECK(server.engine()->stats().compiles == 0);
    CHECK(server.engine()->stats().loads >= 1);
  }
}

TEST_CASE("so many, one of them, or those that can be built") {
  EngineFixture fixture;
  std::vector<std::string> said;
  fixture.options.log = [&](LogLevel, std::string_view text) { said.emplace_back(text); };
  fixture.refused_tile = "16, 32";
  auto kernel = fixture.kernel();
  const auto two = compile(fixture, *kernel, 2);  // as listed: BM = 16 and both BN
  REQUIRE(two.ok());
  CHECK(two->compiled == 1);
  CHECK(two->refused == 1);
  CHECK(std::count_if(said.begin(), said.end(), [](const std::string& text) {
          return text.find("configuration BM=16,BN=32 cannot be built: ") != text.npos;
        }) == 1);
  const auto one = compile(fixture, *kernel, 0, "BM=64,BN=32");
  REQUIRE(one.ok());
  CHECK(one->compiled == 1);
  CHECK(compile(fixture, *kernel, 0, "BM=16,BN=32").status().code() == Code::kUnsupported);
  CHECK(compile(fixture, *kernel, 0, "BM=17,BN=32").status().code() == Code::kInvalid);
  CHECK(compile(fixture, *kernel, 0)->compiled == 3);
}

TEST_CASE("a target is named as its compiler names it") {
  for (const char* name : {"sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_120a"}) {
    CAPTURE(name);
    auto device = open_target_device(name, {});
    REQUIRE(device.ok());
    CHECK((*device)->properties().architecture == name);
    CHECK((*device)->properties().kind == DeviceKind::kCuda);
    CHECK((*device)->properties().shared_bytes_per_block > 90'000);
    CHECK((*device)->properties().tensor_maps == ((*device)->properties().compute_major >= 9));
  }
  for (const char* name : {"", "sm_", "sm_90", "sm_80a", "sm_9", "sm_99999999999", "sm_90a ", "cuda", "sm_-90a"}) {
    CAPTURE(name);
    auto device = open_target_device(name, {});
    CHECK(device.status().code() == Code::kInvalid);
    CHECK(device.status().message().find("write sm_80") != std::string::npos);
  }
  CHECK(open_target_device("sm_75", {}).status().code() == Code::kUnsupported);
}

TEST_CASE("a device that is not there has addresses for arguments, and runs nothing") {
  auto device = open_target_device("sm_90a", {});
  REQUIRE(device.ok());
  auto first = (*device)->allocate(1000), second = (*device)->allocate(0),
       third = (*device)->allocate_async(8, nullptr);
  REQUIRE((first.ok() && second.ok() && third.ok()));
  for (void* address : {*first, *second, *third}) {
    CHECK(address != nullptr);
    CHECK(reinterpret_cast<uintptr_t>(address) % 256 == 0);
  }
  CHECK(static_cast<char*>(*second) - static_cast<char*>(*first) >= 1000);
  CHECK(*second != *third);
  CHECK((*device)->allocate(size_t{1} << 60).status().code() == Code::kNoMemory);
  int word = 0;
  CHECK((*device)->copy(*first, &word, 4, nullptr).code() == Code::kUnsupported);
  CHECK((*device)->load("x").status().message().find("to compile for sm_90a") != std::string::npos);
  CHECK(!(*device)->create_stream().ok());
  CHECK(!*(*device)->is_capturing(nullptr));
}

}  // namespace
}  // namespace kachel::runtime
