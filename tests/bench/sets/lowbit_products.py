"""Products of integers with zero points and scales by blocks, and of bits."""
import torch
from sets.shared.lowbit import DEVICE, dense, linear, plain, randint, uniform
from unseen import Case


def words(shape, t, d):
    return torch.randint(-2**31, 2**31, shape, device=DEVICE, dtype=torch.int64).to(torch.int32)


int8 = randint(-128, 128, torch.int8)

# --- w8a8 with zero points of both sides -------------------------------------------------------------------------------
# the sums of the weights' rows are known, those of the activations are taken on the way
W8A8 = """tile 1
kernel w8a8_zeros(X: i8[M, K], A: f32[M], ZA: i32[M], W: i8[N, K], S: f32[N], ZW: i32[N], SW: i32[N], Y: out bf16[M, N])
key bucket(M), N, K
where BM * BN <= 256 * 128 && (BM <= 64 || BN >= 128)
tune BM = 16 | 64 | 128 | 256, BN = 64 | 128 | 256, BK = 128, stages = 3 | 4 | 5
grid m < ceildiv(M, BM), n < ceildiv(N, BN)
{
  shared   x: i8[BM, BK], w: i8[BN, BK]
  fragment c: i32[BM, BN] = 0, sx: i32[BM] = 0, y: f32[BM, BN]
  pipelined k < ceildiv(K, BK), stages {
    x = X[m*BM +: BM, k*BK +: BK]
    w = W[n*BN +: BN, k*BK +: BK]
    c += x @ w^T
    parallel i < BM { sx[i] += sum[j < BK](i32(x[i, j])) }
  }
  parallel i < BM, j < BN {
    let row = m*BM + i, col = n*BN + j
    let v = c[i, j] - ZA[row] * SW[col] - ZW[col] * sx[i] + i32(K) * ZA[row] * ZW[col]
    y[i, j] = v * (A[row] * S[col])
  }
  Y[m*BM +: BM, n*BN +: BN] = y
}
"""

# the quantiser gave the sums of both
W8A8_GIVEN = """tile 1
kernel w8a8_given(X: i8[M, K], A: f32[M], ZA: i32[M], SX: i32[M], W: i8[N, K], S: f32[N], ZW: i32[N], SW: i32[N],
                  bias: f32[N], Y: out bf16[M, N])
key bucket(M), N, K
where BM <= 256, BM * BN <= 256 * 128
tune auto BM, BN, BK, stages
grid m < ceildiv(M, BM), n < ceildiv(N, BN)
{
  shared   x: i8[BM, BK], w: i8[BN, BK]
  fragment c: i32[BM, BN] = 0, y: f32[BM, BN]
  pipelined k < ceildiv(K, BK), stages {
    x = X[m*BM +: BM, k*BK +: BK]
    w = W[n*BN +: BN, k*BK +: BK]
    c += x @ w^T
  }
  parallel i < BM, j < BN {
    let row = m*BM + i, col = n*BN + j
    let v = c[i, j] - ZA[row] * SW[col] - ZW[col] * SX[row] + i32(K) * ZA[row] * ZW[col]
    y[i, j] = v * (A[row] * S[col]) + bias[col]
  }
  Y[m*BM +: BM, n*BN +: BN] = y
}
"""


def w8a8(t, d):
    c = torch._int_mm(t.X, t.W.T)
    sx = t.SX if hasattr(t, "SX") else t.X.sum(1, dtype=torch.int32)
    v = c - t.ZA[:, None] * t.SW - t.ZW * sx[:, None] + d["K"] * t.ZA[:, None] * t.ZW
    y = v.float() * (t.A[:, None] * t.S)
    return (y + t.bias if hasattr(t, "bias") else y).to(torch.bfloat16)


def w8a8_reference(t, d):
    x = (t.X.double() - t.ZA[:, None]) * t.A.double()[:, None]
    w = (t.W.double() - t.ZW[:, None]) * t.S.double()[:, None]
    if hasattr(t, "SX"):  # the sums that were given are those of the inputs
        return x @ w.T + t.bias.double()
    return x @ w.T


