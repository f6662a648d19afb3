// Which operands can be made ahead, and which cannot, one reason a row.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include "derive/operand_slice.h"
#include "ir/parse.h"
#include "ir/print.h"

namespace kachel::derive {
namespace {

struct Parts {
  std::string tiles;  // beside a, b and acc
  std::string work =
      "b = B[n*BN +: BN, k*BK +: BK] a = A[m*BM +: BM, k*BK +: BK]";  // in the loop, in front of the gemm
  std::string after;                                                  // behind it, in the loop
  std::string before;                                                 // in front of the loop
  std::string range = "k < ceildiv(K, BK)";
  std::string grid = "m < ceildiv(M, BM), n < ceildiv(N, BN)";
};

// "a b*": the tiles of the slices, with a star where they are computed.
std::string slices(const Parts& parts) {
  const std::string text = fmt::format(R"(tile 1
kernel k(A: f16[M, K], B: f16[N, K], G: f32[K], I: i32[M], Z: inout f16[M, K], C: out f32[M, N], s: f32)
tune BM = 16 | 32, BN = 16 | 48, BK = 16 | 64
grid {}
{{
  shared a: f16[BM, BK], b: f16[BN, BK] {}
  fragment acc: f32[BM, BN] = 0
  {}
  for {} {{
    {}
    acc += a @ b^T
    {}
  }}
  C[m*BM +: BM, n*BN +: BN] = acc
}}
)",
                                       parts.grid, parts.tiles, parts.before, parts.range, parts.work, parts.after);
  const Result<ir::Module> module = ir::load(text);
  REQUIRE_MESSAGE(module.ok(), module.status().message());
  std::string names;
  for (const OperandSlice& slice : operand_slices(module->kernels[0]))
    if (slice.fed.empty())
      names += fmt::format("{}{}{}", names.empty() ? "" : " ", slice.tile->name, slice.computed ? "*" : "");
  return names;
}

const std::string kB = "b = B[n*BN +: BN, k*BK +: BK] ", kX = "fragment x: f32[BM, BK] ",
                  kLoad = kB + "x = A[m*BM +: BM, k*BK +: BK] ";

}  // namespace

TEST_CASE("operands that blocks make alike are found") {
  CHECK(slices({}) == "a b");
  CHECK(slices({.tiles = kX, .work = kLoad + "parallel i < BM, j < BK { a[i, j] = exp(x[i, j]) * s }"}) == "a* b");
  CHECK(slices({.work = kB + "parallel i < BM, j < BK { a[i, j] = A[m*BM + i, k*BK + j] * G[k*BK + j] }"}) == "a* b");
  // Made in place, from names, by way of other tiles, and under a mask.
  CHECK(slices({.work = "let row = m*BM " + kB +
                        "a = A[row +: BM, k*BK +: BK] parallel i < BM, j < BK { let x = a[i, j] * 2 a[i, j] = x }"}) ==
        "a* b");
  CHECK(slices({.tiles = kX + "fragment g: f32[BK] ",
                .work = kLoad + "g = G[k*BK +: BK] parallel i < BM, j < BK { x[i, j] *= g[j] } a = x"}) == "a* b");
  CHECK(slices({.work = kB + "parallel i < BM, j < BK { a[i, j] = m*BM + i < M && k*BK + j >= 3 ? "
                             "A[m*BM + i, k*BK + j] : 0 }"}) == "a* b");
  CHECK(slices({.work = kB + "parallel i < BM, j < BK { if k*BK + j < K - 1 { a[i, j] = 1 } else { a[i, j] = "
                             "A[m*BM + i, k*BK + j] } }"}) == "a* b");
  // A value of each row, made in front of the loop.
  CHECK(slices({.tiles = "fragment r: f32[BM], y: f16[BM, BK] ",
                .work = kB + "y = A[m*BM +: BM, k*BK +: BK] parallel i < BM, j < BK { a[i, j] = y[i, j] * r[i] }",
                .before = "parallel i < BM { r[i] = rsqrt(sum[c < 64](A[m*BM + i, c])) }"}) == "a* b");
}

