// Programs whose forms planted bugs change, beside examples and generated ones.
#pragma once
#include <fmt/format.h>

#include <cstdint>
#include <string>

namespace kachel::lowering {

inline constexpr uint64_t kPrograms = 40;
inline constexpr const char* kExamples[] = {"histogram", "softmax", "rope", "matmul_w4", "moe_gather", "matmul_splitk"};
// Stores of 4-bit elements, which few generated programs have.
inline constexpr const char* kPackedProgram = R"(tile 1
kernel pack(x: i32[M, N], y: out i4[M, N])
grid i < ceildiv(M, 4), j < ceildiv(N, 6)
{
  fragment t: i32[4, 6]
  t = x[i * 4 +: 4, j * 6 +: 6]
  y[i * 4 +: 4, j * 6 +: 6] = t
}
)";
// An element at one place for all d, which does not exist for all of them.
inline constexpr const char* kBefore = R"(tile 1
kernel before(X: f32[64], Y: out f32[64, 64])
{
  shared s: f32[64, 1]
  fragment y: f32[64, 64]
  parallel n < 64, d < 1 { s[n, d] = X[n] }
  parallel n < 64, d < 64 { y[n, d] = s[n - 1, d] }
  Y = y
}
)";
// By divisors far from 1.
inline constexpr const char* kQuotients = R"(tile 1
kernel quotients(a: f32[M, N], b: out f32[M, N])
grid i < ceildiv(M, 4)
{
  fragment x: f32[4, 64]
  x = a[i * 4 +: 4, 0 +: 64]
  parallel r < 4, k < 64 { x[r, k] = x[r, k] / (1e33 * (2 + sum[j < 8](abs(x[r, j])))) }
  b[i * 4 +: 4, 0 +: 64] = x
}
)";
// Tiles with a rest in every direction: of panels, vectors, rows, strips and pairs.
inline constexpr const char* kCpuPrograms[] = {R"(tile 1
kernel product(a: f32[M, K], b: f32[N, K], c: inout f32[M, N])
grid i < ceildiv(M, 13), j < ceildiv(N, 80)
{
  shared   s: f32[13, 19], t: f32[80, 19]
  fragment u: f32[13, 80] = 3
  for k < ceildiv(K, 19) {
    s = a[i * 13 +: 13, k * 19 +: 19]
    t = b[j * 80 +: 80, k * 19 +: 19]
    u = s @ t^T
    atomic c[i * 13 +: 13, j * 80 +: 80] += u
  }
}
)",
                                               R"(tile 1
kernel staged(a: f16[M, K], b: f16[N, K], c: out f16[M, N])
grid i < ceildiv(M, 64), j < ceildiv(N, 64)
{
  shared   s: f16[64, 32], t: f16[64, 32], w: f16[64, 64]
  fragment u: f32[64, 64] = 0
  for k < ceildiv(K, 32) {
    s = a[i * 64 +: 64, k * 32 +: 32]
    t = b[j * 64 +: 64, k * 32 +: 32]
    u += s @ t^T
  }
  w = u
  c[i * 64 +: 64, j * 64 +: 64] = w
}
)",
                                               R"(tile 1
kernel sums(a: f32[M, K], b: f32[K, N], c: out f32[M, N], d: out f32[M])
grid i < ceildiv(M, 13)
{
  shared   s: f32[13, 19], t: f32[19, 80]
  fragment u: f32[13, 80] = 0, v: f32[13] = 0
  for k < ceildiv(K, 19) {
    s = a[i * 13 +: 13, k * 19 +: 19]
    t = b[k * 19 +: 19, 0 +: 80]
    u += s @ t
  }
  parallel x < 13 { v[x] = sum[y < 80](u[x, y]) }
  d[i * 13 +: 13] = v
  c[i * 13 +: 13, 0 +: 80] = u
}
)",
                                               R"(tile 1
kernel rows(a: f32[M, K], c: out f32[M, K])
grid i < ceildiv(M, 2), j < ceildiv(K, 300)
{
  fragment u: f32[2, 300]
  u = a[i * 2 +: 2, j * 300 +: 300]
  parallel x < 2, y < 300 { u[x, y] = u[x, y] + 1 }
  c[i * 2 +: 2, j * 300 +: 300] = u
}
)",
                                               R"(tile 1
