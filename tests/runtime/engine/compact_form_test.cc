// The form that compiles sooner, which serves while a key waits to be tuned in the background.
#include "tests/runtime/engine/background_fixture.h"

namespace kachel::runtime {
namespace {

using tuner::Policy;

// Where loops are parted.
struct Parted : BackgroundFixture {
  Parted() : BackgroundFixture("", {.multiprocessors = 132, .compute_major = 9}) { has_compact_form = true; }
  bool launched_compact(KernelHandle& kernel, Policy policy) {
    REQUIRE(scale(kernel, 64, 64, policy).ok());
    return served_compact();
  }
  // Whether the store has what serves first.
  bool stored(KernelHandle& kernel, bool compact) {
    HostTensorF32 a({64, 64}, 1.5f), c({64, 64}, -1);
    Arg args[] = {a.tensor(), c.tensor(), float_arg(2)};
    BoundArguments arguments;
    REQUIRE(kernel.bind_arguments(args, arguments).ok());
    Device& device = **engine()->devices().get(kFakeRef);
    const Point point = point_of(kernel.model(), arguments);
    const TunableValues values = {16, 16};
    const PlanBuilder::Request whole{device, kernel.model(), point, values};
    return engine()->plans().stored(compact ? whole.in_compact_form() : whole).has_value();
  }
};

TEST_CASE("a compact form serves until the winner does, and is not stored") {
  Parted fixture;
  auto kernel = fixture.kernel();
  CHECK(fixture.launched_compact(*kernel, Policy::kBackground));
  CHECK(fixture.launched_compact(*kernel, Policy::kBackground));
  fixture.settle();
  CHECK_FALSE(fixture.launched_compact(*kernel, Policy::kBackground));
  CHECK(fixture.served() == "32, 16");
  CHECK(fixture.engine()->stats().background_tunings == 1);
  CHECK(fixture.stored(*kernel, false));
  CHECK_FALSE(fixture.stored(*kernel, true));
  Parted other;
  auto whole = other.kernel();
  for (Policy policy : {Policy::kOff, Policy::kBackground})  // what is there need not be compiled
    CHECK_FALSE(other.launched_compact(*whole, policy));
  other.settle();
}

TEST_CASE("the whole form follows where there is no tuning") {
  Parted fixture;
  fixture.options.background_bytes = 4096;
  auto kernel = fixture.kernel();
  CHECK(fixture.launched_compact(*kernel, Policy::kBackground));
  fixture.settle();
  CHECK_FALSE(fixture.launched_compact(*kernel, Policy::kBackground));
  CHECK(fixture.served() == "16, 16");
  const EngineStats stats = fixture.engine()->stats();
  CHECK(stats.background_failures == 1);
  CHECK(stats.compiles == 2);
  CHECK_FALSE(fixture.launched_compact(*kernel, Policy::kBackground));
  CHECK(fixture.engine()->background().wait(0));
}

}  // namespace
}  // namespace kachel::runtime
