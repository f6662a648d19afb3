// Kernels whose sums are made in parts compute what they did, by the reference interpreter, on odd shapes.
#include "derive/split_sums.h"

#include "ir/print.h"
#include "tests/derive/interpreted.h"

namespace kachel::derive {
namespace {

ir::Bindings with_stages(DType type, int64_t bm, int64_t bn, int64_t bk) {
  ir::Bindings made = bindings(type, bm, bn, bk);
  made.tunables["stages"] = 2;
  return made;
}

// Two sums, names in front of the loop and behind it, a tile that only the end needs, and one that products share.
constexpr std::string_view kTwoSums = R"(tile 1
kernel two<T: f16 | f32>(A: T[H, M, K], B: T[N, K], W: T[K, N], R: T[M, N], C: out f32[H, M, N], D: out f32[H, M, N], x: f32)
key bucket(M), N, K, H
tune BM = 16 | 8, BN = 16 | 48, BK = 16 | 32, stages = 2
where BM * BN <= 2048
grid h < H, m < ceildiv(M, BM), n < ceildiv(N, BN)
{
  shared a: T[BM, BK], b: T[BN, BK], w: T[BK, BN]
  fragment c: acc(T)[BM, BN] = 0, d: f32[BM, BN] = 0, r: f32[BM, BN]
  let first = m*BM
  r = R[m*BM +: BM, n*BN +: BN]
  pipelined k < ceildiv(K, BK), stages {
    a = A[h, first +: BM, k*BK +: BK]
    b = B[n*BN +: BN, k*BK +: BK]
    w = W[k*BK +: BK, n*BN +: BN]
    c += a @ b^T
    d += a @ w
  }
  let y = x * 2
  parallel i < BM, j < BN { c[i, j] = c[i, j] * y + r[i, j] }
  C[h, m*BM +: BM, n*BN +: BN] = c
  D[h, m*BM +: BM, n*BN +: BN] = d
}
)";

std::string one_loop(const std::string& declared, const std::string& loop, const std::string& behind = "") {
  return "tile 1\nkernel k(A: f16[M, K], B: f16[N, K], I: i32[M], C: out f32[M, N])\ntune BM = 16 | 32, BN = 16 | 32\n"
         "grid m < ceildiv(M, BM), n < ceildiv(N, BN)\n{\n  shared a: f16[BM, 16], b: f16[BN, 16]\n  fragment c: "
         "f32[BM, BN]" +
         declared +
         "\n  for k < ceildiv(K, 16) {\n    a = A[m*BM +: BM, k*16 +: 16]\n    b = B[n*BN +: BN, k*16 +: 16]\n    " +
         loop + "\n  }\n  " + behind + "\n  C[m*BM +: BM, n*BN +: BN] = c\n}\n";
}

bool splits(const std::string& text) {
  auto module = ir::load(text);
  REQUIRE_MESSAGE(module.ok(), module.status().message());
  return sum_loop(module->kernels[0]).has_value();
}

TEST_CASE("sums in parts are those of the kernel, with operands made ahead and without") {
  for (DType type : {DType::F32, DType::F16})
    for (int64_t parts : {2, 8})
      for (bool operands : {false, true}) {
        CAPTURE(parts);
        Interpreted program(kTwoSums, with_stages(type, 8, 48, 16), {{"H", 2}, {"M", 19}, {"N", 37}, {"K", 93}},
                            {.operands = operands, .turned = true, .parts = parts});
        const ir::Module& derived = program.derived();
        REQUIRE(derived.find("two_prepared_part"));
        REQUIRE(derived.find("two_prepared_sums"));
        program.check();
      }
}

TEST_CASE("each kernel has what it needs, and values that suit it") {
  Interpreted program(kTwoSums, with_stages(DType::F16, 8, 16, 16), {{"H", 1}, {"M", 9}, {"N", 16}, {"K", 40}},
                      {.operands = false, .parts = 4});
  const std::string part = ir::print(*program.derived().find("two_prepared_part"));
  const std::string sums = ir::print(*program.derived().find("two_prepared_sums"));
  CAPTURE(part);
  CAPTURE(sums);
  CHECK(part.find("c_parts: out f32[4, H, M, N]") != std::string::npos);
  CHECK(part.find("d_parts: out f32[4, H, M, N]") != std::string::npos);
  CHECK(part.find("R: ") == std::string::npos);
  CHECK(part.find("x: f32") == std::string::npos);
  CHECK(sums.find("A: ") == std::string::npos);
  CHECK(sums.find("stages") == std::string::npos);
  CHECK(sums.find("x: f32") != std::string::npos);
  program.check();
}

TEST_CASE("a part adds up the same elements whatever the tiles along k are") {
  std::vector<std::vector<double>> sums;
  for (int64_t bk : {16, 32}) {
    Interpreted program(kTwoSums, with_stages(DType::F32, 8, 16, bk), {{"H", 1}, {"M", 9}, {"N", 16}, {"K", 150}},
                        {.operands = false, .parts = 4});
    program.check();
    sums.push_back(program.tensor("c_parts").values());
  }
  REQUIRE(sums[0].size() == sums[1].size());
  for (size_t i = 0; i < sums[0].size(); ++i) CHECK(std::abs(sums[0][i] - sums[1][i]) < 1e-4);
}

TEST_CASE("loops from elsewhere, and fewer iterations than parts") {
  const std::string text = R"(tile 1
kernel k<T: f16>(A: T[M, K], B: T[N, K], C: out f32[M, N])
tune BM = 16, BN = 16, BK = 16
grid m < ceildiv(M, BM), n < ceildiv(N, BN)
{
  shared a: T[BM, BK], b: T[BN, BK]
  fragment c: f32[BM, BN] = 0
  for k in 1 .. ceildiv(K, BK) {
    a = A[m*BM +: BM, k*BK +: BK]
    b = B[n*BN +: BN, k*BK +: BK]
    if k != 2 { c += a @ b^T }
  }
  C[m*BM +: BM, n*BN +: BN] = c
})";
  for (int64_t k : {1, 16, 33, 90, 200})
    Interpreted(text, bindings(DType::F16, 16, 16, 16), {{"M", 19}, {"N", 21}, {"K", k}},
                {.operands = false, .parts = 4})
        .check();
}

