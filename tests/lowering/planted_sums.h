// Programs whose sums and parts of tiles planted bugs change.
#pragma once

namespace kachel::lowering {

// So few columns that four warps cannot share them.
inline constexpr const char* kFewColumns = R"(tile 1
kernel few_columns(A: f16[16, 64], B: f16[24, 64], C: out f32[16, 24])
grid g < 1
{
  shared   a: f16[16, 64], b: f16[24, 64]
  fragment c: f32[16, 24] = 0
  a = A
  b = B
  c += a @ b^T
  C = c
}
)";

// Columns in groups whose size is a parameter.
inline constexpr const char* kScalarGroups = R"(tile 1
kernel scalar_groups(X: f32[R, 256], S: f32[R, 16], Y: out f32[R, 256], size: i32)
grid r < ceildiv(R, 8), c < 2
{
  fragment x: f32[8, 128]
  x = X[r*8 +: 8, c*128 +: 128]
  parallel i < 8, j < 128 { x[i, j] -= S[r*8 + i, (c*128 + j) / size] }
  Y[r*8 +: 8, c*128 +: 128] = x
}
)";

// Operands of which wgmma takes a part, and sums of them that it makes in runs.
inline constexpr const char* kShortSums = R"(tile 1
kernel short_sums(A: f8e4m3[128, K], B: f8e5m2[32, K], D: f32[64, K], E: f32[24, K], C: out f32[128, 32], F: out f32[64, 24])
{
  shared a: f8e4m3[128, 256], b: f8e5m2[32, 256], d: f32[64, 64], e: f32[24, 64]
  fragment c: f32[128, 32] = 0, f: f32[64, 24] = 0
  pipelined k < ceildiv(K, 256), 2 {
    a = A[:, k*256 +: 256]
    b = B[:, k*256 +: 256]
    c += a @ b^T
  }
  pipelined k < ceildiv(K, 64), 3 {
    d = D[:, k*64 +: 64]
    e = E[:, k*64 +: 64]
    f += d @ e^T precision tf32
  }
  C = c
  F = f
}
)";

// Sums of products whose halves a region takes together, and that another one reads mirrored, beside a tile of another
// type than its tensor's that lies in memory.
inline constexpr const char* kMoved = R"(tile 1
kernel moved(A: f16[64, K], B: f16[64, K], W: f16[64, 64], C: out f32[64, 64], D: out f32[64, 64])
{
  shared a: f16[64, 32], b: f16[64, 32]
  fragment c: f32[64, 64] = 0, d: f32[64, 64] = 0, w: f32[64, 64]
  pipelined k < ceildiv(K, 32), 2 {
    a = A[:, k*32 +: 32]
    b = B[:, k*32 +: 32]
    c += a @ b^T
    d += b @ a^T
  }
  w = W
  parallel i < 64, j < 32 {
    let low = c[i, j], high = c[i, j + 32]
    c[i, j] = low - 2 * high
    c[i, j + 32] = high + 3 * low
  }
  parallel i < 64, j < 64 { d[i, j] = d[i, 63 - j] + w[63 - i, j] }
  C = c
  D = d
}
)";

// One run an iteration, and three.
inline constexpr const char* kRuns = R"(tile 1
kernel runs(A: f8e4m3[64, K], B: f8e4m3[32, K], C: out f32[64, 32], D: out f32[64, 32])
{
  shared a: f8e4m3[64, 128], b: f8e4m3[32, 128], d: f8e4m3[64, 384], e: f8e4m3[32, 384]
  fragment c: f32[64, 32] = 0, f: f32[64, 32] = 0
  pipelined k < ceildiv(K, 128), 3 {
    a = A[:, k*128 +: 128]
    b = B[:, k*128 +: 128]
    c += a @ b^T
  }
  pipelined k < ceildiv(K, 384), 2 {
    d = A[:, k*384 +: 384]
    e = B[:, k*384 +: 384]
    f += d @ e^T
  }
  C = c
  D = f
}
)";

// Partial sums, some of which are left when several have been read together.
inline constexpr const char* kFold = R"(tile 1
kernel fold(P: f32[7, M, 128], C: out f32[M, 128])
grid i < ceildiv(M, 4)
{
  fragment one: f32[4, 128], c: f32[4, 128] = 0
  for z < 7 {
    one = P[z, i*4 +: 4, :]
    parallel r < 4, s < 128 { c[r, s] += one[r, s] }
  }
  C[i*4 +: 4, :] = c
}
)";

