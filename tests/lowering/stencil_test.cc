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

TEST_CASE("the rest of a tile is read under a guard, so that no read waits for what was written before") {
  const std::string text = text_of("bf16");
  CAPTURE(text);
  const size_t read = text.find("copy_vector raw[0 +: 4], X["), end = text.find('\n', read);
  REQUIRE(read != text.npos);
  CHECK(has(text.substr(read, end - read), " if row < 18 && "));
  const size_t bound = text.find("if row < 18 {\n", read);
  REQUIRE(bound != text.npos);
  CHECK(text.find("copy_vector x[", bound) == text.find("copy_vector", bound));
}

}  // namespace
}  // namespace kachel::lowering