TEST_CASE("extents that decide where sums lie have one value in both kernels") {
  // One extent along two axes, and rows that are added up behind the loop.
  const std::string text = R"(tile 1
kernel k<T: f16>(A: T[K, M], C: out f32[M, M])
tune BM = 16 | 8, BK = 16 | 32
grid m < ceildiv(M, BM), n < ceildiv(M, BM)
{
  shared a: T[BK, BM], b: T[BK, BM]
  fragment c: f32[BM, BM] = 0, r: f32[BM]
  for k < ceildiv(K, BK) {
    a = A[k*BK +: BK, m*BM +: BM]
    b = A[k*BK +: BK, n*BM +: BM]
    c += a^T @ b
  }
  parallel i < BM { r[i] = sum[j < BM](c[j, i] * 0.5) }
  parallel i < BM, j < BM { c[i, j] += r[j] }
  C[m*BM +: BM, n*BM +: BM] = c
})";
  Interpreted program(text, bindings(DType::F16, 16, 16, 16), {{"M", 37}, {"K", 150}}, {.operands = false, .parts = 4});
  const std::string part = ir::print(*program.derived().find("k_prepared_part"));
  CAPTURE(part);
  CHECK(part.find("c_parts: out f32[4, max(ceildiv(M, 16), 0), max(ceildiv(M, 16), 0), 16, 16]") != std::string::npos);
  CHECK(part.find("tune BK = 16 | 32") != std::string::npos);
  CHECK(program.derived().find("k_prepared_adder"));
  program.check();
}

TEST_CASE("parts in tiles of fixed extents are added up in tiles of any") {
  // Of integers; one of the sums has all of its columns in a tile.
  const std::string text = R"(tile 1
kernel k(A: i8[M, K], B: i8[N, K], D: i8[24, K], C: out i32[M, N], E: out i32[M, 24])
tune BK = 16 | 32
grid m < ceildiv(M, 16), n < ceildiv(N, 16)
{
  shared a: i8[16, BK], b: i8[16, BK], d: i8[24, BK]
  fragment c: i32[16, 16] = 0, e: i32[16, 24] = 0
  for k < ceildiv(K, BK) {
    a = A[m*16 +: 16, k*BK +: BK]
    b = B[n*16 +: 16, k*BK +: BK]
    d = D[0 +: 24, k*BK +: BK]
    c += a @ b^T
    e += a @ d^T
  }
  parallel i < 16, j < 16 { c[i, j] = c[i, j] * 2 - e[i, j] }
  C[m*16 +: 16, n*16 +: 16] = c
  if n == 0 { E[m*16 +: 16, 0 +: 24] = e }
})";
  Interpreted program(text, bindings(DType::I8, 16, 16, 16), {{"M", 37}, {"N", 21}, {"K", 150}},
                      {.operands = false, .parts = 4});
  int adders = 0;
  for (const Kernel& kernel : program.derived().kernels) adders += kernel.name.find("adder") != std::string::npos;
  CHECK(adders == 2);
  program.check();
}