TEST_CASE("operands that are each block's own, or depend on how they are cut, are not") {
  const std::string made = "parallel i < BM, j < BK { a[i, j] = x[i, j] } ";
  // A block of its own.
  CHECK(slices({.work = kB + "a = A[m*BM +: BM, k*BK +: BK] parallel i < BM, j < BK { a[i, j] = a[i, j] + n }"}) ==
        "b");
  CHECK(slices({.grid = "m < ceildiv(M, BM), n < 1"}) == "a");
  // The number of a tile, its extent, an index within it.
  for (const char* value : {"x[i, j] * k", "x[i, j] * BK", "x[i, j] * m", "x[i, j] * i", "x[i, j] + (k*BK + 1)",
                            "x[i, j] * (k*BK + i)", "sum[c < BK](x[i, c])", "x[i, 0]", "x[i, j] * G[j]"})
    CHECK_MESSAGE(
        slices({.tiles = kX, .work = kLoad + fmt::format("parallel i < BM, j < BK {{ a[i, j] = {} }}", value)}) == "b",
        value);
  CHECK(slices({.tiles = kX, .work = kB + "x = A[m*BM + 1 +: BM, k*BK +: BK] " + made}) == "b");
  CHECK(slices({.tiles = kX, .work = kB + "x = A[m*16 +: BM, k*BK +: BK] " + made}) == "b");
  CHECK(slices({.tiles = kX, .work = kB + "x = A[I[m*BM +: BM], k*BK +: BK] " + made}) == "b");
  CHECK(slices({.tiles = "fragment x: f32[BK, BM] ",
                .work = kB + "x = A[k*BK +: BK, m*BM +: BM] parallel i < BM, j < BK { a[i, j] = x[j, i] }"}) == "a* b");
  // Loops that may begin below 0, and extents that are not a number of tiles.
  CHECK(slices({.range = "k in -1 .. ceildiv(K, BK)"}) == "");
  CHECK(slices({.range = "k < m"}) == "");
  CHECK(slices({.range = "k < K / BK"}) == "a b");
  // Tiles that carry something from one iteration to the next, or that are needed elsewhere too.
  CHECK(slices({.tiles = kX,
                .work = kLoad + "parallel i < BM, j < BK { a[i, j] = x[i, j] }",
                .after = "parallel i < BM, j < BK { x[i, j] += 1 }"}) == "b");
  CHECK(slices({.tiles = kX,
                .work = kB + "parallel i < BM, j < BK { x[i, j] += A[m*BM + i, k*BK + j] } " + made,
                .before = "x = 0"}) == "b");
  CHECK(slices({.after = "a = 0"}) == "b");
  CHECK(slices({.work = kB + "parallel i < BM, j < BK { if j > 3 { a[i, j] = A[m*BM + i, k*BK + j] } }",
                .before = "a = 0"}) == "b");
  CHECK(slices({.work = kB + "if k > 0 { a = A[m*BM +: BM, k*BK +: BK] } else { a = 0 }"}) == "b");
  // Parts of tiles, which lie elsewhere when the tiles are larger.
  const std::string load = kB + "a = A[m*BM +: BM, k*BK +: BK] ";
  for (const char* part : {"a[0 +: 1, :] = 0.5", "a[0, :] = 0.5", "a[:, 0 +: 4] = 0.5", "a[BM - 1 +: 1, :] = 0.5",
                           "a[k, :] = 0.5", "a within 2 +: 3 = 0.5", "a[1 +: BM, :] = A[m*BM +: BM, k*BK +: BK]",
                           "a[I[0 +: BM], :] = A[m*BM +: BM, k*BK +: BK]", "parallel i < 8, j < BK { a[i, j] = 0.25 }",
                           "parallel i < 1, j < BK { a[i, j] += 1 }", "parallel i < BM, j < 3 { a[i, j] *= 2 }"})
    CHECK_MESSAGE(slices({.work = load + part}) == "b", part);
  CHECK(slices({.tiles = kX, .work = kLoad + "a = x within 0 +: 5"}) == "b");
  CHECK(slices({.tiles = "fragment y: f32[BM] ", .work = load + "y = 0.5 a[:, 0] = y"}) == "b");
  CHECK(slices({.tiles = kX + "fragment g: f32[BK] ",
                .work = kLoad +
                        "g = 1 parallel j < 4 { g[j] = 0.5 } parallel i < BM, j < BK { a[i, j] = x[i, j] * g[j] }"}) ==
        "b");
  // Sums in which coordinates cancel, or are scaled.
  for (const char* sum : {"(k*BK + j)*BK + k*BK + j", "(k*BK + j)*k + k*BK + j", "(k*BK + j)*(k*BK) + k*BK + j",
                          "j*(k*BK + j) + k*BK + j"})
    CHECK_MESSAGE(
        slices({.tiles = kX,
                .work = kLoad +
                        fmt::format("parallel i < BM, j < BK {{ a[i, j] = x[i, j] + f32(({}) % 17) }}", sum)}) == "b",
        sum);
  CHECK(slices({.tiles = kX,
                .work = kLoad +
                        "parallel i < BM, j < BK { a[i, j] = x[i, j] + ((k*BK + j)*(k*BK + j) + (k*BK + j)) % 7 }"}) ==
        "a* b");
  CHECK(slices({.tiles = kX, .work = kLoad + "parallel i < BM, j < BK { a[i, j] = (s - s + k*BK + j) * x[i, j] }"}) ==
        "b");
  // Elements of tiles beyond which there is nothing.
  CHECK(slices({.tiles = "fragment g: i32[BK] ",
                .work = kB + "g = I[0 +: BK] a = A[m*BM +: BM, k*BK +: BK] within 0 +: g[10]"}) == "b");
  // Of what counts: by two divisors, whole beside a quotient, by what differs from iteration to iteration.
  const auto digits = [](const std::string& value) {
    return slices({.work = "let c = ceildiv(K, BK) b = 1 a = A[m*BM +: BM, k % c * BK +: BK] parallel i < BM, j < BK { "
                           "a[i, j] = a[i, j] * f16(" +
                           value + ") }",
                   .range = "k < 6 * ceildiv(K, BK)"});
  };
  CHECK(digits("k / c") == "a*");
  for (const char* value : {"k / (c + 1)", "k", "k % (c * 2)", "(k + 1) / c", "k / (c + I[k])", "BK"})
    CHECK_MESSAGE(digits(value) == "", value);
  // An axis whose tiles are counted, by halves.
  CHECK(slices({.work = load + "parallel i < BM, j < BK / 2 { a[i, j] = a[i, j + BK / 2] }"}) == "b");
  CHECK(slices({.work = load + "parallel i < BM / 2, j < BK { a[i + BM / 2, j] = a[i, j] }"}) == "b");
  // What the kernel itself writes.
  CHECK(slices({.work = kB + "a = Z[m*BM +: BM, k*BK +: BK]"}) == "b");
  // One copy a block.
  CHECK(slices({.work = kB, .before = "a = A[m*BM +: BM, 0 +: BK]"}) == "b");
}

