// Elements of 8 bits in registers: left operands of products, and what becomes of f32 two at a time.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include "tests/lowering/lowered_text.h"

namespace kachel::lowering {
namespace {

std::string attend(const std::string& values, const std::string& precision, int architecture = 90) {
  Request request{fmt::format(R"(tile 1
kernel attend(Q: f8e4m3[M, 64], K: f8e4m3[N, 64], V: f8e4m3[64, N], O: out bf16[M, 64])
grid i < ceildiv(M, 128)
{{
  shared q: f8e4m3[128, 64], k: f8e4m3[64, 64], v: f8e4m3[64, 64]
  fragment s: f32[128, 64], p: f8e4m3[128, 64], o: f32[128, 64] = 0
  q = Q[i*128 +: 128, :]
  pipelined n < ceildiv(N, 64), 3 {{
    k = K[n*64 +: 64, :]
    v = V[:, n*64 +: 64]
    s = q @ k^T precision fast
    {}
    o += p @ v^T {}
  }}
  O[i*128 +: 128, :] = o
}}
)",
                              values, precision)};
  request.target.architecture = architecture;
  const Lowered made = lowered(request);
  return made.notes + made.loop_ir;
}

TEST_CASE("left operands of 8 bits come from registers, joined by four lanes") {
  for (const char* values : {"p = s", "parallel r < 128, c < 64 { p[r, c] = exp2(s[r, c]) }"})
    for (int architecture : {90, 89}) {
      const std::string text = attend(values, "precision fast", architecture);
      CAPTURE(text);
      CHECK(has(text, "A in registers"));
      CHECK(has(text, "tile p: f8e4m3 in registers"));
      CHECK(has(text, "convert_pair p["));
      CHECK(has(text, "quad_join joined[quad * 8 +: 8], p[quad * 8 +: 8]"));
      CHECK(!has(text, "p_part"));
      CHECK(has(text, architecture == 90 ? "group_mma f8e4m3 f8e4m3 b(" : "mma f8e4m3 f8e4m3 "));
    }
  // Work on the scores stands between products of two iterations.
  const std::string skewed = attend("p = s", "precision fast");
  CHECK(has(skewed.substr(skewed.find("for n in 1 ..")), "group_mma f8e4m3 f8e4m3 b("));
}

TEST_CASE("where wgmma has no rows for it, an operand of 8 bits is made in a fragment with a layout of its own") {
  std::string text = attend("parallel r < 128, c < 64 { p[r, c] = exp2(s[r, c]) }", "precision fast");
  CHECK(!has(text, "p_part"));
  Request few{R"(tile 1
kernel few(X: f32[16, K], W: i8[64, K], C: out i32[16, 64])
{
  shared w: i8[64, 64]
  fragment a: i8[16, 64], c: i32[16, 64]
  w = W[:, 0 +: 64]
  parallel r < 16, k < 64 { a[r, k] = i8(X[r, k]) }
  c = a @ w^T
  C[:, :] = c
}
)"};
  few.target.architecture = 90;
  CHECK(has(lowered(few).notes, "tile a_part: i8 in registers"));
}

TEST_CASE("8-bit floats are rounded two at a time, to tensors and to registers") {
  auto text = [](const std::string& type) {
    return lowered({fmt::format(R"(tile 1
kernel k(X: f32[M, 64], Y: out {0}[M, 64], Z: out {0}[M, 64])
grid m < ceildiv(M, 64)
{{
  fragment x: f32[64, 64], y: {0}[64, 64], z: {0}[64, 64]
  x = X[m*64 +: 64, :]
  parallel i < 64, j < 64 {{
    y[i, j] = x[i, j] * 2
    z[i, j] = x[i, j] + f32(y[i, j])
  }}
  Y[m*64 +: 64, :] = y
  Z[m*64 +: 64, :] = z
}}
)",
                                type)})
        .loop_ir;
  };
  CHECK(has(text("f8e5m2"), "convert_pair y["));
  CHECK(has(text("f8e5m2"), "convert_pair z["));
  CHECK(!has(text("i8"), "convert_pair"));
}

TEST_CASE("more sums than a thread has registers are walked along, not written out") {
  Request request{R"(tile 1
kernel k(X: f32[128, 256], W: f32[256, 4], Y: out f32[128, 256])
{
  shared x: f32[131, 256]
  fragment y: f32[128, 256]
  x = X[0 +: 131, :]
  parallel i < 128, j < 256 { y[i, j] = sum[w < 4](W[j, w] * x[i + w, j]) }
  Y[:, :] = y
}
)"};
  request.target.threads = 64;
  CHECK(lowered(request).text.size() < 30000);
}

}  // namespace
}  // namespace kachel::lowering
