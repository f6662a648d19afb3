// Programs with operands made ahead compute what their kernel does, by the reference interpreter, on odd shapes.
#include <array>

#include "ir/print.h"
#include "tests/derive/interpreted.h"

namespace kachel::derive {
namespace {

constexpr std::string_view kBody = R"(
grid m < ceildiv(M, BM), n < ceildiv(N, BN)
{
  shared a: T[BM, BK], b: T[BN, BK]
  fragment x: f32[BM, BK], g: f32[BK], acc: f32[BM, BN] = 0
  pipelined k < ceildiv(K, BK) {
    x = A[m*BM +: BM, k*BK +: BK]
    g = G[k*BK +: BK]
    parallel i < BM, j < BK { let y = x[i, j] * g[j] + s  a[i, j] = y / (1 + exp(-y)) }
    b = B[n*BN +: BN, k*BK +: BK]
    acc += a @ b^T
  }
  C[m*BM +: BM, n*BN +: BN] = acc
}
)";

}  // namespace

TEST_CASE("what is computed on load is computed once, beyond the bounds too") {
  const std::string text =
      "tile 1 kernel silu<T: f32 | f16>(A: T[M, K], B: T[N, K], G: f32[K], C: out f32[M, N], s: f32) "
      "tune BM = 16 | 32, BN = 16 | 48, BK = 32 | 8" +
      std::string(kBody);
  for (DType type : {DType::F32, DType::F16})
    for (auto [m, n, k] : {std::array<int64_t, 3>{37, 29, 45}, {1, 50, 8}, {48, 16, 64}, {5, 3, 1}})
      for (int64_t bk : {32, 8}) {
        CAPTURE(m);
        Interpreted program(text, bindings(type, 32, 48, bk), {{"M", m}, {"N", n}, {"K", k}});
        CHECK(program.operands() == 2);
        program.check();
      }
}

TEST_CASE("tiles whose extents are derived are covered as far as they may reach") {
  const std::string text =
      "tile 1 kernel silu<T: f32 | f16>(A: T[M, K], B: T[N, K], G: f32[K], C: out f32[M, N], s: f32) "
      "tune auto BM, BN, BK" +
      std::string(kBody);
  for (const auto& [bm, bn, bk] : {std::array<int64_t, 3>{16, 32, 64}, {256, 256, 256}, {112, 16, 128}}) {
    Interpreted program(text, bindings(DType::F16, bm, bn, bk), {{"M", 37}, {"N", 29}, {"K", 45}});
    CHECK(program.operands() == 2);
    program.check();
  }
}

TEST_CASE("the kernel that reads has values that nobody listed, but for those that a condition ties") {
  const std::string text =
      "tile 1 kernel silu<T: f32 | f16>(A: T[M, K], B: T[N, K], G: f32[K], C: out f32[M, N], s: f32) "
      "where BN <= 48 tune BM = 16 | 32, BN = 16 | 48, BK = 32 | 8" +
      std::string(kBody);
  auto module = ir::load(text);
  REQUIRE_MESSAGE(module.ok(), module.status().message());
  auto derived = ir::load(prepare_operands(module->kernels[0], operand_slices(module->kernels[0])));
  REQUIRE_MESSAGE(derived.ok(), derived.status().message());
  const Kernel* reader = derived->find("silu_prepared");
  REQUIRE(reader);
  CHECK(reader->tunables[0].automatic);
  CHECK(reader->tunables[1].values == std::vector<int64_t>{16, 48});
  CHECK(reader->tunables[2].values == std::vector<int64_t>{32, 8});
  for (int64_t bm : {64, 112, 256}) {
    Interpreted program(text, bindings(DType::F16, bm, 48, 8), {{"M", 131}, {"N", 29}, {"K", 45}});
    program.check();
  }
}

