// Programs of warp groups, teams and clusters whose forms planted bugs change.
#pragma once
#include <fmt/format.h>

#include <string>

namespace kachel::lowering {

// A warp group for each 64 rows.
inline std::string group_chain(int rows) {
  return fmt::format(R"(tile 1
kernel group_chain(Q: f16[{0}, 128], K: f16[S, 128], V: f16[S, 64], O: out f16[{0}, 64])
{{
  shared q: f16[{0}, 128], k: f16[32, 128], v: f16[32, 64]
  fragment s: f32[{0}, 32], p: f16[{0}, 32], o: f32[{0}, 64] = 0
  q = Q
  pipelined n < ceildiv(S, 32), 2 {{
    k = K[n*32 +: 32, :]
    v = V[n*32 +: 32, :]
    s = q @ k^T
    parallel i < {0}, j < 32 {{ s[i, j] = n*32 + j < S ? s[i, j] * 0.125 : 0 }}
    p = s
    o += p @ v
  }}
  O = o
}}
)",
                     rows);
}
// The same with a mask that ends before the tensors do, and with sums that the loop carries along: `tile` of keys in
// iteration t, `mask` for what counts of it.
inline std::string sums_of_groups(const char* name, const char* tile, const char* mask) {
  return fmt::format(R"(tile 1
kernel {}(Q: f16[128, 64], K: f16[S, 64], V: f16[S, 64], O: out f16[128, 64], L: out f32[128])
{{
  shared q: f16[128, 64], k: f16[32, 64], v: f16[32, 64]
  fragment s: f32[128, 32], p: f16[128, 32], o: f32[128, 64] = 0, l: f32[128] = 1
  q = Q
  pipelined t < ceildiv(S, 32), 2 {{
    let n = {}
    k = K[n*32 +: 32, :]
    v = V[n*32 +: 32, :]
    s = q @ k^T
    parallel i < 128, j < 32 {{ s[i, j] = {} ? s[i, j] * 0.125 : 0 }}
    parallel i < 128 {{ l[i] = l[i] * 0.5 + sum[j < 32](s[i, j]) }}
    p = s
    o += p @ v
  }}
  O = o
  L = l
}}
)",
                     name, tile, mask);
}
inline const std::string kGroupSums = sums_of_groups("group_sums", "t", "n*32 + j + 1 < S");
inline const std::string kGroupSumsBackwards =
    sums_of_groups("backwards", "ceildiv(S, 32) - 1 - t", "n*32 + j + 33 < S");
// C = A B^T in blocks of 64 x 32: `further` parameters, `fragments` and `work` for `operand` in the loop, `end` behind
// it.
inline std::string product_of_blocks(const char* name, const char* further, const char* type, const char* end,
                                     const char* fragments = "", const char* work = "", const char* operand = "a") {
  return fmt::format(R"(tile 1
kernel {}(A: f16[M, K], B: f16[N, K]{}, C: out {}[M, N])
grid i < ceildiv(M, 64), j < ceildiv(N, 32)
{{
  shared a: f16[64, 64], b: f16[32, 64]
  fragment c: f32[64, 32] = 0{}
  pipelined k < ceildiv(K, 64), 3 {{
    a = A[i*64 +: 64, k*64 +: 64]
    b = B[j*32 +: 32, k*64 +: 64]
{}    c += {} @ b^T
  }}
{}  C[i*64 +: 64, j*32 +: 32] = c
}}
)",
                     name, further, type, fragments, work, operand, end);
}
// Keys without a mask, and then those with one.
inline constexpr const char* kTwoMasks = R"(tile 1
kernel two_masks(Q: f16[S, 64], K: f16[S, 64], V: f16[S, 16], O: out f32[S, 16])
grid i < ceildiv(S, 64)
{
  shared   q: f16[64, 64], k: f16[32, 64], v: f16[32, 16]
  fragment x: f32[64, 32], p: f16[64, 32], acc: f32[64, 16] = 0
  q = Q[i*64 +: 64, :]
  pipelined t < i*2, 2 {
    k = K[t*32 +: 32, :]
    v = V[t*32 +: 32, :]
    x = q @ k^T
    p = x
    acc += p @ v
  }
  pipelined t in i*2 .. ceildiv(min(i*64 + 64, S), 32), 2 {
    k = K[t*32 +: 32, :]
    v = V[t*32 +: 32, :]
    x = q @ k^T
    parallel r < 64, c < 32 { x[r, c] = t*32 + c <= i*64 + r ? x[r, c] : 0 }
    p = x
    acc += p @ v
  }
  O[i*64 +: 64, :] = acc
}
)";
// Tiles that two teams compute in turn, with something to do behind the products.
inline const std::string kTeams = product_of_blocks(
    "teams", ", D: f16[N], R: f16[M, N]", "f16",
    "  parallel r < 64, s < 32 { c[r, s] = max(c[r, s] * 0.25 + D[j*32 + s], 0) + R[i*64 + r, j*32 + s] }\n");