kernel integers(a: i8[M, K], b: u8[K, N], c: out i32[M, N])
grid i < ceildiv(M, 13), j < ceildiv(N, 20)
{
  shared   s: i8[13, 19], t: u8[19, 20]
  fragment u: i32[13, 20] = 0
  for k < ceildiv(K, 19) {
    s = a[i * 13 +: 13, k * 19 +: 19]
    t = b[k * 19 +: 19, j * 20 +: 20]
    u += s @ t
  }
  c[i * 13 +: 13, j * 20 +: 20] = u
}
)"};
// Tensor cores: a product that is an operand in registers. By rows, keys of a step, width of the values and stages;
// `sum` is added up for each row, `work` is done behind it.
inline std::string chain_of(const char* name, int rows, int keys, int width, int stages, const char* sum,
                            const char* work = "") {
  return fmt::format(R"(tile 1
kernel {0}(Q: f16[{1}, 32], K: f16[S, 32], V: f16[S, {3}], O: out f16[{1}, {3}], L: out f32[{1}])
{{
  shared q: f16[{1}, 32], k: f16[{2}, 32], v: f16[{2}, {3}]
  fragment s: f32[{1}, {2}], p: f16[{1}, {2}], o: f32[{1}, {3}] = 0, m: f32[{1}], l: f32[{1}] = 0
  q = Q
  pipelined n < ceildiv(S, {2}), {4} {{
    k = K[n*{2} +: {2}, :]
    v = V[n*{2} +: {2}, :]
    s = q @ k^T
    parallel i < {1} {{ m[i] = max[j < {2}](s[i, j]) }}
    parallel i < {1}, j < {2} {{ s[i, j] = n*{2} + j < S ? (s[i, j] - m[i]) * 0.125 : 0 }}
    parallel i < {1} {{ l[i] = {5} + sum[j < {2}](s[i, j]) }}
    {6}
    p = s
    o += p @ v
  }}
  O = o
  L = l
}}
)",
                     name, rows, keys, width, stages, sum, work);
}
inline const std::string kChain = chain_of("chain", 64, 32, 16, 3, "l[i]");
// With so few rows that its warps share the keys.
inline const std::string kFewRows =
    chain_of("few_rows", 16, 64, 32, 2, "l[i] * 0.5", "parallel i < 16, d < 32 { o[i, d] *= 0.5 + m[i] }");