// What is asked of half of the columns of a product at a time.
inline constexpr const char* kGroupsOfColumns = R"(tile 1
kernel groups_of_columns(A: f16[64, K], B: f16[64, K], C: out f32[2, 64])
{
  shared a: f16[64, 32], b: f16[64, 32]
  fragment c: f32[64, 64] = 0, most: f32[2, 64]
  pipelined k < ceildiv(K, 32), 2 {
    a = A[:, k*32 +: 32]
    b = B[:, k*32 +: 32]
    c += a @ b^T
  }
  parallel g < 2, i < 64 { most[g, i] = max[j < 32](c[i, g*32 + j]) }
  C = most
}
)";

// Products of all and of some columns of a tile.
inline constexpr const char* kColumns = R"(tile 1
kernel columns(A: f16[64, 64], B: f16[K, 64], C: out f32[64, 32])
{
  shared a: f16[64, 64], b: f16[64, 64]
  fragment s: f32[64, 64], p: f16[64, 64], c: f32[64, 32] = 0
  a = A
  pipelined k < ceildiv(K, 64), 2 {
    b = B[k*64 +: 64, :]
    s = a @ b^T
    p = s
    c += p @ b[:, 32 +: 32]
  }
  C = c
}
)";

// Heads that are normalised as a whole, scaled, then turned by halves.
inline constexpr const char* kNormalisedHeads = R"(tile 1
kernel turned(X: f16[M, 64], W: f32[64], S: f32[32], Y: out f32[M, 64])
grid r < ceildiv(M, 8)
{
  fragment x: f32[8, 64], y: f32[8, 64], size: f32[8]
  x = X[r*8 +: 8, :]
  parallel i < 8 { size[i] = rsqrt(sum[k < 64](x[i, k] * x[i, k] * W[k]) + 1) }
  parallel i < 8, d < 64 { x[i, d] = x[i, d] * size[i] + W[d] }
  parallel i < 8, d < 32 {
    y[i, d] = x[i, d] - x[i, d + 32] * S[d]
    y[i, d + 32] = x[i, d + 32] + x[i, d] * S[d]
  }
  Y[r*8 +: 8, :] = y
}
)";

// Rows and columns that grow to an instruction's, with tensors that go on behind them.
inline constexpr const char* kGrown = R"(tile 1
kernel grown(A: f16[G, 20, 32], B: f16[32, 32], C: out f32[G, 20, 20], T: out f32[G, 20])
grid g < G
{
  shared   a: f16[12, 32], b: f16[20, 32]
  fragment c: f32[12, 20], t: f32[12]
  a = A[g, 0 +: 12, :]
  b = B[0 +: 20, :]
  c = a @ b^T
  parallel i < 12 { t[i] = sum[j < 20](c[i, j]) }
  C[g, 0 +: 12, :] = c
  T[g, 0 +: 12] = t
}
)";

// Operands that are computed, of which k grows: where they end there is something else than zero.
inline constexpr const char* kDeeper = R"(tile 1
kernel deeper(A: f16[M, 20], B: f16[16, 20], C: out f32[M, 16])
grid m < ceildiv(M, 16)
{
  shared   a: f16[16, 20], b: f16[16, 20], x: f16[16, 20], y: f16[16, 20]
  fragment c: f32[16, 16]
  a = A[m*16 +: 16, :]
  b = B
  parallel i < 16, j < 20 { x[i, j] = a[i, j] + 1 }
  parallel i < 16, j < 20 { y[i, j] = b[i, j] * 2 + 1 }
  c = x @ y^T
  C[m*16 +: 16, :] = c
}
)";

// Matrices that tiles of three axes hold.
inline constexpr const char* kMatrices = R"(tile 1
kernel matrices(A: f16[M, 2, 32], B: f16[2, 16, 32], C: out f32[2, 16, 16])
{
  shared   a: f16[16, 2, 32], b: f16[2, 16, 32]
  fragment c: f32[2, 16, 16]
  a = A[0 +: 16, :, :]
  b = B
  for h < 2 { c[h, :, :] = a[:, h, :] @ b[h, :, :]^T }
  C = c
}
)";

