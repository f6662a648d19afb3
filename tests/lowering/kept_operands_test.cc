// Left operands in registers that loops with branches read again and again (docs/assembler.md), and comparisons whose
// sides are parted by the loops that they change with.
#include <doctest/doctest.h>

#include "tests/lowering/lowered_text.h"

namespace kachel::lowering {
namespace {

Lowered attention(const std::string& mask, const std::string& between) {
  Request request{R"(tile 1
kernel k(Q: bf16[M, 64], K: bf16[N, 64], V: bf16[N, 64], O: out f32[M, 64], from: i32, flag: i32)
grid m < ceildiv(M, 64)
{
  fragment q: bf16[64, 64], s: f32[64, 64], p: bf16[64, 64], acc: f32[64, 64] = 0
  shared   k: bf16[64, 64], v: bf16[64, 64]
  let first = m * (from + N)
  parallel i < 64, d < 64 { q[i, d] = Q[m*64 + i, 63 - d] }
  pipelined n < ceildiv(N, 64), 2 {
    k = K[n*64 +: 64, :]
    v = V[n*64 +: 64, :]
    s = q @ k^T
    parallel i < 64, j < 64 { s[i, j] = )" +
                  mask + " ? s[i, j] : 0 }\n" + between + R"(
    p = s
    acc += p @ v
  }
  O[m*64 +: 64, :] = acc
}
)"};
  request.target.architecture = 90;
  return lowered(request);
}
const std::string kBranch = "if flag > 0 { parallel i < 64, d < 64 { acc[i, d] *= 0.5 } }";

TEST_CASE(
    "what wgmma reads from registers in every iteration is written by the fence where a branch stands in the loop") {
  const std::string with = attention("true", kBranch).text, without = attention("true", "").text;
  CHECK(has(with, "wgmma"));
  CHECK(count(with, "%%clock_hi") == 1);
  CHECK(count(with, "or.b32") >= 16);
  CHECK(count(without, "%%clock_hi") == 0);
}

TEST_CASE("masks compare what unrolled loops change with one number of 32 bits") {
  const auto mask = [](const std::string& condition) { return attention(condition, "").loop_ir; };
  CHECK(has(mask("n*64 + j <= m*64 + i"), "i32(u32(j_r * 8) + (u32(0) - u32(i_r * 8)) + u32(j_r)) <= i32("));
  CHECK(has(mask("n*64 + j + 3 < m*64 + i"), "i32(u32(j_r * 8)"));
  const std::string wide = mask("i64(from) * N + n*64 + j < i64(from) * M");
  CHECK(has(wide, "< i32(max(min("));
  // Of numbers that are not known to be small nothing is moved.
  CHECK(!has(mask("from * j < from + i"), "max(min("));
}

}  // namespace
}  // namespace kachel::lowering