TEST_CASE("operands of several matrices, of weights in 4 bits, and copied ones") {
  Interpreted batched(R"(tile 1
kernel k<T: f16>(A: T[H, M, K], B: T[H, K, N], C: out f32[H, M, N])
tune BM = 16 | 8, BN = 16, BK = 16 | 32
grid h < H, m < ceildiv(M, BM), n < ceildiv(N, BN)
{
  shared a: T[BK, BM], b: T[BK, BN]
  fragment x: T[BM, BK], acc: f32[BM, BN] = 0
  for k < ceildiv(K, BK) {
    x = A[h, m*BM +: BM, k*BK +: BK]
    parallel i < BM, j < BK { a[j, i] = m*BM + i > k*BK + j ? x[i, j] : 0.5 }
    b = B[h, k*BK +: BK, n*BN +: BN]
    acc += a^T @ b
  }
  C[h, m*BM +: BM, n*BN +: BN] = acc
})",
                      bindings(DType::F16, 8, 16, 32), {{"H", 3}, {"M", 19}, {"N", 21}, {"K", 33}});
  CHECK(batched.operands() == 2);
  batched.check();

  ir::Bindings grouped = bindings(DType::F16, 16, 32, 64);
  grouped.int_consts["group"] = 32;
  Interpreted weights(R"(tile 1
kernel w4<T: f16, const group: i32>(A: T[M, K], W: u4[N, K], scale: T[N, Kg], C: out f32[M, N])
where Kg == K / group && K % group == 0
tune BM = 16, BN = 32 | 16, BK = 64
grid m < ceildiv(M, BM), n < ceildiv(N, BN)
{
  shared a: T[BM, BK], q: u4[BN, BK]
  fragment w: T[BN, BK], acc: f32[BM, BN] = 0
  pipelined k < ceildiv(K, BK) {
    a = A[m*BM +: BM, k*BK +: BK]
    q = W[n*BN +: BN, k*BK +: BK]
    parallel i < BN, j < BK { w[i, j] = T(q[i, j]) * scale[n*BN + i, (k*BK + j) / group] }
    acc += a @ w^T
  }
  C[m*BM +: BM, n*BN +: BN] = acc
})",
                      grouped, {{"M", 9}, {"N", 35}, {"K", 96}, {"Kg", 3}});
  CHECK(weights.operands() == 2);
  weights.check();
}

TEST_CASE("operands that are made of one tile, by one region, and a tile that something else reads as well") {
  const auto text = [](const std::string& more) {
    return R"(tile 1
kernel parts(A: f32[M, K], B: f32[N, K], C: out f32[M, N])
tune BM = 16 | 32, BN = 16, BK = 8 | 16
grid m < ceildiv(M, BM), n < ceildiv(N, BN)
{
  shared a: f32[BM, BK], b: f32[BN, BK], ah: bf16[BM, BK], al: bf16[BM, BK], bh: bf16[BN, BK]
  fragment acc: f32[BM, BN] = 0, norm: f32[BM] = 0
  for k < ceildiv(K, BK) {
    a = A[m*BM +: BM, k*BK +: BK]
    b = B[n*BN +: BN, k*BK +: BK]
    parallel i < BM, j < BK {
      let h = bf16(a[i, j])
      ah[i, j] = h
      al[i, j] = a[i, j] - h
    }
    parallel i < BN, j < BK { bh[i, j] = b[i, j] }
    )" + more +
           R"(
    acc += ah @ bh^T
    acc += al @ bh^T
  }
  parallel i < BM, j < BN { acc[i, j] += norm[i] }
  C[m*BM +: BM, n*BN +: BN] = acc
}
)";
  };
  for (const std::string more : {"", "parallel i < BM { norm[i] += sum[j < BK](a[i, j]) }",
                                 "parallel i < BM { norm[i] += sum[j < BK](ah[i, j] * 2) }"})
    for (const bool copies : {false, true}) {
      CAPTURE(more);
      CAPTURE(copies);
      Interpreted program(text(more), bindings(DType::F32, 16, 16, 16), {{"M", 37}, {"N", 19}, {"K", 21}},
                          {.copies = copies});
      const bool stays = more.find("(a[") != std::string::npos;
      CHECK(program.operands() == (stays && copies ? 4 : 3));
      program.check();
      const ir::Kernel& reader = program.derived().kernels.at(program.derived().kernels.size() - 1);
      CHECK((ir::print(reader).find("a = A[") != std::string::npos) == (stays && !copies));
    }
}

