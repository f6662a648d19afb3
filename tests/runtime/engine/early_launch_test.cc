// Which launches begin before what precedes them has ended: Specialisation::begins_early().
#include <algorithm>

#include "tests/runtime/engine/engine_fixture.h"

namespace kachel::runtime {
namespace {

using tuner::Policy;

TEST_CASE("short launches overlap where their blocks find places as good, or wait for little") {
  // Four multiprocessors, on which eight blocks fit, or two, or one, and an L2 of 1 MiB.
  struct Case {
    bool allowed;
    int64_t shared_bytes, blocks;
    bool overlaps;
    int64_t row = 0;  // elements from one row to the next
    bool follows = false;
  };
  for (const Case& c :
       {Case{true, 0, 1, false}, Case{true, 0, 31, false}, Case{true, 0, 32, true}, Case{true, 40 << 10, 7, false},
        Case{true, 40 << 10, 8, true}, Case{true, 90 << 10, 1, true}, Case{true, 90 << 10, 8, true, 2 << 10},
        Case{true, 90 << 10, 8, false, 3 << 10}, Case{true, 0, 32, false, 16 << 10}, Case{false, 0, 32, false},
        Case{false, 90 << 10, 1, false}, Case{true, 0, 1, true, 0, true}, Case{true, 0, 31, true, 0, true},
        Case{true, 0, 1, false, 1 << 10, true}, Case{true, 90 << 10, 8, true, 2 << 10, true},
        Case{true, 90 << 10, 8, false, 3 << 10, true}, Case{false, 0, 1, false, 0, true}}) {
    FakeOptions device;
    device.overlapping_launches = c.allowed;
    EngineFixture fixture("", device);
    fixture.shared_bytes = c.shared_bytes;
    bool seen = !c.overlaps;
    fixture.cost = [&](int64_t, int64_t, const FakeLaunch& launch) {
      seen = launch.dims.overlaps;
      return 10'000;
    };
    CAPTURE(c.shared_bytes);
    CAPTURE(c.blocks);
    const int64_t columns = 16 * c.blocks, row = std::max(c.row, columns);
    HostTensorF32 a({16, row}, 1), out({16, row}, 0);
    for (HostTensorF32* tensor : {&a, &out}) tensor->shape = {16, columns};
    Arg args[] = {a.tensor(), out.tensor(), float_arg(3)};
    auto kernel = fixture.kernel();
    LaunchSettings settings = fixture.settings(Policy::kOff);
    settings.follows = c.follows;
    REQUIRE(kernel->launch(args, settings, nullptr).ok());
    CHECK(seen == c.overlaps);
    auto bound = kernel->bind(args, settings);
    REQUIRE(bound.ok());
    seen = !c.overlaps;
    void* pointers[] = {a.data.data(), out.data.data()};
    const int64_t scalar = 0x40400000;  // 3, as the bits of a float
    REQUIRE((*bound)->launch(pointers, &scalar, nullptr).ok());
    CHECK(seen == c.overlaps);
  }
}

}  // namespace
}  // namespace kachel::runtime
