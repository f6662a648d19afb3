// Forms of a text that say the same cost the same: copies and regions, one group and none, a product of literals and an
// extent; and straight code that the assembler is given in pieces.
#include <fmt/format.h>

#include "tests/lowering/lowered_text.h"

namespace kachel::lowering {
namespace {

Target hopper() {
  return {.kind = Target::Kind::kCuda, .architecture = 90, .shared_limit = 227 * 1024};
}

std::string taps(const std::string& filter) {
  return R"(tile 1
kernel k(X: f16[P, C], F: f16[C, O, 3, 3], Y: out f32[O, P])
grid o < ceildiv(O, 64), p < ceildiv(P, 64)
{
  shared f: f16[32, 64], x: f16[64, 32]
  fragment acc: f32[64, 64] = 0
  for k < 9 * ceildiv(C, 32) {
    let tap = k % 9, c = k / 9 * 32
    )" + filter +
         R"(
    x = X[p*64 + tap +: 64, c +: 32]
    acc += f^T @ x^T
  }
  Y[o*64 +: 64, p*64 +: 64] = acc
}
)";
}

TEST_CASE("a copy whose elements lie apart is the region that does the same") {
  for (const char* filter : {"f = F[c +: 32, o*64 +: 64, tap / 3, tap % 3]",
                             "parallel i < 32, j < 64 { f[i, j] = F[c + i, o*64 + j, tap / 3, tap % 3] }"}) {
    const std::string text = lowered({taps(filter), {}, hopper()}).loop_ir;
    CAPTURE(text);
    CHECK(has(text, "registers f_part: f16[16]"));
    CHECK(has(text, "ahead["));
  }
  // With a number of its own beyond the bounds, or rows that lie together, it is a copy.
  CHECK(has(lowered({taps("f = F[c +: 32, o*64 +: 64, tap / 3, tap % 3] pad 1"), {}, hopper()}).loop_ir, "# f = F["));
}

TEST_CASE("a fragment of one group stays in registers, whichever way its column is named") {
  for (const char* column : {"0", "j / 64"}) {
    const std::string notes = lowered({fmt::format(R"(tile 1
kernel k(A: f16[M, K], W: f16[N, K], Y: out f16[M, N])
grid m < ceildiv(M, 64), n < ceildiv(N, 64)
{{
  shared a: f16[64, 64], w: f16[64, 64]
  fragment acc: f32[64, 64] = 0, mean: f32[64, 1]
  pipelined k < ceildiv(K, 64), 2 {{
    a = A[m*64 +: 64, k*64 +: 64]
    w = W[n*64 +: 64, k*64 +: 64]
    acc += a @ w^T
  }}
  parallel i < 64, g < 1 {{ mean[i, g] = sum[k < 64](acc[i, g*64 + k]) / 64 }}
  parallel i < 64, j < 64 {{ acc[i, j] -= mean[i, {}] }}
  Y[m*64 +: 64, n*64 +: 64] = acc
}}
)",
                                                   column),
                                       {},
                                       hopper()})
                                  .notes;
    CAPTURE(notes);
    CHECK(has(notes, "tile mean: f32 in registers"));
  }
}

TEST_CASE("columns of a product by fma that are used together have one thread") {
  const std::string notes = lowered({R"(tile 1
kernel k(A: f32[M, K], W: f32[N, K], Y: out f32[M, H])
where N == 2 * H
grid m < ceildiv(M, 64), n < ceildiv(N, 64)
{
  shared a: f32[64, 16], w: f32[64, 16]
  fragment acc: f32[64, 64] = 0, y: f32[64, 32]
  for k < ceildiv(K, 16) {
    a = A[m*64 +: 64, k*16 +: 16]
    w = W[n*64 +: 64, k*16 +: 16]
    acc += a @ w^T
  }
  parallel i < 64, j < 32 { y[i, j] = acc[i, 2*j] * acc[i, 2*j + 1] }
  Y[m*64 +: 64, n*32 +: 32] = y
}
)",
                                     {},
                                     hopper()})
                                .notes;
  CAPTURE(notes);
  CHECK(has(notes, "tile acc: f32 in registers"));
}

TEST_CASE("a product of literals and an extent that `where` gives a dimension fits where that fits") {
  const auto loop = [](const std::string& where) {
    return lowered({"tile 1\nkernel k(X: f32[N, C, H], G: f32[O, Q], Y: out f32[N, O])\n" + where +
                    "grid n < N, o < O\n{\n  fragment y: f32[1] = 0\n  for k < ceildiv(27*C, 64) {\n"
                    "    parallel i < 1 { y[i] += sum[j < 64](let q = k*64 + j in X[n, q / 27, q % 27] * G[o, q]) }\n"
                    "  }\n  Y[n, o +: 1] = y\n}\n"})
        .text;
  };
  CHECK(has(loop(""), "long long"));
  CAPTURE(loop("where Q == 27*C\n"));
  CHECK(!has(loop("where Q == 27*C\n"), "(long long)k"));
}

TEST_CASE("tensors of four bits that regions read are bytes") {
  const std::string text = lowered({R"(tile 1
kernel k(X: f32[K], W: u4[N, K], Y: out f32[N])
tune threads = 128
grid n < ceildiv(N, 4)
{
  fragment acc: f32[4] = 0, x: f32[1024]
  for k < ceildiv(K, 1024) {
    x = X[k*1024 +: 1024]
    parallel i < 4 { acc[i] += sum[j < 1024](f32(W[n*4 + i, k*1024 + j]) * x[j]) }
  }
  Y[n*4 +: 4] = acc
}
)"})
                               .loop_ir;
  CAPTURE(text);
  CHECK(has(text, "W_bytes["));
  CHECK(!has(text, " W["));
}

TEST_CASE("long straight code comes in pieces, beside products under way it does not") {
  const auto text = [](const std::string& value) {
    return lowered(
               {"tile 1\nkernel k(A: f32[M, N], C: out f32[M, N])\ngrid m < ceildiv(M, 64), n < ceildiv(N, 128)\n{\n"
                "  fragment a: f32[64, 128]\n  a = A[m*64 +: 64, n*128 +: 128]\n"
                "  parallel i < 64, j < 128 { a[i, j] = " +
                    value + " }\n  C[m*64 +: 64, n*128 +: 128] = a\n}\n",
                {},
                hopper()})
        .text;
  };
  const std::string soft = "let x = log(1 + exp(a[i, j])), y = log(1 + exp(x)), z = log(1 + exp(y)) in ";
  CHECK(count(text(soft + "tanh(x) * tanh(y) * tanh(z) * erf(z)"), "4611686018427387905") >= 1);
  CHECK(count(text("a[i, j] * 2"), "4611686018427387905") == 0);
}

}  // namespace
}  // namespace kachel::lowering