// The same where a tile's place takes no division: nobody hands it on.
inline constexpr const char* kTeamsOfRows = R"(tile 1
kernel rows_in_teams(A: f16[M, K], B: f16[32, K], C: out f16[M, 32])
grid i < ceildiv(M, 64)
{
  shared a: f16[64, 64], b: f16[32, 64]
  fragment c: f32[64, 32] = 0
  pipelined k < ceildiv(K, 64), 3 {
    a = A[i*64 +: 64, k*64 +: 64]
    b = B[:, k*64 +: 64]
    c += a @ b^T
  }
  parallel r < 64, s < 32 { c[r, s] = max(c[r, s] * 0.25, 0) }
  C[i*64 +: 64, :] = c
}
)";
// Blocks that copy for each other: of neighbours some read the same rows of A, some the same of B.
inline const std::string kPairs = product_of_blocks("pairs", "", "f32", "");
// Three batches of one right operand: a fourth fills a cluster of two up, whose gain is beyond the last one's.
inline constexpr const char* kBatches = R"(tile 1
kernel batches(A: f16[Z, M, K], B: f16[N, K], G: i32[Z], H: f32[N], C: inout f32[Z, M, N])
grid j < ceildiv(N, 32), z < Z
{
  shared a: f16[64, 64], b: f16[32, 64]
  fragment c: f32[64, 32] = 0, d: f32[64, 32]
  let gain = G[z]
  pipelined k < ceildiv(K, 64), 2 {
    a = A[z, 0 +: 64, k*64 +: 64]
    b = B[j*32 +: 32, k*64 +: 64]
    c += a @ b^T
  }
  d = C[z, 0 +: 64, j*32 +: 32]
  parallel r < 64, s < 32 { c[r, s] = d[r, s] + f32(gain) * c[r, s] + H[j*32 + s] }
  C[z, 0 +: 64, j*32 +: 32] = c
}
)";
// Rows that an index names beside boxes, and a row that a region reads in every iteration.
inline constexpr const char* kGathered = R"(tile 1
kernel gathered(A: f16[R, K], index: i32[M], B: f16[N, K], D: f16[K], C: out f32[M, N])
grid i < ceildiv(M, 64), j < ceildiv(N, 32)
{
  shared a: f16[64, 64], b: f16[32, 64], e: f16[64, 64]
  fragment c: f32[64, 32] = 0, d: f32[64, 32] = 0
  pipelined k < ceildiv(K, 64), 3 {
    a = A[index[i*64 +: 64], k*64 +: 64]
    b = B[j*32 +: 32, k*64 +: 64]
    parallel r < 64, s < 64 { e[r, s] = f32(a[r, s]) * D[k*64 + s] }
    c += a @ b^T
    d += e @ b^T
  }
  parallel r < 64, s < 32 { c[r, s] = c[r, s] - 0.5 * d[r, s] }
  C[i*64 +: 64, j*32 +: 32] = c
}
)";
// A right operand that is made of 4 bits by what is found in a table.
inline constexpr const char* kTables = R"(tile 1
kernel tables(A: f16[M, K], W: u4[N, K], C: out f32[M, N])
grid i < ceildiv(M, 64), j < ceildiv(N, 32)
{
  shared a: f16[64, 64], q: u4[32, 64]
  fragment w: f16[32, 64], c: f32[64, 32] = 0
  pipelined k < ceildiv(K, 64), 3 {
    a = A[i*64 +: 64, k*64 +: 64]
    q = W[j*32 +: 32, k*64 +: 64]
    parallel n < 32, d < 64 { w[n, d] = q[n, d] < 9 ? 0.5 * f32(q[n, d]) : 4 - f32(q[n, d] % 3) }
    c += a @ w^T
  }
  C[i*64 +: 64, j*32 +: 32] = c
}
)";
// Rows by numbers that are made of what a tensor says.
inline constexpr const char* kNumbered = R"(tile 1
kernel numbered(A: f16[R, K], slots: i32[M], B: f16[N, K], C: out f32[M, N])
grid i < ceildiv(M, 64), j < ceildiv(N, 32)
{
  shared a: f16[64, 64], b: f16[32, 64]
  fragment slot: i32[64], row: i32[64], c: f32[64, 32] = 0
  slot = slots[i*64 +: 64]
  parallel r < 64 { row[r] = abs(slot[r] / 2) % R }
  pipelined k < ceildiv(K, 64), 3 {
    a = A[row, k*64 +: 64]
    b = B[j*32 +: 32, k*64 +: 64]
    c += a @ b^T
  }
  C[i*64 +: 64, j*32 +: 32] = c
}
)";
// For rows that begin anywhere.
inline const std::string kAnywhere = product_of_blocks("anywhere", "", "f32", "");
// What a region reads beside sums, of 32 bits: with its neighbours, not fetched ahead.
inline const std::string kResidual = product_of_blocks(
    "residual", ", R: f32[M, N]", "f32", "  parallel r < 64, s < 32 { c[r, s] += R[i*64 + r, j*32 + s] }\n");