TEST_CASE("operands that follow quotients and remainders of what counts") {
  // A filter whose taps lie beside each other, read by a loop over taps and channels: one tensor for each tap.
  Interpreted taps(R"(tile 1
kernel conv<T: f16>(X: T[M, C], F: T[N, C, 3, 2], Y: out f32[M, N])
tune BM = 16 | 32, BN = 16 | 48, BK = 16 | 32
grid m < ceildiv(M, BM), n < ceildiv(N, BN)
{
  shared x: T[BM, BK], f: T[BN, BK]
  fragment acc: f32[BM, BN] = 0
  let chunks = ceildiv(C, BK)
  pipelined k < 6 * chunks {
    let tap = k / chunks, c = k % chunks * BK
    f = F[n*BN +: BN, c +: BK, tap / 2, tap % 2]
    parallel i < BM, j < BK { x[i, j] = X[m*BM + i + tap / 2, c + j] }
    acc += x @ f^T
  }
  Y[m*BM +: BM, n*BN +: BN] = acc
})",
                   bindings(DType::F16, 32, 48, 16), {{"M", 37}, {"N", 29}, {"C", 45}});
  CHECK(taps.operands() == 2);
  CHECK(taps.derived().programs.at(0).temps.at(0)->shape.size() == 3);
  taps.check();

  // Keys that several heads share, changed by halves: one tensor for each head of keys, of every element that a block
  // reads, however soon its loop ends.
  Interpreted heads(R"(tile 1
kernel scores<T: f16>(Q: T[H, M, 12], K: T[G, N, 12], R: f32[N, 6], S: out f32[H, M, N])
where H % G == 0
tune BM = 16 | 32, BN = 16 | 48
grid m < ceildiv(M, BM), h < H
{
  shared q: T[BM, 12], k: T[BN, 12]
  fragment acc: f32[BM, BN]
  q = Q[h, m*BM +: BM, :]
  for n < ceildiv(min((m + 1)*BM, N), BN) {
    k = K[h / (H / G), n*BN +: BN, :]
    parallel i < BN, d < 6 {
      let r = R[n*BN + i, d], low = k[i, d], high = k[i, d + 6]
      k[i, d] = low - high * r
      k[i, d + 6] = high + low * r
    }
    acc = q @ k^T
    S[h, m*BM +: BM, n*BN +: BN] = acc
  }
})",
                    bindings(DType::F16, 16, 48, 0), {{"M", 50}, {"N", 45}, {"H", 6}, {"G", 3}});
  CHECK(heads.operands() == 1);
  const ir::BufferRef keys = heads.derived().programs.at(0).temps.at(0);
  CHECK(ir::print(keys->shape.at(0)).find("H / G") != std::string::npos);
  heads.check();
}

TEST_CASE("operands with k down their rows are turned where that is wanted") {
  const std::string text = R"(tile 1
kernel k<T: f32 | f16>(A: T[H, K, M], B: T[K, N], C: out f32[H, M, N], D: out f32[H, M, N])
tune BM = 16 | 8, BN = 16 | 48, BK = 16 | 32
grid h < H, m < ceildiv(M, BM), n < ceildiv(N, BN)
{
  shared a: T[BK, BM], b: T[BK, BN]
  fragment x: T[BK, BN], c: f32[BM, BN] = 0, d: f32[BM, BN] = 0
  for k < ceildiv(K, BK) {
    a = A[h, k*BK +: BK, m*BM +: BM]
    x = B[k*BK +: BK, n*BN +: BN]
    parallel i < BK, j < BN { b[i, j] = k*BK + i > n*BN + j ? x[i, j] : T(1) }
    c += a^T @ b precision tf32
    if k > 0 { d += a^T @ b precision tf32 }
  }
  C[h, m*BM +: BM, n*BN +: BN] = c
  D[h, m*BM +: BM, n*BN +: BN] = d
})";
  for (DType type : {DType::F32, DType::F16}) {
    Interpreted program(text, bindings(type, 8, 48, 16), {{"H", 3}, {"M", 19}, {"N", 21}, {"K", 33}}, {.turned = true});
    CHECK(program.operands() == 2);
    program.check();
  }
  auto module = ir::load(text);
  REQUIRE_MESSAGE(module.ok(), module.status().message());
  std::vector<OperandSlice> slices = operand_slices(module->kernels[0]);
  REQUIRE(slices.size() == 2);
  for (OperandSlice& slice : slices) {
    CHECK(slice.k_down);
    CHECK(slice.tf32);
    slice.turned = true;
  }
  auto derived = ir::load(prepare_operands(module->kernels[0], slices));
  REQUIRE_MESSAGE(derived.ok(), derived.status().message());
  const std::string reader = ir::print(*derived->find("k_prepared"));
  CHECK(reader.find("c += a @ b^T precision tf32") != std::string::npos);
  CHECK(reader.find("d += a @ b^T precision tf32") != std::string::npos);
}