TEST_CASE("names that mean much are not written out") {
  std::string squares = "let y0 = A[m*BM + i, k*BK + j] ", sum = "0";
  for (int i = 1; i <= 10; ++i) squares += fmt::format("let y{0} = y{1} * y{1} ", i, i - 1);
  for (int i = 0; i < 50; ++i) sum = fmt::format("max({}, y10)", sum);
  CHECK(slices({.work = kB + "parallel i < BM, j < BK { " + squares + "a[i, j] = " + sum + " }"}) == "b");
  std::string chain = "let y0 = A[m*BM + i, k*BK + j] ";
  for (int i = 1; i <= 100; ++i) chain += fmt::format("let y{} = y{} * 0.5 + 0.25 ", i, i - 1);
  CHECK(slices({.work = kB + "parallel i < BM, j < BK { " + chain + "a[i, j] = y100 }"}) == "a* b");
}

TEST_CASE("a slice says where its elements lie") {
  const Result<ir::Module> module = ir::load(R"(tile 1
kernel k(A: f16[H, M, K], B: f16[N, K], C: out f32[H, M, N])
tune BM = 16 | 32, BN = 16, BK = 16
grid h < H, n < ceildiv(N, BN), m < ceildiv(M, BM)
{
  shared a: f16[BM, BK], b: f16[BN, BK]
  fragment acc: f32[BM, BN] = 0
  for k < ceildiv(K, BK) {
    a = A[h, m*BM +: BM, k*BK +: BK]
    b = B[n*BN +: BN, k*BK +: BK]
    acc += a @ b^T
  }
  C[h, m*BM +: BM, n*BN +: BN] = acc
}
)");
  REQUIRE_MESSAGE(module.ok(), module.status().message());
  const std::vector<OperandSlice> found = operand_slices(module->kernels[0]);
  REQUIRE(found.size() == 2);
  const OperandSlice& a = found[0];
  REQUIRE(a.free.size() == 1);
  CHECK(a.free[0].var->name == "h");
  REQUIRE(a.axes.size() == 2);
  CHECK(a.axes[0].var->name == "m");
  CHECK(ir::print(a.axes[0].all) == "M");
  CHECK(a.axes[1].var->name == "k");
  CHECK(ir::print(a.axes[1].all) == "K");
  REQUIRE(a.tensors.size() == 1);
  CHECK(a.tensors[0]->name == "A");
  CHECK(found[1].free.empty());
}

}  // namespace kachel::derive