TEST_CASE("extremes in parts are those of all, from whatever number they begin at") {
  // With a sum in the same loop; the tile of numbers without a sign has one value of its type for all of a part.
  for (const std::string begin : {"-inf", "0.25"}) {
    const std::string text = R"(tile 1
kernel k<T: f16>(X: T[B, M, N], Q: u8[M, N], Y: out f32[B, N])
tune BM = 8 | 16, BN = 16 | 32
grid b < B, n < ceildiv(N, BN)
{
  fragment x: f32[BM, BN], q: u8[BM, BN], s: f32[BN] = 0, y: f32[BN] = )" +
                             begin +
                             R"(, z: T[BN] = 4, low: u8[BN] = 200
  for m < ceildiv(M, BM) {
    x = X[b, m*BM +: BM, n*BN +: BN] pad -inf
    q = Q[m*BM +: BM, n*BN +: BN] pad 255
    parallel j < BN { y[j] = max(y[j], max[i < BM](x[i, j])) }
    parallel j < BN { z[j] = min(x[0, j], z[j])  low[j] = min(min[i < BM](q[i, j]), low[j]) }
    parallel j < BN { s[j] += x[0, j] }
  }
  parallel j < BN { y[j] = y[j] + s[j] + z[j] + f32(low[j]) }
  Y[b, n*BN +: BN] = y
})";
    Interpreted program(text, bindings(DType::F16, 8, 16, 16), {{"B", 2}, {"M", 75}, {"N", 37}},
                        {.operands = false, .parts = 4});
    REQUIRE(program.derived().find("k_prepared_part"));
    program.check();
  }
}

TEST_CASE("what an iteration leaves to the next, or to what stands behind, is not parted") {
  const std::string sum = "c += a @ b^T";
  CHECK(splits(one_loop(" = 0", sum)));
  CHECK(splits(one_loop(" = 0, t: f32[BM, 16]", "parallel i < BM, j < 16 { t[i, j] = f32(a[i, j]) * 2 }  " + sum)));
  CHECK(!splits(one_loop(" = 1", sum)));
  CHECK(!splits(
      one_loop(" = 0, most: f32[BM] = 0", sum + "  parallel i < BM { most[i] = max(2 * most[i], f32(a[i, 0])) }")));
  CHECK(!splits(one_loop(" = 0", sum + "  parallel i < BM, j < BN { c[i, j] *= 0.5 }")));
  CHECK(!splits(one_loop(" = 0, t: f32[BM, BN]", sum + "  t = c")));
  CHECK(!splits(one_loop(" = 0, t: f32[BM, 16] = 0", sum + "  parallel i < BM, j < 16 { t[i, j] = f32(a[i, j]) }",
                         "parallel i < BM, j < BN { c[i, j] += t[i, 0] }")));
  CHECK(!splits(one_loop(" = 0, d: f32[BM, BN] = 0", sum + "  d += a @ b[i64(c[0, 0]) % 2 +: BN, :]^T")));
  // Rows that meet in a sum have to be those of one block.
  CHECK(!splits(one_loop(" = 0, t: f32[BN]", sum, "parallel j < BN { t[j] = sum[i < BM](c[i, j]) }")));
}

TEST_CASE("parts of sums whose operand has several elements of a byte, in tiles of a fixed extent") {
  const std::string text = R"(tile 1
kernel k(A: f16[M, K], W: u8[H, N], S: f16[G, N], C: out f32[M, N])
where K == 2 * H, K == 32 * G
tune BM = 8 | 16, BN = 8 | 16, BK = 16 | 32
where BM * BN <= 256
grid m < ceildiv(M, BM), n < ceildiv(N, BN)
{
  shared a: f16[BM, BK], q: u8[BK / 2, BN], w: f16[BK, BN]
  fragment c: f32[BM, BN] = 0
  for k < ceildiv(K, BK) {
    a = A[m*BM +: BM, k*BK +: BK]
    q = W[k*(BK / 2) +: BK / 2, n*BN +: BN]
    parallel i < BK / 2, j < BN {
      let s = S[(k*BK + 2*i) / 32, n*BN + j]
      w[2*i, j] = ((q[i, j] & 15) - 8) * s
      w[2*i + 1, j] = ((q[i, j] >> 4) - 8) * s
    }
    c += a @ w
  }
  parallel i < BM, j < BN { c[i, j] += BN - BN }
  C[m*BM +: BM, n*BN +: BN] = c
})";
  Interpreted program(text, bindings(DType::F16, 8, 16, 16), {{"M", 11}, {"N", 21}, {"K", 192}, {"H", 96}, {"G", 6}},
                      {.operands = false, .parts = 4});
  REQUIRE(program.derived().find("k_prepared_part"));
  program.check();
}

