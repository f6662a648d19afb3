// Copies that serve operands and others, and operands that share what makes them: the same results by the reference
// interpreter.
#include "tests/derive/interpreted.h"

namespace kachel::derive {

TEST_CASE("a copy that a region makes an operand of, and that others read as well") {
  const std::string text = R"(tile 1
kernel k<T: f32 | f16>(X: T[M, K], G: f32[K], W: T[N, K], C: out f32[M, N])
tune BM = 16 | 32, BN = 16 | 48, BK = 32 | 8
grid m < ceildiv(M, BM), n < ceildiv(N, BN)
{
  shared x: T[BM, BK], a: T[BM, BK], w: T[BN, BK]
  fragment s: f32[BM] = 0, c: f32[BM, BN] = 0
  pipelined k < ceildiv(K, BK) {
    x = X[m*BM +: BM, k*BK +: BK]
    w = W[n*BN +: BN, k*BK +: BK]
    parallel i < BM { s[i] += sum[j < BK](x[i, j] * x[i, j]) }
    parallel i < BM, j < BK { a[i, j] = k*BK + j < K ? x[i, j] * G[k*BK + j] : 0 }
    c += a @ w^T
  }
  parallel i < BM, j < BN { c[i, j] *= rsqrt(s[i] / K + 1e-5) }
  C[m*BM +: BM, n*BN +: BN] = c
})";
  for (DType type : {DType::F32, DType::F16})
    for (int64_t bk : {32, 8}) {
      Interpreted program(text, bindings(type, 32, 48, bk), {{"M", 37}, {"N", 29}, {"K", 45}});
      CHECK(program.operands() == 3);
      program.check();
    }
  auto module = ir::load(text);
  REQUIRE_MESSAGE(module.ok(), module.status().message());
  const std::vector<OperandSlice> slices = operand_slices(module->kernels[0]);
  REQUIRE(slices.size() == 3);
  CHECK(slices[1].tile->name == "w");
  CHECK(slices[1].fed.empty());
  CHECK(slices[2].tile->name == "x");
  CHECK(slices[2].fed == std::vector<const ir::Buffer*>{slices[0].tile.get()});
  CHECK(!slices[2].k_down);
}

TEST_CASE("operands that are made alike are made once, and of the same elements by one kernel") {
  const std::string complex = R"(tile 1
kernel k<T: f16>(X: T[B, S, A, 2], V: out f32[B, A, A, 2])
tune BM = 16 | 32, BN = 32 | 16, BS = 16
grid b < B, m < ceildiv(A, BM), n < ceildiv(A, BN)
{
  shared ar: T[BS, BM], ai: T[BS, BM], br: T[BS, BN], bi: T[BS, BN]
  fragment re: f32[BM, BN] = 0, im: f32[BM, BN] = 0
  pipelined s < ceildiv(S, BS) {
    ar = X[b, s*BS +: BS, m*BM +: BM, 0]
    ai = X[b, s*BS +: BS, m*BM +: BM, 1]
    br = X[b, s*BS +: BS, n*BN +: BN, 0]
    bi = X[b, s*BS +: BS, n*BN +: BN, 1]
    re += ar^T @ br
    re += ai^T @ bi
    im += ai^T @ br
  }
  V[b, m*BM +: BM, n*BN +: BN, 0] = re
  V[b, m*BM +: BM, n*BN +: BN, 1] = im
})";
  const std::string gram = R"(tile 1
kernel k<T: f16 | f32>(X: T[M, K], s: f32, C: out f32[M, M])
tune BM = 16 | 32, BN = 16 | 48, BK = 16
grid m < ceildiv(M, BM), n < ceildiv(M, BN)
{
  shared x: T[BM, BK], y: T[BN, BK], a: T[BM, BK], b: T[BN, BK]
  fragment c: f32[BM, BN] = 0
  for k < ceildiv(K, BK) {
    x = X[m*BM +: BM, k*BK +: BK]
    y = X[n*BN +: BN, k*BK +: BK]
    parallel i < BM, j < BK { let v = x[i, j] * s  a[i, j] = v / (1 + exp(-v)) }
    parallel p < BN, q < BK { let w = y[p, q] * s  b[p, q] = w / (1 + exp(-w)) }
    c += a @ b^T
  }
  C[m*BM +: BM, n*BN +: BN] = c
})";
  std::string other = gram;  // of another scalar
  other.replace(other.find("y[p, q] * s"), 11, "y[p, q] + s");
  // So many tensors, by so many kernels beside the one that there was and the one that reads.
  const auto check = [](const std::string& text, ir::Bindings bound, std::map<std::string, int64_t> dims, size_t made,
                        size_t makers) {
    Interpreted program(text, std::move(bound), std::move(dims));
    CHECK(program.derived().programs.at(0).temps.size() == made);
    CHECK(program.derived().kernels.size() == makers + 2);
    program.check();
  };
  ir::Bindings blocks = bindings(DType::F16, 16, 32, 0);
  blocks.tunables.erase("BK");
  blocks.tunables["BS"] = 16;
  check(complex, blocks, {{"B", 2}, {"S", 21}, {"A", 37}}, 2, 1);
  check(gram, bindings(DType::F32, 32, 48, 16), {{"M", 37}, {"K", 21}}, 1, 1);
  check(other, bindings(DType::F32, 32, 48, 16), {{"M", 37}, {"K", 21}}, 2, 2);
}

}  // namespace kachel::derive