def product16(t, d):
    if not hasattr(t, "x16"):
        t.x16 = t.X.to(torch.bfloat16)
    return t.x16 @ plain(t, d).T


w8a8_fills = {"X": int8, "A": uniform(1e-3, 1e-2), "ZA": randint(-20, 21, torch.int32), "W": int8, "S": uniform(1e-3, 1e-2),
              "ZW": randint(-20, 21, torch.int32), "SW": lambda s, t, d: t.W.sum(1, dtype=torch.int32),
              "SX": lambda s, t, d: t.X.sum(1, dtype=torch.int32)}

# --- int8 by blocks of 128 on both sides -------------------------------------------------------------------------------
BLOCKS8 = """tile 1
kernel blocks8(X: i8[M, K], A: f32[M, KG], W: i8[N, K], S: f32[NG, KG], Y: out bf16[M, N])
where KG == ceildiv(K, 128), NG == ceildiv(N, 128)
key bucket(M), N, K
tune BM = 16 | 64 | 128, BN = 64 | 128, BK = 128, stages = 3 | 4 | 5, threads = 128 | 256
grid m < ceildiv(M, BM), n < ceildiv(N, BN)
{
  shared   x: i8[BM, BK], w: i8[BN, BK]
  fragment s: i32[BM, BN], c: f32[BM, BN] = 0
  pipelined k < KG, stages {
    x = X[m*BM +: BM, k*BK +: BK]
    w = W[n*BN +: BN, k*BK +: BK]
    s = x @ w^T
    let b = S[n*BN / 128, k]
    parallel i < BM, j < BN { c[i, j] += s[i, j] * (A[m*BM + i, k] * b) }
  }
  Y[m*BM +: BM, n*BN +: BN] = c
}
"""


def blocks8_reference(t, d):
    x = t.X.double() * t.A.double().repeat_interleave(128, 1)[:, :d["K"]]
    s = t.S.double().repeat_interleave(128, 0)[:d["N"]].repeat_interleave(128, 1)[:, :d["K"]]
    return x @ (t.W.double() * s).T


def int_mm(t, d):
    return torch._int_mm(t.X, t.W.T)


