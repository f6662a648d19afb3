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
      has(text_of("bf16"), "tile reduced: f32 in registers, layout [16, 128] on 128 threads: 8 r2 2 t64; 2 r1 64 t1"));
  CHECK(has(text_of("f32"), "tile reduced: f32 in registers, layout [16, 128] on 128 threads: 16 r1; 128 t1"));
}

TEST_CASE(
    "neighbours along which windows slide are one thread's, and it reads words of a tile that is as narrow as X") {
  const std::string text = text_of("bf16");
  CAPTURE(text);
  CHECK(has(text, "tile x: bf16 in memory of the block"));
  CHECK(has(text, "let i: i32 = e / 64 * 8\n"));
  CHECK(has(text, "copy_vector wide[0 +: 2], x[(i + i_r + k_r) * 128 + c +: 2]"));
  CHECK(has(text, "+ wide[c_r] * f[k_r * 2 + c_r]"));
}

TEST_CASE("a tile that is computed, or filled with what 16 bits do not hold, stays as wide as it is declared") {
  const auto tile_of = [](const std::string& init, const std::string& before) {
    return lowering::lowered({"tile 1\nkernel k(X: bf16[M, 64], Y: out f32[M, 64])\ngrid t < ceildiv(M, 16)\n{\n"
                              "  fragment x: f32[18, 64]" +
                              init + ", y: f32[16, 64]\n  x = X[t*16 - 2 +: 18, :]\n" + before +
                              "  parallel i < 16, c < 64 { y[i, c] = sum[k < 3](x[i + k, c]) }\n"
                              "  Y[t*16 +: 16, :] = y\n}\n"})
        .notes;
  };
  CHECK(has(tile_of("", ""), "tile x: bf16 in"));
  CHECK(has(tile_of(" = 0.5", ""), "tile x: bf16 in"));
  CHECK(has(tile_of(" = 0.1", ""), "tile x: f32 in"));
  CHECK(has(tile_of("", "  parallel i < 18, c < 64 { x[i, c] = x[i, c] * 2 }\n"), "tile x: f32 in"));
}

TEST_CASE("what the taps of a filter are multiplied with decides on threads, as long as there are enough results") {
  const std::string text = text_of("f32");
  CHECK(has(text, "tile f: f32 in registers, layout [3, 128] on 128 threads: 3 r1; 128 t1"));
  CHECK(!has(text, "shuffle"));
}

TEST_CASE("sums of few results that a loop carries lie as their operands do, and lanes exchange them behind it") {
  const auto loops_of = [](const std::string& sums) {
    return lowering::lowered(
        {"tile 1\nkernel k(X: bf16[4, K], W: bf16[2, N, K], Y: out f32[4, N])\n"
         "tune threads = 128\ngrid n < ceildiv(N, 4)\n{\n"
         "  fragment x: bf16[4, 512], g: bf16[4, 512], u: bf16[4, 512], a: f32[4, 4] = 0, b: f32[4, "
         "4] = 0\n  for k < ceildiv(K, 512) {\n    x = X[:, k*512 +: 512]\n"
         "    g = W[0, n*4 +: 4, k*512 +: 512]\n    u = W[1, n*4 +: 4, k*512 +: 512]\n" +
         sums + "  }\n  parallel m < 4, i < 4 { a[m, i] *= b[m, i] }\n  Y[:, n*4 +: 4] = a\n}\n"});
  };
  const Lowered carried = loops_of(
      "    parallel m < 4, i < 4 { a[m, i] += sum[j < 512](x[m, j] * g[i, j])  b[m, i] += sum[j < 512](x[m, j] * u[i, "
      "j]) }\n");
  CAPTURE(carried.notes);
  // The operand of one sum is dealt out, that of both is held by all that need it.
  CHECK(has(carried.notes, "tile g: bf16 in registers, layout [4, 512] on 128 threads: 2 t64 2 r8; 8 r1 64 t1"));
  CHECK(has(carried.notes, "tile u: bf16 in registers, layout [4, 512] on 128 threads: 2 t64 2 r8; 8 r1 64 t1"));
  CHECK(has(carried.notes, "tile x: bf16 in registers, layout [4, 512] on 128 threads: 4 r8; 8 r1 64 t1"));
  CHECK(!has(carried.notes, "two different layouts"));
  const std::string& text = carried.loop_ir;
  CHECK(text.find("shuffle_xor") > text.find("+ x["));
  CHECK(text.rfind("+ x[") < text.find("shuffle_xor"));
  // Not of sums that the loop wants: all threads would compute with all of them.
  const Lowered wanted = loops_of(
      "    parallel m < 4, i < 4 { a[m, i] = max(a[m, i], exp(sum[j < 512](x[m, j] * g[i, j])))  b[m, i] = a[m, i] + "
      "sum[j < 512](x[m, j] * u[i, j]) }\n");
  CHECK(!has(wanted.notes, "tile a: f32 in registers, layout [4, 4] on 128 threads: 4 r2; 2 t64 2 r1"));
}

TEST_CASE("of rows that do not divide among the threads the whole passes have no bound") {
  const std::string text = text_of("bf16");
  CAPTURE(text);
  const size_t loop = text.find("for row_r in 0 .. 2 unroll"), read = text.find("+: 8], X[", loop);
  REQUIRE(read != text.npos);
  CHECK(!has(text.substr(read, text.find('\n', read) - read), "row < 18"));
  // The rest is read under a guard, and only what is written stands within a branch.
  const size_t rest = text.find("copy_vector raw[0 +: 8], X[", read + 1);
  REQUIRE(rest != text.npos);
  CHECK(has(text.substr(rest, text.find('\n', rest) - rest), " if row < 18 && "));
  const size_t bound = text.find("if row < 18 {\n", loop);
  REQUIRE(bound > rest);
  CHECK(text.find("copy_vector x[", bound) == text.find("copy_vector", bound));
}

}  // namespace
}  // namespace kachel::lowering