TEST_CASE("elements that are packed by hand, or that share something in groups") {
  const auto program = [](const std::string& packed, const std::string& copies, const std::string& value) {
    return R"(tile 1
kernel k<T: f16>(A: T[M, K], W: u8[N, K / 2], P: i32[K / 8, N], S: f32[N, K / 4], C: out f32[M, N])
where K % 8 == 0
tune BM = 16 | 8, BN = 16, BK = 16 | 32
grid m < ceildiv(M, BM), n < ceildiv(N, BN)
{
  shared a: T[BM, BK], )" +
           packed + R"(
  fragment w: T[BN, BK], c: f32[BM, BN] = 0
  for k < ceildiv(K, BK) {
    a = A[m*BM +: BM, k*BK +: BK]
    )" + copies +
           R"(
    parallel i < BN, j < BK {
      )" + value +
           R"(
    }
    c += a @ w^T
  }
  C[m*BM +: BM, n*BN +: BN] = c
})";
  };
  struct Row {
    const char *packed, *copies, *value;
    size_t made;  // a among them
  };
  const Row rows[] = {
      {"q: u8[BN, BK / 2]", "q = W[n*BN +: BN, k*(BK / 2) +: BK / 2]",
       "let code = q[i, j / 2] >> (j % 2 * 4) & 15 w[i, j] = code - 8", 2},
      {"q: u8[BN, BK / 2], s: f32[BN, BK / 4]",
       "q = W[n*BN +: BN, k*BK / 2 +: BK / 2] s = S[n*BN +: BN, k*(BK / 4) +: BK / 4]",
       "w[i, j] = f32(q[i, j >> 1] >> ((j & 1) * 4) & 15) * s[i, j / 4]", 2},
      {"p: i32[BK / 8, BN]", "p = P[k*(BK / 8) +: BK / 8, n*BN +: BN]",
       "w[i, j] = (p[j / 8, i] >> (j / 2 % 4 * 8 + j % 2 * 4) & 15) * S[n*BN + i, (k*BK + j) / 4]", 2},
      // Two of a group's elements, as 2:4 sparse weights are kept.
      {"q: u8[BN, BK / 2]", "q = W[n*BN +: BN, k*(BK / 2) +: BK / 2]",
       "w[i, j] = j % 4 < 2 ? f32(q[i, j / 4 * 2 + 1]) : f32(q[i, j / 4 * 2]) + 3", 2},
      {"q: u8[BN, BK / 2]", "q = W[n*BN +: BN, k*(BK / 2) +: BK / 2]", "w[i, j] = q[i, j % 4 + j / 8 * 4] * (j % 8)",
       2},
      {"q: u8[BN, BK / 2]", "q = W[n*BN +: BN, k*(BK / 2) +: BK / 2]", "w[i, j] = q[i, j / 4 * 2 + 2]", 1},
      {"q: u8[BN, BK / 2]", "q = W[n*BN +: BN, k*(BK / 2) +: BK / 2]", "w[i, j] = q[i, j / 4 * 2 + j % 3]", 1},
      {"q: u8[BN, BK / 2]", "q = W[n*BN +: BN, k*(BK / 2) +: BK / 2]", "w[i, j] = q[i, j / 32 * 16 + j % 16]", 1},
      {"q: u8[BN, BK / 2]", "q = W[n*BN +: BN, k*(BK / 2) +: BK / 2]", "w[i, j] = q[i, j / 8 * 2]", 1},
      // Of other groups, of none, and where a group would be cut.
      {"q: u8[BN, BK / 2]", "q = W[n*BN +: BN, k*(BK / 2) +: BK / 2]", "w[i, j] = q[i, j / 4]", 1},
      {"q: u8[BN, BK / 2]", "q = W[n*BN +: BN, k*(BK / 2) +: BK / 2]", "w[i, j] = q[i, j / 2] * (j / 2)", 1},
      {"q: u8[BN, BK / 2]", "q = W[n*BN +: BN, k*(BK / 2) +: BK / 2]", "w[i, j] = q[i, j / 2] >> j % 3", 1},
      {"q: u8[BN, BK / 2]", "q = W[n*BN +: BN, k*(BK / 2) + 1 +: BK / 2]", "w[i, j] = q[i, j / 2]", 1}};
  for (const Row& row : rows) {
    CAPTURE(row.value);
    Interpreted made(program(row.packed, row.copies, row.value), bindings(DType::F16, 8, 16, 16),
                     {{"M", 19}, {"N", 21}, {"K", 40}});
    CHECK(made.operands() == row.made);
    made.check();
  }
}

