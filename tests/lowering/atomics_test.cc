// Atomic combinations as a GPU runs them: extrema of floats from those of integers, and lanes that are together behind
// a loop of compare-and-swap.
#include "tests/lowering/lowered_text.h"
#include "tests/lowering/ptx_case.h"
#include "tests/lowering/settled_case.h"

namespace kachel::lowering {
namespace {

using conformance::Contents;

// NaN, infinities and zeros of both signs meet those of memory.
TEST_CASE("extrema of floats are those of any memory") {
  for (const char* operation : {"max", "min"}) {
    const std::string text = std::string("tile 1\nkernel k(X: f32[R, 128], C: inout f32[2, 128])\ngrid r < R\n{\n") +
                             "  parallel i < 2, j < 128 { atomic " + operation +
                             " C[i, j] = X[r, j] * (1 - 2 * f32(i)) }\n}\n";
    for (uint64_t seed = 1; seed <= 6; ++seed) {
      const conformance::Wishes wishes{.values = {{"R", 5}},
                                       .contents = {{"X", {Contents::kExtremes, 0}}, {"C", {Contents::kExtremes, 0}}}};
      const conformance::Case test = settled_case(text, 90, wishes, seed);
      auto prepared = conformance::Prepared::make(test);
      REQUIRE(prepared.ok());
      const auto program = lower_for_ptx(**prepared);
      REQUIRE_MESSAGE(program.ok(), program.status().message());
      const auto report = ptx_case(**prepared, *program, ThreadOrder::kForward);
      CHECK_MESSAGE(report.passed(), report.describe());
      CHECK(report.elements > report.undecided + 200);
    }
  }
}

constexpr const char* kSums = R"(tile 1
kernel sums<T: bf16 | f16 | f32>(X: T[R, 64], C: inout T[64])
grid r < ceildiv(R, 16)
{
  parallel i < 16, j < 64 { atomic C[j] += X[r*16 + i, j] }
}
)";

TEST_CASE("lanes are together behind a loop of compare-and-swap") {
  const std::string text = lowered({.text = kSums}).text;
  const size_t sum = text.find("kachel_atomic_add_bf16(C_"), together = text.find("  kachel_converge();");
  REQUIRE(sum != text.npos);
  REQUIRE(together != text.npos);
  CHECK(sum < together);
  CHECK(has(text, "bar.warp.sync %0;"));
}

}  // namespace
}  // namespace kachel::lowering