groups = {label: dict(one, KG=-(-one["K"] // 128), NG=-(-one["N"] // 128)) for label, one in linear.items()}
groups["odd"].update(M=777, N=4099, K=3017, KG=24, NG=33)

# --- products of bits --------------------------------------------------------------------------------------------------
XNOR = """tile 1
kernel xnor(A: u32[M, KW], B: u32[N, KW], C: out i32[M, N])
key bucket(M), N, KW
where BM * BN <= 8192
tune BM = 32 | 64 | 128, BN = 32 | 64 | 128, BK = 16 | 32, stages = 2 | 3, threads = 128 | 256
grid m < ceildiv(M, BM), n < ceildiv(N, BN)
{
  shared   a: u32[BM, BK], b: u32[BN, BK]
  fragment c: i32[BM, BN] = 0
  pipelined k < ceildiv(KW, BK), stages {
    a = A[m*BM +: BM, k*BK +: BK]
    b = B[n*BN +: BN, k*BK +: BK]
    parallel i < BM, j < BN { c[i, j] += sum[l < BK](i32(popcount(a[i, l] ^ b[j, l]))) }
  }
  parallel i < BM, j < BN { c[i, j] = i32(32 * KW) - 2 * c[i, j] }
  C[m*BM +: BM, n*BN +: BN] = c
}
"""

# binary weights, rows of 16 bits: bits become signs where tensor cores read them
BINARY = """tile 1
kernel binary(X: bf16[M, K], W: u32[N, KW], S: bf16[N], Y: out bf16[M, N])
where K == 32 * KW
key bucket(M), N, K
where BM * BN <= 256 * 128 && (BM <= 64 || BN >= 128)
tune BM = 16 | 64 | 128 | 256, BN = 64 | 128 | 256, BK = 64 | 128, stages = 3 | 4
grid m < ceildiv(M, BM), n < ceildiv(N, BN)
{
  shared   x: bf16[BM, BK], q: u32[BN, BK / 32]
  fragment w: bf16[BN, BK], c: f32[BM, BN] = 0
  pipelined k < ceildiv(K, BK), stages {
    x = X[m*BM +: BM, k*BK +: BK]
    q = W[n*BN +: BN, k*(BK / 32) +: BK / 32]
    parallel i < BN, j < BK { w[i, j] = (q[i, j / 32] >> (j % 32) & 1) != 0 ? 1 : -1 }
    c += x @ w^T
  }
  parallel i < BM, j < BN { c[i, j] *= S[n*BN + j] }
  Y[m*BM +: BM, n*BN +: BN] = c
}
"""

# distances of a few codes to all of an index: M of at most 8
HAMMING = """tile 1
kernel hamming(Q: u64[M, KW], B: u64[N, KW], D: out i16[M, N])
key M, bucket(N), KW
tune BN = 128 | 256 | 512 | 1024, threads = 128 | 256
grid n < ceildiv(N, BN)
{
  fragment q: u64[M, KW], b: u64[BN, KW], c: i16[M, BN]
  q = Q
  b = B[n*BN +: BN, :]
  parallel m < M, j < BN { c[m, j] = i16(sum[l < KW](popcount(q[m, l] ^ b[j, l]))) }
  D[:, n*BN +: BN] = c
}
"""


def signs(words, dtype):
    return torch.stack([1 - 2 * (words >> s & 1) for s in range(32)], -1).flatten(-2).to(dtype)


def xnor_torch(t, d):  # the signs as bytes, made ahead
    if not hasattr(t, "a8"):
        t.a8, t.b8 = signs(t.A, torch.int8), signs(t.B, torch.int8)
    return torch._int_mm(t.a8, t.b8.T)


def xnor_reference(t, d):
    return signs(t.A, torch.double) @ signs(t.B, torch.double).T


def binary_reference(t, d):
    return (t.X @ -signs(t.W, t.X.dtype).T) * t.S


def bit_count(x):
    x = x - (x >> 1 & 0x5555555555555555)
    x = (x & 0x3333333333333333) + (x >> 2 & 0x3333333333333333)
    x = x + (x >> 4) & 0x0f0f0f0f0f0f0f0f
    return x * 0x0101010101010101 >> 56 & 127


def hamming(t, d):
    return bit_count(t.Q[:, None] ^ t.B).sum(-1).to(torch.int16)


def words64(shape, t, d):
    return torch.randint(-2**63, 2**63 - 1, shape, device=DEVICE, dtype=torch.int64)

CASES = [
    Case("w8a8_zeros", W8A8, linear, w8a8, fills=w8a8_fills, reference=w8a8_reference, peers={"bf16": product16}, tolerance=1e-2),
    Case("w8a8_given", W8A8_GIVEN, linear, w8a8, fills=w8a8_fills, reference=w8a8_reference, peers={"bf16": product16}, tolerance=1e-2),
    Case("int8_blocks", BLOCKS8, groups, product16, fills={"X": int8, "A": uniform(1e-3, 1e-2), "W": int8, "S": uniform(1e-3, 1e-2)},
         reference=blocks8_reference, peers={"int_mm": int_mm}, compiled=False, tolerance=1e-2),
    Case("xnor", XNOR, {"large": dict(M=2048, KW=128, N=4096), "odd": dict(M=777, KW=97, N=4099), "small": dict(M=13, KW=5, N=19)},
         xnor_torch, fills={"A": words, "B": words}, reference=xnor_reference, compiled=False),
    Case("binary", BINARY, {label: dict(one, K=one["K"] // 32 * 32, KW=one["K"] // 32, N=one["N"] - (label == "odd"))
                            for label, one in linear.items()},
         dense, fills={"W": words, "S": uniform(0.01, 0.05, torch.bfloat16)}, reference=binary_reference, compiled=False, tolerance=1e-2),
    Case("hamming", HAMMING, {"large": dict(M=4, KW=4, N=1 << 22), "wide": dict(M=1, KW=12, N=1 << 20),
                              "odd": dict(M=3, KW=5, N=1000003), "small": dict(M=3, KW=5, N=77)},
         hamming, fills={"Q": words64, "B": words64}),
]