TEST_CASE("one extent for both axes of a tile is a multiple of what either one's groups need") {
  for (const char* scale : {"s[i / 3, j]", "f32(i % 3 + 1)"}) {
    CAPTURE(scale);
    ir::Bindings extents = bindings(DType::F16, 16, 0, 0);
    extents.tunables = {{"BM", 16}, {"B", 48}};
    Interpreted made(std::string(R"(tile 1
kernel k<T: f16>(A: T[M, K], Q: T[N, K], S: T[G, K], C: out f32[M, N])
where N == 3 * G
tune BM = 16, B = 48 | 96
grid m < ceildiv(M, BM), n < ceildiv(N, B)
{
  shared a: T[BM, B], b: T[B, B], q: T[B, B], s: T[B / 3, B]
  fragment c: f32[BM, B] = 0
  for k < ceildiv(K, B) {
    a = A[m*BM +: BM, k*B +: B]
    q = Q[n*B +: B, k*B +: B]
    s = S[n*B / 3 +: B / 3, k*B +: B]
    parallel i < B, j < B { b[i, j] = q[i, j] * )") +
                         scale + R"( }
    c += a @ b^T
  }
  C[m*BM +: BM, n*B +: B] = c
})",
                     extents, {{"M", 19}, {"N", 150}, {"K", 50}, {"G", 50}});
    CHECK(made.operands() == 2);
    made.check();
  }
}