// One of two operands, in some of the iterations.
inline constexpr const char* kGuarded = R"(tile 1
kernel guarded(A: f16[64, K], B: f16[64, K], E: f16[64, K], C: out f32[64, 64])
{
  shared   a: f16[64, 32], b: f16[64, 32]
  fragment c: f32[64, 64] = 0
  pipelined k < ceildiv(K, 32), 3 {
    if k % 3 != 1 {
      a = A[0 +: 64, k*32 +: 32]
      if k < 2 { b = B[0 +: 64, k*32 +: 32] } else { b = E[0 +: 64, k*32 +: 32] }
      c += a @ b^T
    }
  }
  C = c
}
)";

// Sums of an operand in a loop that is run twice.
inline constexpr const char* kCarried = R"(tile 1
kernel carried(A: f16[64, K], B: f16[64, K], C: out f32[64, 64])
{
  shared   a: f16[64, 32], b: f16[64, 32]
  fragment c: f32[64, 64] = 0, n: f32[64] = 0
  for twice < 2 {
    pipelined k < ceildiv(K, 32), 3 {
      a = A[0 +: 64, k*32 +: 32]
      b = B[0 +: 64, k*32 +: 32]
      parallel j < 64 { n[j] += sum[t < 32](f32(b[j, t])) }
      c += a @ b^T
    }
    parallel i < 64, j < 64 { c[i, j] += n[j] * 0.25 }
  }
  C = c
}
)";

// Operands of 32 bits with k down their rows, and sums of one product that the next one multiplies.
inline constexpr const char* kWordsOfK = R"(tile 1
kernel words(A: f32[K, 32], B: f32[K, 24], V: f32[24, 16], C: out f32[32, 16])
tune BK = 16
{
  shared a: f32[BK, 32], b: f32[BK, 24], v: f32[24, 16]
  fragment s: f32[32, 24] = 0, c: f32[32, 16]
  v = V
  pipelined k < ceildiv(K, BK), 2 {
    a = A[k*BK +: BK, :]
    b = B[k*BK +: BK, :]
    s += a^T @ b precision tf32
  }
  c = s @ v precision tf32
  C = c
}
)";

// Words of which every iteration takes its bits, with a scale for each group of them; loads under one condition, in
// which neighbours differ.
inline constexpr const char* kNarrowSums = R"(tile 1
kernel narrow(X: f32[K], W: u8[N, K2], S: f32[N, KG], V: f32[N, K], Y: out f32[N], Z: out f32[N])
where K2 == 32 * KG && K == 64 * KG
tune BK = 256
grid n < ceildiv(N, 4)
{
  fragment q: u8[4, BK / 2], x: f32[BK], acc: f32[4] = 0, other: f32[4] = 0
  for k < ceildiv(K, BK) {
    q = W[n*4 +: 4, k*(BK / 2) +: BK / 2]
    x = X[k*BK +: BK]
    parallel i < 4 {
      acc[i] += sum[j < BK / 2]((f32(q[i, j] & 15) - 8) * S[n*4 + i, (k*BK + 2*j) / 64] * x[2*j] +
                                f32(q[i, j] >> 4) * S[n*4 + i, (k*BK + 2*j) / 64] * x[2*j + 1])
    }
    parallel i < 4 { other[i] += sum[j < BK](k*BK + j >= 50 * n + i + 1 && n*4 + i < N ? V[n*4 + i, k*BK + j] * x[j] : 0) }
  }
  Y[n*4 +: 4] = acc
  Z[n*4 +: 4] = other
}
)";

// One region that takes two operands out of integers.
inline constexpr const char* kTwoOperands = R"(tile 1
kernel two(A: f16[32, K], P: u8[24, K], Q: u8[24, K], C: out f32[32, 24], D: out f32[32, 24])
{
  shared   a: f16[32, 32], p: u8[24, 32], q: u8[24, 32]
  fragment w: f16[24, 32], v: f16[24, 32], c: f32[32, 24] = 0, d: f32[32, 24] = 0
  pipelined k < ceildiv(K, 32), 2 {
    a = A[:, k*32 +: 32]
    p = P[:, k*32 +: 32]
    q = Q[:, k*32 +: 32]
    parallel i < 24, j < 32 {
      let half = 0.5
      w[i, j] = f16(p[i, j]) * half
      v[i, j] = f16(q[i, j]) - 3
    }
    c += a @ w^T
    d += a @ v^T
  }
  C = c
  D = d
}
)";

}  // namespace kachel::lowering
