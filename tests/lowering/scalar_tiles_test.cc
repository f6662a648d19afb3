// What a block names of its fragments, and the steps of sums that it is made of, read off loop IR.
#include "tests/lowering/lowered_text.h"

namespace kachel::lowering {
namespace {

// Sums of a row in pieces, `names`, and a second walk with `use`.
std::string text_of(const std::string& names, const std::string& use) {
  const Lowered lowered = lowering::lowered({R"(tile 1
kernel k(X: f32[M, N], Y: out f32[M, N])
grid m < M
{
  fragment x: f32[1024], total: f32[1] = 0, squares: f32[1] = 0
  for n < ceildiv(N, 1024) {
    x = X[m, n*1024 +: 1024]
    parallel i < 1 {
      total[i]   += sum[j < 1024](x[j])
      squares[i] += sum[j < 1024](x[j] * x[j])
    }
  }
  )" + names + R"(
  for n < ceildiv(N, 1024) {
    x = X[m, n*1024 +: 1024]
    )" + use + R"(
    Y[m, n*1024 +: 1024] = x
  }
}
)"});
  return lowered.notes + lowered.loop_ir;
}

TEST_CASE("names that regions alone use are in registers, and the sums beneath them carried in parts") {
  const std::string text = text_of("let mean = total[0] / N, spread = squares[0] - mean * mean",
                                   "parallel j < 1024 { x[j] = (x[j] - mean) * spread }");
  CAPTURE(text);
  CHECK(has(text, "tile total: f32 in registers"));
  CHECK(has(text, "tile mean: f32 in registers"));
  CHECK(has(text, "tile spread: f32 in registers"));
  // Lanes meet once for each sum, behind the loop.
  CHECK(count(text, "shuffle_xor 1,") == 2);
  const size_t loop = text.find("for n in"), behind = text.find("shuffle_xor");
  CHECK(text.find("barrier", loop) > behind);
}

TEST_CASE("a name that places or bounds are made of is read from memory") {
  const std::string text = text_of("let first = i32(total[0]), mean = total[0] / N",
                                   "x = X[m, first +: 1024]  parallel j < 1024 { x[j] = x[j] - mean }");
  CAPTURE(text);
  CHECK(has(text, "tile total: f32 in memory of the block"));
  CHECK(has(text, "let first: i32"));
}

TEST_CASE("steps of which one reads what another writes stay together") {
  const std::string text = text_of(
      "parallel i < 1 { let was = total[i]  total[i] = was + sum[j < 1024](x[j])  "
      "squares[i] = was * sum[j < 1024](x[j] * x[j]) }",
      "parallel j < 1024 { x[j] = x[j] * squares[0] + total[0] }");
  CAPTURE(text);
  // The region's two values, then its two stores.
  const size_t second = text.rfind("let squares_new");
  REQUIRE(second != text.npos);
  CHECK(text.rfind("let total_new", second) > text.rfind("threads e <", second));
}

}  // namespace
}  // namespace kachel::lowering