// Operands that lie with k down their rows.
inline constexpr const char* kProduct = R"(tile 1
kernel product(A: bf16[K, 64], B: bf16[K, 40], C: out f32[64, 40], R: out f32[40], T: out f32[32])
{
  shared a: bf16[16, 64], b: bf16[16, 40], x: f32[32, 32] = 2
  fragment c: f32[64, 40] = 0, r: f32[40], t: f32[32]
  pipelined k < ceildiv(K, 16), 4 {
    a = A[k*16 +: 16, :]
    b = B[k*16 +: 16, :]
    c += a^T @ b
  }
  parallel j < 40 { r[j] = sum[i < 64](c[i, j]) }
  C = c
  R = r
  parallel i < 32, j < 32 { x[i, j] = i - 2 * j }
  parallel i < 32 { t[i] = max[j < 32](x[i, j]) }
  T = t
}
)";
// Warp groups: two of them, slabs of both operands, and products that run on from one iteration to the next.
inline constexpr const char* kGroups = R"(tile 1
kernel groups(A: f16[K, 128], B: f16[K, 128], D: i8[128, K], E: i8[32, K], C: out f32[128, 128], F: out i32[128, 32])
{
  shared a: f16[32, 128], b: f16[32, 128], d: i8[128, 32], e: i8[32, 32]
  fragment c: f32[128, 128] = 0, f: i32[128, 32] = 0
  pipelined k < ceildiv(K, 32), 4 {
    a = A[k*32 +: 32, :]
    b = B[k*32 +: 32, :]
    c += a^T @ b
  }
  pipelined k < ceildiv(K, 32), 3 {
    d = D[:, k*32 +: 32]
    e = E[:, k*32 +: 32]
    f += d @ e^T
  }
  C = c
  F = f
}
)";
// Without tensor cores: blocks of registers at an edge, strips of columns, and dp4a.
inline constexpr const char* kBlocks = R"(tile 1
kernel blocks(A: f32[40, K], B: f32[K, 64], D: i8[40, K], E: u8[36, K], C: out f32[40, 64], F: out i32[40, 36])
{
  shared a: f32[40, 16], b: f32[16, 64], d: i8[40, 16], e: u8[36, 16]
  fragment c: f32[40, 64] = 0, f: i32[40, 36] = 0
  pipelined k < ceildiv(K, 16), 2 {
    a = A[:, k*16 +: 16]
    b = B[k*16 +: 16, :]
    c += a @ b
    d = D[:, k*16 +: 16]
    e = E[:, k*16 +: 16]
    f += d @ e^T
  }
  C = c
  F = f
}
)";
// Products along two tensors in turn, of which the second goes on with the stages of the first.
inline constexpr const char* kInTurn = R"(tile 1
kernel in_turn(A: f16[64, K], B: f16[64, K], D: f16[64, K], E: f16[64, K], C: out f32[64, 64])
{
  shared x: f16[64, 32], w: f16[64, 32]
  fragment c: f32[64, 64] = 0
  pipelined k < ceildiv(K, 32), 2 {
    x = A[:, k*32 +: 32]
    w = B[:, k*32 +: 32]
    c += x @ w^T
  }
  pipelined k < ceildiv(K, 32), 2 {
    x = D[:, k*32 +: 32]
    w = E[:, k*32 +: 32]
    c += x @ w^T
  }
  C = c
}
)";
// Right operands that the block computes, of packed elements and with k down its rows.
inline constexpr const char* kRight = R"(tile 1
kernel right(A: f16[32, K], W: u4[64, K], S: f16[64], B: f16[K, 32], C: out f32[32, 64], D: out f32[32, 32])
{
  shared a: f16[32, 32], q: u4[64, 32]
  fragment w: f16[64, 32], b: f16[32, 32], c: f32[32, 64] = 0, d: f32[32, 32] = 0
  pipelined k < ceildiv(K, 32), 2 {
    a = A[:, k*32 +: 32]
    q = W[:, k*32 +: 32]
    parallel i < 64, j < 32 { w[i, j] = (f16(q[i, j]) - 7) * S[i] }
    c += a @ w^T
    parallel i < 32, j < 32 { b[i, j] = k*32 + i < K ? B[k*32 + i, j] * 0.5 : 0 }
    d += a @ b
  }
  C = c
  D = d
}
)";
// Operands that are made beside products, of what follows the loop: a part of a row of few, and halves of a tile.
inline constexpr const char* kMade = R"(tile 1
kernel made(A: f16[M, K], W: u4[64, K], S: f16[64, G], Z: u4[64, G], C: out f32[M, 64], D: out f32[16, 64])
where G == ceildiv(K, 32)
{
  shared a: f16[64, 32], b: f16[16, 32], q: u4[64, 32]
  fragment w: f16[64, 32], v: f16[64, 32], c: f32[64, 64] = 0, d: f32[16, 64] = 0
  pipelined k < ceildiv(K, 32), 4 {
    a = A[0 +: 64, k*32 +: 32]
    q = W[:, k*32 +: 32]
    parallel i < 64, j < 32 { w[i, j] = (f16(q[i, j]) - f16(Z[i, k])) * S[i, (k*32 + j) / 32] }
    c += a @ w^T
  }
  pipelined k < ceildiv(K, 32), 3 {
    b = A[0 +: 16, k*32 +: 32]
    q = W[:, k*32 +: 32]
    parallel i < 64, j < 32 { v[i, j] = (f16(q[i, j]) - 7) * S[i, k] }
    d += b @ v^T
  }
  C[0 +: 64, :] = c
  D = d
}
)";
// Right operands that are unpacked for so many rows that they become left ones, half of k at a time.
inline constexpr const char* kUnpackedLeft = R"(tile 1
kernel unpacked_left(A: f16[M, K], W: u4[64, K], S: f16[64, G], C: out f16[M, 64])
where G == ceildiv(K, 32)
{
  shared a: f16[80, 64], q: u4[64, 64]
  fragment w: f16[64, 64], c: f32[80, 64] = 0
  pipelined k < ceildiv(K, 64), 3 {
    a = A[0 +: 80, k*64 +: 64]
    q = W[:, k*64 +: 64]
    parallel i < 64, j < 64 { w[i, j] = (f16(q[i, j]) - 7) * S[i, (k*64 + j) / 32] }
    c += a @ w^T
  }
  C[0 +: 80, :] = c
}
)";
// The same of 8 bits, and sums that go to rows at any address.
inline constexpr const char* kOddRows = R"(tile 1
kernel odd_rows(A: f16[M, K], W: i8[61, K], C: out f16[M, 61])
{
  shared a: f16[64, 32], q: i8[64, 32]
  fragment w: f16[64, 32], c: f32[64, 64] = 0
  pipelined k < ceildiv(K, 32), 3 {
    a = A[0 +: 64, k*32 +: 32]
    q = W[0 +: 64, k*32 +: 32]
    parallel i < 64, j < 32 { w[i, j] = f16(q[i, j]) * 0.5 }
    c += a @ w^T
  }
  C[0 +: 64, 0 +: 64] = c
}
)";
// Columns that begin where the copy engine cannot.
inline constexpr const char* kShifted = R"(tile 1
kernel shifted(A: f16[64, K], B: f16[K, 72], C: out f32[64, 32])
grid j < 1
{
  shared a: f16[64, 16], b: f16[16, 32]
  fragment c: f32[64, 32] = 0
  let first = 32 * j + 4
  pipelined k < ceildiv(K, 16), 2 {
    a = A[:, k*16 +: 16]
    b = B[k*16 +: 16, first +: 32]
    c += a @ b
  }
  C[:, :] = c
}
)";
// Tiles for products, for a region, and a tensor that a region reads.
inline constexpr const char* kTransposed = R"(tile 1
kernel transposed(A: f16[M, K], B: f16[K, N], R: f32[M, N], C: out f32[M, N])
grid i < ceildiv(M, 64), j < ceildiv(N, 32)
{
  shared a: f16[64, 16], twice: f16[64, 16], b: f16[16, 32]
  fragment c: f32[64, 32] = 0
  pipelined k < ceildiv(K, 16), 2 {
    a = A[i*64 +: 64, k*16 +: 16]
    b = B[k*16 +: 16, j*32 +: 32]
    parallel m < 64, n < 16 { twice[m, n] = a[m, n] * 2 }
    c += twice @ b
  }
  parallel m < 64, n < 32 { c[m, n] += R[i*64 + m, j*32 + n] }
  C[i*64 +: 64, j*32 +: 32] = c
}
)";
// Neighbours along the last axis, of a copied fragment and of accumulators.
inline constexpr const char* kNeighbours = R"(tile 1
kernel neighbours(A: f16[32, K], B: f16[64, K], X: f32[M, 48], Y: out f32[M, 48], G: out f32[32, 32])
grid i < ceildiv(M, 8)
{
  shared a: f16[32, 16], b: f16[64, 16]
  fragment x: f32[8, 48], c: f32[32, 64] = 0, g: f32[32, 32]
  x = X[i*8 +: 8, :]
  parallel m < 8, n < 24 {
    let even = x[m, 2*n], odd = x[m, 1 + n*2]
    x[m, 2*n] = even - 3 * odd
    x[m, 2*n + 1] = odd + 2 * even
  }
  Y[i*8 +: 8, :] = x
  if i == 0 {
    pipelined k < ceildiv(K, 16), 2 {
      a = A[:, k*16 +: 16]
      b = B[:, k*16 +: 16]
      c += a @ b^T
    }
    parallel m < 32, n < 32 { g[m, n] = c[m, 2*n] * 2 - c[m, 2*n + 1] }
    G = g
  }
}
)";

}  // namespace kachel::lowering
