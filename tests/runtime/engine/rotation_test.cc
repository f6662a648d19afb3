// Launches of a tuning that follow each other on operands of their own.
#include "runtime/engine/tuning/rotation.h"

#include <doctest/doctest.h>

#include <set>

#include "runtime/engine/tuning_hooks.h"
#include "tests/runtime/engine/engine_fixture.h"

namespace kachel::runtime {
namespace {

constexpr int64_t kM = 96, kN = 64;

// Notes which tensors each launch reads and writes, and whether the inputs hold what the caller's do.
struct Watched : EngineFixture {
  explicit Watched(int64_t memory_bytes = int64_t{1} << 30) : EngineFixture("", {.memory_bytes = memory_bytes}) {
    cost = [this](int64_t, int64_t, const FakeLaunch& launch) {
      const auto* slots = static_cast<const uint64_t*>(launch.params);
      inputs.insert(slots[0]);
      outputs.insert(slots[3]);
      const auto* a = reinterpret_cast<const float*>(slots[0]);
      for (int64_t i = 0; i < kM * kN; ++i) alike &= a[i] == static_cast<float>(i);
      return run_ns;
    };
  }
  Status tune(const std::string& text = kScale, std::shared_ptr<const TuningHooks> hooks = nullptr) {
    HostTensorF32 a({kM, kN}, 0), c({kM, kN}, -1);
    for (int64_t i = 0; i < kM * kN; ++i) a.data[static_cast<size_t>(i)] = static_cast<float>(i);
    caller = {reinterpret_cast<uint64_t>(a.data.data()), reinterpret_cast<uint64_t>(c.data.data())};
    Arg args[] = {a.tensor(), c.tensor(), float_arg(2)};
    LaunchSettings launch = settings(tuner::Policy::kBlocking);
    launch.hooks = std::move(hooks);
    return kernel(text)->launch(args, launch, nullptr);
  }
  int64_t run_ns = 10'000;
  bool alike = true;
  std::set<uint64_t> inputs, outputs;
  std::pair<uint64_t, uint64_t> caller;
};

TEST_CASE("short runs are timed on copies that satisfy the same facts, and all memory comes back") {
  Watched watched;
  REQUIRE(watched.tune().ok());
  // Ten runs of 10 us are timed behind 1 to 4 others, on four times as many sets and one, so that samples differ.
  CHECK(watched.inputs.size() >= 4 * 11 + 1);
  CHECK(watched.inputs.size() <= 4 * 14 + 1);
  CHECK(watched.alike);
  for (uint64_t input : watched.inputs) CHECK(input % 256 == watched.caller.first % 256);
  CHECK(watched.state().live_bytes() == 0);
  CHECK(watched.state().guards_intact());
}

TEST_CASE("there are as many copies as memory has room for") {
  Watched watched(int64_t{16} << 20);  // of which a sixteenth is for copies that need not be
  REQUIRE(watched.tune().ok());
  CHECK(watched.inputs.size() >= 11);
  CHECK(watched.inputs.size() <= (int64_t{1} << 20) / (kM * kN * 8));
  CHECK(watched.alike);
  CHECK(watched.state().live_bytes() == 0);
}

TEST_CASE("long runs, hooks around runs and too little memory leave one set of operands") {
  Watched slow;
  slow.run_ns = 250'000;
  REQUIRE(slow.tune().ok());
  CHECK(slow.inputs.size() == 1);

  Watched hooked;
  auto hooks = std::make_shared<TuningHooks>();
  hooks->before_run = [](const TuningCase&, const TunableValues&, void*) { return Status(); };
  REQUIRE(hooked.tune(kScale, hooks).ok());
  CHECK(hooked.inputs.size() == 1);

  Watched small(int64_t{1} << 20);
  REQUIRE(small.tune().ok());
  CHECK(small.inputs.size() == 1);
  CHECK(small.state().live_bytes() == 0);
}

TEST_CASE("what is read and written stays where it is") {
  std::string text = kScale;
  text.replace(text.find("C: out"), 6, "C: inout");
  Watched watched;
  REQUIRE(watched.tune(text).ok());
  CHECK(watched.inputs.size() == 1);
}

TEST_CASE("how many runs make a sample") {
  constexpr int64_t kCache = 60 << 20;
  CHECK(Rotation::launches(5'000, 1 << 20, kCache).timed == 16);
  CHECK(Rotation::launches(5'000, 1 << 20, kCache).ahead == 4);
  CHECK(Rotation::launches(40'000, 130 << 20, kCache).timed == 3);
  CHECK(Rotation::launches(40'000, 130 << 20, kCache).ahead == 1);
  CHECK(Rotation::launches(190'000, 0, kCache).timed == 2);
  CHECK(Rotation::launches(0, 0, 0).all() == 17);
}

}  // namespace
}  // namespace kachel::runtime