// A left operand of which every iteration makes a part anew.
inline const std::string kMadeInPart =
    product_of_blocks("made_in_part", "", "f32", "", ", e: f16[64, 64] = 0.5",
                      "    parallel r < 64, s < 64 { if s < 24 { e[r, s] = f32(a[r, s]) * 2 } }\n", "e");

// Sums that three warps of four hold for nothing; the product, of which they are added to a tile in memory.
constexpr const char* kOwnProduct = R"(tile 1
kernel own(x: bf16[N, K], y: inout f32[N, N])
{
  fragment xs: bf16[64, 64]
  shared   sums: f32[64, 64]
  xs = x[0 +: 64, 0 +: 64]
  sums = y[0 +: 64, 0 +: 64]
  parallel i < 64, j < 64 { sums[i, j] = sums[i, j] * 0.5 }
  sums += xs @ xs^T
  parallel i < 64, j < 64 { sums[i, j] = clamp(sums[i, j] * 0.0625, -2, 2) }
  y[0 +: 64, 0 +: 64] = sums
}
)";
// The barrier between what is stored and wgmma is that of the asynchronous copies behind it.
constexpr const char* kStoredBefore = R"(tile 1
kernel before(x: f32[N, K], z: f32[N, K], y: out f32[N, N], w: out f32[N, K])
{
  fragment xs: f32[64, 16]
  shared   zs: f32[64, 40], sums: f32[64, 64]
  xs = x[0 +: 64, 0 +: 16]
  zs = z[0 +: 64, 0 +: 40]
  sums = xs @ xs^T precision tf32
  y[0 +: 64, 0 +: 64] = sums
  w[0 +: 64, 0 +: 40] = zs
}
)";

// A left operand of 8 bits in registers.
constexpr const char* kBytes = R"(tile 1
kernel bytes(A: i8[M, K], B: i8[64, 64], C: out i32[M, 64])
grid i < ceildiv(M, 64)
{
  shared a: i8[64, 64], b: i8[64, 64]
  fragment x: i32[64, 64], y: i8[64, 64], c: i32[64, 64]
  a = A[i*64 +: 64, 0 +: 64]
  b = B
  x = a @ b^T
  parallel r < 64, s < 64 { y[r, s] = i8(x[r, s] % 50 + s) }
  c = y @ b^T
  C[i*64 +: 64, :] = c
}
)";
// A number that a tile decides about and the producer needs, another one for each tile, some of which copy nothing.
constexpr const char* kHanded = R"(tile 1
kernel handed(A: f16[M, K], B: f16[M, K], C: out f32[M, 64])
grid i < ceildiv(M, 64)
{
  shared a: f16[64, 64], b: f16[64, 64], turned: i32[16]
  fragment c: f32[64, 64] = 0
  parallel e < 16 { turned[e] = (e * 5 + 3) % 16 }
  let from = turned[i % 16]
  pipelined k < from % 3, 2 {
    a = A[i*64 +: 64, k*64 +: 64]
    b = B[from +: 64, k*64 +: 64]
    c += a @ b^T
  }
  C[i*64 +: 64, :] = c
}
)";
// Rows of k that end between two boxes.
constexpr const char* kBounded = R"(tile 1
kernel bounded(A: f16[M, 64], B: f16[M, 64], C: out f32[64, 64])
{
  shared a: f16[64, 64], b: f16[64, 64]
  fragment c: f32[64, 64] = 0
  pipelined k < ceildiv(M, 64), 2 {
    a = A[k*64 +: 64, :] within 0 +: M - 24
    b = B[k*64 +: 64, :] within 0 +: M - 24
    c += a^T @ b
  }
  C = c
}
)";

}  // namespace kachel::lowering