TEST_CASE("a tile of which an iteration sets several elements is set anew where these are all of it") {
  const auto set = [](const std::string& region) {
    return splits(one_loop(" = 0, t: f16[BM, 16]", "parallel i < BM, j < 8 { " + region + " }  c += t @ b^T"));
  };
  CHECK(set("t[i, 2*j] = a[i, j]  t[i, 2*j + 1] = a[i, j + 8]"));
  CHECK(set("t[i, j + 8] = a[i, j]  t[i, j] = a[i, j + 8]"));
  CHECK(!set("t[i, 2*j] = a[i, j]  t[i, 2*j] = a[i, j + 8]"));
  CHECK(!set("t[i, 2*j] = a[i, j]  t[i, j + 8] = a[i, j + 8]"));
  CHECK(!set("t[i, 2*j] = a[i, j]"));
  CHECK(!set("t[i, 2*j] = a[i, j]  if j > 3 { t[i, 2*j + 1] = a[i, j] }"));
}

TEST_CASE("parts begin where every tile along k does, and conditions that keep a kernel right are kept") {
  const auto text = [](const std::string& tune, const std::string& behind) {
    return "tile 1\nkernel k(A: f16[M, K], B: f16[N, K], E: f32[P], C: out f32[M, N])\ntune BM = 16, BN = 16\n" + tune +
           "\ngrid m < ceildiv(M, BM), n < ceildiv(N, BN)\n{\n  shared a: f16[BM, BK], b: f16[BN, BK]\n"
           "  fragment c: f32[BM, BN] = 0, s: f32[1] = 0\n  for k < ceildiv(K, BK) {\n    a = A[m*BM +: BM, k*BK +: "
           "BK]\n"
           "    b = B[n*BN +: BN, k*BK +: BK]\n    c += a @ b^T\n  }\n  " +
           behind + "\n  C[m*BM +: BM, n*BN +: BN] = c\n}\n";
  };
  CHECK(splits(text("tune auto BK", "")));
  CHECK(splits(text("tune BK = 16 | 48", "")));
  CHECK(!splits(text("tune BK = 80 | 96 | 112", "")));  // 3360
  CHECK(!splits(text("tune BK = 16 | 0\nwhere BK > 0", "")));
  // BK is not known behind the loop, where the condition on P is needed.
  const std::string tail =
      "for p < P / BP { parallel i < 1 { s[i] += sum[j < BP](E[p*BP + j]) } }  parallel i < BM, j < BN { c[i, j] += "
      "s[0] }";
  auto module = ir::load(text("tune BK = 16, BP = 8 | 16\nwhere K % BK == 0 && P % BP == 0", tail));
  REQUIRE_MESSAGE(module.ok(), module.status().message());
  CHECK(prepare_operands(module->kernels[0], {}, {.parts = 4}).find("c_parts") == std::string::npos);
  module = ir::load(text("tune BK = 16, BP = 8 | 16\nwhere K % BK == 0, P % BP == 0", tail));
  REQUIRE_MESSAGE(module.ok(), module.status().message());
  CHECK(prepare_operands(module->kernels[0], {}, {.parts = 4}).find("c_parts") != std::string::npos);
}

TEST_CASE("a tile whose place a condition, a bound or a slice is made of is not turned") {
  const auto down = [](const std::string& sum) {
    auto module = ir::load(
        "tile 1\nkernel k(A: f32[K, M], B: f32[N, K], C: out f32[M, N])\ngrid m < ceildiv(M, 16), n < ceildiv(N, "
        "16)\n{\n"
        "  shared a: f32[16, 16], b: f32[16, 16]\n  fragment c: f32[16, 16] = 0\n  for k < ceildiv(K, 16) {\n"
        "    a = A[k*16 +: 16, m*16 +: 16]\n    b = B[n*16 +: 16, k*16 +: 16]\n    " +
        sum + "\n  }\n  C[m*16 +: 16, n*16 +: 16] = c\n}\n");
    REQUIRE_MESSAGE(module.ok(), module.status().message());
    return operand_slices(module->kernels[0]).at(0).k_down;
  };
  CHECK(down("c += a^T @ b^T"));
  CHECK(!down("if a[1, 0] > 0 { c += a^T @ b^T }"));
  CHECK(!down("for q < i64(a[1, 0]) { c += a^T @ b^T }"));
  CHECK(!down("parallel i < 16, j < 16 { c[i, j] += a[i, j] }  c += a^T @ b^T"));
}

}  // namespace
}  // namespace kachel::derive
