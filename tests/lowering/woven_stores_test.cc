// Operands of few bits: taken out of words two at a time, made by iterations that set several elements each, and sums
// that another product takes; as printed.
#include <fmt/format.h>

#include "tests/lowering/lowered_text.h"

namespace kachel::lowering {
namespace {

// `w` is made by `region`, of words `q` with as many bits as the type says, and multiplied with `rows` rows.
std::string made(const std::string& region, const std::string& more = "", const char* word = "u8", int columns = 32,
                 int rows = 128) {
  return fmt::format(R"(tile 1
kernel k(A: f16[M, K], W: {0}[N, L], S: f16[N, K], Z: u8[N], R: i32[M], C: out f16[M, N])
grid i < ceildiv(M, {3}), j < ceildiv(N, 64)
{{
  shared a: f16[{3}, 64], q: {0}[64, {4}]
  fragment w: f16[64, 64], c: f32[{3}, 64] = 0
  pipelined k < ceildiv(K, 64), 3 {{
    a = A[i*{3} +: {3}, k*64 +: 64]
    q = W[j*64 +: 64, k*{4} +: {4}]
    {2}
    {1}
    c += a @ w^T
  }}
  C[i*{3} +: {3}, j*64 +: 64] = c
}}
)",
                     word, region, more, rows, columns);
}
std::string all_loops(const std::string& text) {
  Request request{text};
  request.target.architecture = 90;
  return lowered(request).loop_ir;
}
std::string loops(const std::string& text) {
  const std::string all = all_loops(text);
  return all.substr(all.find("# parallel n"));
}

TEST_CASE("an iteration that sets several elements becomes one an element") {
  const std::string by_pairs =
      loops(made("parallel n < 64, d < 32 { w[n, 2*d] = (f16(q[n, d] & 15) - 8) * S[j*64 + n, 0]  "
                 "w[n, 2*d + 1] = (f16(q[n, d] >> 4) - 8) * S[j*64 + n, 0] }"));
  CAPTURE(by_pairs);
  CHECK(has(by_pairs, "# parallel n < 64, d < 64"));
  CHECK(has(by_pairs, "unpack f16 u4 4 pairs[0 +: 2], q_words["));
  const std::string high_first =
      loops(made("parallel n < 64, d < 32 { w[n, 2*d + 1] = f16(q[n, d] & 15)  "
                 "w[n, 2*d] = f16(q[n, d] >> 4) }"));
  CHECK(has(high_first, "unpack f16 u32 4 w["));
  const std::string apart =
      loops(made("parallel n < 64, d < 32 { w[n, d] = f16(q[n, d] & 15)  "
                 "w[n, d + 32] = f16(q[n, d] >> 4) }"));
  CHECK(has(apart, "# parallel n < 64, d < 64"));
}

TEST_CASE("what neighbours share stays shared, wherever the loop begins") {
  const auto woven = [](const std::string& loop) {
    std::string text = made(
        "parallel n < 64, d < 32 { w[n, 2*d] = f16(q[n, d] & 15) * S[j*64 + n, (k*64 + 2*d) / 32]  "
        "w[n, 2*d + 1] = f16(q[n, d] >> 4) * S[j*64 + n, (k*64 + 2*d) / 32] }");
    text.replace(text.find("k < ceildiv(K, 64)"), 18, loop);
    const size_t store = text.rfind("C[i*");
    text.replace(text.find("= c", store), 3, "= c }");
    text.insert(store, "if p == 0 { ");
    text.insert(text.find("grid ") + 5, "p < 4, ");
    return all_loops(text);
  };
  CHECK(!has(woven("k < ceildiv(K, 64)"), "/ 2 * 2"));
  CHECK(!has(woven("k in p * ceildiv(K, 256) .. ceildiv(K, 64)"), "/ 2 * 2"));
  CHECK(has(woven("k in i64(R[0]) .. ceildiv(K, 64)"), "/ 2 * 2"));  // which may be below 0
}

TEST_CASE("what is no weave, or takes no bits, stays as it is written") {
  const auto stays = [](const std::string& region) {
    return has(loops(made("parallel n < 64, d < 32 { " + region + " }")), "# parallel n < 64, d < 32");
  };
  CHECK(stays("w[n, 2*d] = f16(q[n, d])  w[n, 2*d + 1] = f16(q[n, 31 - d])"));
  CHECK(stays("w[n, 2*d] = f16(q[n, d] & 15)  w[n, 2*d + 1] = w[n, 2*d]"));
  CHECK(stays("w[n, 2*d] = f16(q[n, d] & 15)  w[n, d + 32] = f16(q[n, d] >> 4)"));
  CHECK(stays("w[n, 2*d] = f16(q[n, d] & 15)  if d > 3 { w[n, 2*d + 1] = f16(q[n, d] >> 4) }"));
}

TEST_CASE("integers of few bits are masked and converted two at a time") {
  const auto fields = [](const std::string& value, const char* word) {
    return loops(made("parallel n < 64, d < 64 { w[n, d] = " + value + " }", "", word, 8));
  };
  CHECK(has(fields("q[n, d / 8] >> d % 8 * 4 & 15", "u32"), "unpack f16 u32 4 w["));
  CHECK(has(fields("(q[n, d / 8] >> d % 8 * 4 & 15) - f16(Z[j*64 + n] & 7)", "u32"), "fields[0 +: 2], one[0 +: 1]"));
  CHECK(has(fields("q[n, d / 8] << 28 - d % 8 * 4 >> 28", "i32"), "unpack f16 i32 4 w["));
  CHECK(has(fields("(q[n, d / 8] >> d % 8 * 4 & 1023) * S[j*64 + n, d]", "u32"), "unpack f16 u32 10 pairs["));
  // More bits than a mantissa has; what wraps where there is no sign; two roundings.
  CHECK(!has(fields("q[n, d / 8] >> d % 8 * 4 & 2047", "u32"), "unpack"));
  CHECK(!has(fields("(q[n, d / 8] >> d % 8 * 4 & 15) - 16", "u32"), "unpack"));
  CHECK(!has(fields("((q[n, d / 8] & 15) - S[j*64 + n, d]) * S[j*64 + n, d]", "u32"), "packed *"));
}

TEST_CASE("sums that another product takes from memory have a tile of their own") {
  Request request{R"(tile 1
kernel k(X: f16[M, 64], C: f16[64, 64], G: f32[64, 64], Y: out f32[M, 64])
grid m < ceildiv(M, 64)
{
  shared   x: f16[64, 64], c: f16[64, 64], g: f32[64, 64]
  fragment u: f32[64, 64], acc: f32[64, 64] = 0
  x = X[m*64 +: 64, :]
  c = C
  g = G
  u = x @ c^T
  parallel i < 64, j < 64 { u[i, j] *= u[i, j] }
  acc += u @ g^T precision tf32
  Y[m*64 +: 64, :] = acc
}
)"};
  request.target.architecture = 90;
  const std::string notes = lowered(request).notes;
  CAPTURE(notes);
  CHECK(has(notes, "tile u_operand: f32 in memory"));
  CHECK(has(notes, "gemm u: wgmma.m64k16"));
  CHECK(has(notes, "gemm acc: wgmma.m64k8"));
}

TEST_CASE("windows of pixels are loaded as vectors of channels, where they are inside") {
  const std::string text = R"(tile 1
kernel k(X: f16[H, W, C], Y: out f16[H, W, C])
grid h < H, w < ceildiv(W, 16)
{
  fragment y: f16[16, 64]
  parallel n < 16, j < 64 {
    y[n, j] = max[r < 9](w*16 + n + r - 4 >= 0 && w*16 + n + r - 4 < W ? X[h, w*16 + n + r - 4, j] : -1)
  }
  Y[h, w*16 +: 16, 0 +: 64] = y
}
)";
  const std::string walked = loops(text);
  CAPTURE(walked);
  CHECK(count(walked, "copy_vector raw[0 +: 8], X[") == 9);
  CHECK(has(walked, "if wanted"));
}

}  // namespace
}  // namespace kachel::lowering