TEST_CASE("groups beyond any tile are none") {
  const auto slices = [](const char* by) {
    auto module = ir::load(std::string(R"(tile 1
kernel k(A: f16[M, K], Q: f16[N, K], C: out f32[M, N])
tune BM = 16, BK = 16 | 32
grid m < ceildiv(M, BM), n < ceildiv(N, 16)
{
  shared a: f16[BM, BK], b: f16[16, BK], q: f16[16, BK]
  fragment c: f32[BM, 16] = 0
  for k < ceildiv(K, BK) {
    a = A[m*BM +: BM, k*BK +: BK]
    q = Q[n*16 +: 16, k*BK +: BK]
    parallel i < 16, j < BK { b[i, j] = q[i, j] * f32()") +
                           by + R"() }
    c += a @ b^T
  }
  C[m*BM +: BM, n*16 +: 16] = c
})");
    REQUIRE_MESSAGE(module.ok(), module.status().message());
    const std::vector<OperandSlice> found = operand_slices(module->kernels[0]);
    return std::count_if(found.begin(), found.end(), [](const OperandSlice& slice) { return slice.fed.empty(); });
  };
  CHECK(slices("j / 4 % 4") == 2);
  CHECK(slices("j / 17179869184 % 1073741824") == 1);
  CHECK(slices("j / 9223372036854775807 % 3") == 1);
}

TEST_CASE("what a loop may walk through at most is made, however its end is written") {
  for (const char* end : {"ceildiv(last, BK)", "ceildiv(upto > 0 ? last : K, BK)", "min(7, ceildiv(last, BK))"}) {
    Interpreted program(std::string(R"(tile 1
kernel k<T: f16>(A: T[M, K], B: T[K, N], C: out f32[M, N], upto: i32)
tune BM = 16 | 8, BN = 16, BK = 16 | 32
grid m < ceildiv(M, BM), n < ceildiv(N, BN)
{
  shared a: T[BM, BK], b: T[BK, BN]
  fragment c: f32[BM, BN] = 0
  let last = upto > 1 ? min(K, (m + 1) * BM) : K
  for k < )") + end + R"( {
    a = A[m*BM +: BM, k*BK +: BK]
    b = B[k*BK +: BK, n*BN +: BN]
    parallel i < BM, j < BK { a[i, j] = k*BK + j < last ? a[i, j] : T(0) }
    c += a @ b
  }
  C[m*BM +: BM, n*BN +: BN] = c
})",
                        bindings(DType::F16, 8, 16, 16), {{"M", 19}, {"N", 21}, {"K", 33}}, {.turned = true});
    CAPTURE(end);
    CHECK(program.operands() == 1);
    program.check();
  }
}

TEST_CASE("names are kept where something else uses them, and loops may be empty") {
  for (int64_t k : {45, 2}) {
    Interpreted program(R"(tile 1
kernel k<T: f16>(A: T[M, K], B: T[N, K], C: out f32[M, N], s: f32)
tune BM = 16 | 8, BN = 16, BK = 16 | 32
grid m < ceildiv(M, BM), n < ceildiv(N, BN)
{
  shared a: T[BM, BK], b: T[BN, BK]
  fragment x: f32[BM, BK], g: f32[1], acc: f32[BM, BN] = 0
  let row = m*BM  let twice = s + s  let more = twice * 2
  for k < ceildiv(K - 5, BK) {
    g = 0.5
    let z = g[0] * more
    x = A[row +: BM, k*BK +: BK]
    parallel i < BM, j < BK { a[i, j] = x[i, j] * z }
    b = B[n*BN +: BN, k*BK +: BK]
    acc += a @ b^T
  }
  parallel i < BM, j < BN { acc[i, j] += twice }
  C[row +: BM, n*BN +: BN] = acc
})",
                        bindings(DType::F16, 8, 16, 32), {{"M", 19}, {"N", 21}, {"K", k}});
    CHECK(program.operands() == 2);
    program.check();
  }
}

TEST_CASE("names of the kernel are left alone") {
  const std::string text =
      "tile 1 kernel forms<T: f16>(A: T[M, K], B: T[N, K], G: f32[K], C: out f32[M, N], s: f32) where BM < 64, s > 0.0 "
      "key M tune BM = 16, BN = 16, BK = 32, prepared = 3, a_all = 1" +
      std::string(kBody);
  auto module = ir::load(text);
  REQUIRE_MESSAGE(module.ok(), module.status().message());
  const Kernel& kernel = module->kernels[0];
  auto derived = ir::load(prepare_operands(kernel, {operand_slices(kernel)[0]}));
  REQUIRE_MESSAGE(derived.ok(), derived.status().message());
  const ir::Program& program = derived->programs.at(0);
  CHECK(program.header.name == "forms_forms");
  CHECK(program.header.where.size() == 1);  // the other one prunes configurations, which are the kernels'
  CHECK(program.header.key.size() == 1);
  REQUIRE(program.header.tunables.size() == 1);
  CHECK(program.header.tunables[0].var->name == "prepared_");
  REQUIRE(program.temps.size() == 1);
  CHECK(program.temps[0]->name == "a_all_");
  CHECK(ir::print(program.temps[0]->shape[0]) == "M");
  CHECK(ir::print(program.temps[0]->shape[1]) == "ceildiv(K + 31, 128) * 128");
  REQUIRE(derived->kernels.size() == 3);
  CHECK(ir::print(derived->kernels[0]) == ir::print(kernel));
  CHECK(derived->kernels[1].params.size() == 4);  // A, G, s and what it makes
  CHECK(derived->kernels[2].params.size() == kernel.params.size() + 1);
}

}  // namespace kachel::derive
