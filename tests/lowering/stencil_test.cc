// Sums over neighbours that rows share: who holds which columns, and how their tile is filled.
#include "tests/lowering/lowered_text.h"

namespace kachel::lowering {
namespace {

// 18 rows of 128 columns, of which four at a time are copied.
std::string text_of(const std::string& type) {
  const Lowered lowered =
      lowering::lowered({"tile 1\nkernel k(X: " + type + "[M, N], F: f32[3, N], Y: out " + type + R"([M, N])
grid t < ceildiv(M, 16), j < ceildiv(N, 128)
{
  fragment x: f32[18, 128], f: f32[3, 128], y: f32[16, 128]
  x = X[t*16 - 2 +: 18, j*128 +: 128]
  f = F[:, j*128 +: 128]
  parallel i < 16, c < 128 { y[i, c] = exp(sum[k < 3](x[i + k, c] * f[k, c])) }
  Y[t*16 +: 16, j*128 +: 128] = y
}
)"});
  return lowered.notes + lowered.loop_ir;
}

TEST_CASE("a thread holds a word of what it stores, and rows of it") {
  CHECK(
      has(text_of("bf16"), "tile reduced: f32 in registers, layout [16, 128] on 128 threads: 2 t64 8 r2; 2 r1 64 t1"));
  CHECK(has(text_of("f32"), "tile reduced: f32 in registers, layout [16, 128] on 128 threads: 16 r1; 128 t1"));
}

TEST_CASE("what the taps of a filter are multiplied with decides on threads, as long as there are enough results") {
  const std::string text = text_of("f32");
  CHECK(has(text, "tile f: f32 in registers, layout [3, 128] on 128 threads: 3 r1; 128 t1"));
  CHECK(!has(text, "shuffle"));
}

TEST_CASE("of rows that do not divide among the threads the whole passes have no bound") {
  const std::string text = text_of("bf16");
  CAPTURE(text);
  const size_t loop = text.find("for row_r in 0 .. 4 unroll"), read = text.find("copy_vector raw[0 +: 4], X[", loop);
  REQUIRE(read != text.npos);
  CHECK(!has(text.substr(read, text.find('\n', read) - read), "row < 18"));
  // The rest is read under a guard, and only what is written stands within a branch.
  const size_t rest = text.find("copy_vector raw[0 +: 4], X[", read + 1);
  REQUIRE(rest != text.npos);
  CHECK(has(text.substr(rest, text.find('\n', rest) - rest), " if row < 18 && "));
  const size_t bound = text.find("if row < 18 {\n", loop);
  REQUIRE(bound > rest);
  CHECK(text.find("copy_vector x[", bound) == text.find("copy_vector", bound));
}

}  // namespace
}  // namespace kachel::lowering
