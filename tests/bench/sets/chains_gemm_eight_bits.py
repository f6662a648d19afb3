"""Gemms of 8-bit integers and floats, with 8-bit weights, and with results of 8 bits."""
import torch
import torch.nn.functional as F
from sets.shared.chains import DEV, cases, mnk, wide
from unseen import Case

# ---- gelu(int8 gemm * row scale * column scale + bias)
INT8 = """tile 1

kernel int8_gemm_scales_bias_gelu(A: i8[M, K], W: i8[N, K], sa: f32[M], sw: f32[N], b: bf16[N], C: out bf16[M, N])
key  bucket(M), N, K
where BM <= 128
tune auto BM, BN, BK, stages
grid by < ceildiv(M, BM), bx < ceildiv(N, BN)
{
  shared   a: i8[BM, BK], w: i8[BN, BK]
  fragment acc: i32[BM, BN] = 0, y: f32[BM, BN]

  pipelined k < ceildiv(K, BK), stages {
    a = A[by*BM +: BM, k*BK +: BK]
    w = W[bx*BN +: BN, k*BK +: BK]
    acc += a @ w^T
  }
  parallel i < BM, j < BN {
    let row = by*BM + i, col = bx*BN + j
    let x = acc[i, j] * sa[row] * sw[col] + b[col]
    y[i, j] = 0.5 * x * (1 + erf(x * 0.70710678))
  }
  C[by*BM +: BM, bx*BN +: BN] = y
}
"""

# ---- x W^T + b as e4m3 with a scale for each row; N beyond a tile: the gemm leaves f32 and the largest of each row
E4M3 = """tile 1

kernel zero(most: out f32[M])
key bucket(M)
grid b < ceildiv(M, 1024)
{
  fragment z: f32[1024] = 0
  most[b*1024 +: 1024] = z
}

kernel gemm_amax<T: f16 | bf16>(A: T[M, K], W: T[N, K], b: T[N], x: out f32[M, N], most: inout f32[M])
key  bucket(M), N, K
where BM <= 128
tune auto BM, BN, BK, stages
grid by < ceildiv(M, BM), bx < ceildiv(N, BN)
{
  shared   a: T[BM, BK], w: T[BN, BK]
  fragment acc: f32[BM, BN] = 0, m: f32[BM]

  pipelined k < ceildiv(K, BK), stages {
    a = A[by*BM +: BM, k*BK +: BK]
    w = W[bx*BN +: BN, k*BK +: BK]
    acc += a @ w^T
  }
  # columns beyond N are zeros, which change no maximum of magnitudes
  parallel i < BM, j < BN { acc[i, j] += b[bx*BN + j] }
  parallel i < BM { m[i] = max[j < BN](abs(acc[i, j])) }
  x[by*BM +: BM, bx*BN +: BN] = acc
  atomic max most[by*BM +: BM] = m
}

kernel quantise(x: f32[M, N], most: f32[M], q: out f8e4m3[M, N], scale: out f32[M])
key  bucket(M), N
tune rows = 1 | 2 | 4
grid r < ceildiv(M, rows)
{
  fragment v: f32[rows, N], s: f32[rows]
  v = x[r*rows +: rows, :]
  parallel i < rows { s[i] = max(most[r*rows + i], 1e-12) / 448 }
  parallel i < rows, j < N { v[i, j] = v[i, j] / s[i] }
  q[r*rows +: rows, :] = v
  scale[r*rows +: rows] = s
}

program gemm_bias_quantise<T: f16 | bf16>(A: T[M, K], W: T[N, K], b: T[N], q: out f8e4m3[M, N], scale: out f32[M])
key  bucket(M), N, K
{
  temp x: f32[M, N], most: f32[M]
  zero(most)
  gemm_amax(A, W, b, x, most)
  quantise(x, most, q, scale)
}
"""

# ---- the same where a row is one tile: one kernel
E4M3_ROW = """tile 1

kernel gemm_quantise_row<T: f16 | bf16>(A: T[M, K], W: T[N, K], b: T[N], q: out f8e4m3[M, N], scale: out f32[M])
where N <= 512
key  bucket(M), N, K
where BM * N <= 32768
tune BM = 64 | 128, BK = 64 | 32, stages = 3 | 4 | 2
grid by < ceildiv(M, BM)
{
  shared   a: T[BM, BK], w: T[N, BK]
  fragment acc: f32[BM, N] = 0, s: f32[BM]

  pipelined k < ceildiv(K, BK), stages {
    a = A[by*BM +: BM, k*BK +: BK]
    w = W[:, k*BK +: BK]
    acc += a @ w^T
  }
  parallel i < BM, j < N { acc[i, j] += b[j] }
  parallel i < BM { s[i] = max(max[j < N](abs(acc[i, j])), 1e-12) / 448 }
  parallel i < BM, j < N { acc[i, j] = acc[i, j] / s[i] }
  q[by*BM +: BM, :] = acc
  scale[by*BM +: BM] = s
}
"""

# ---- weights of 8 bits with a scale for each column, bias, relu
W8 = """tile 1

kernel gemm_w8_bias_relu<T: f16 | bf16>(A: T[M, K], W: i8[N, K], s: T[N], b: T[N], C: out T[M, N])
key  bucket(M), N, K
tune BM = 64 | 128, BN = 64 | 128, BK = 64 | 128, stages = 3 | 4
grid by < ceildiv(M, BM), bx < ceildiv(N, BN)
{
  shared   a: T[BM, BK], q: i8[BN, BK]
  fragment w: T[BN, BK], acc: f32[BM, BN] = 0

  pipelined k < ceildiv(K, BK), stages {
    a = A[by*BM +: BM, k*BK +: BK]
    q = W[bx*BN +: BN, k*BK +: BK]
    w = q
    acc += a @ w^T
  }
  parallel i < BM, j < BN {
    let col = bx*BN + j
    acc[i, j] = max(acc[i, j] * s[col] + b[col], 0)
  }
  C[by*BM +: BM, bx*BN +: BN] = acc
}
"""

# ---- swish(f8 gemm * scales) in bf16
FP8 = """tile 1

kernel fp8_gemm_scales_swish(A: f8e4m3[M, K], W: f8e4m3[N, K], sa: f32[M], sw: f32[N], C: out bf16[M, N])
key  bucket(M), N, K
where BM <= 128
tune auto BM, BN, BK, stages
grid by < ceildiv(M, BM), bx < ceildiv(N, BN)
{
  shared   a: f8e4m3[BM, BK], w: f8e4m3[BN, BK]
  fragment acc: f32[BM, BN] = 0

  pipelined k < ceildiv(K, BK), stages {
    a = A[by*BM +: BM, k*BK +: BK]
    w = W[bx*BN +: BN, k*BK +: BK]
    acc += a @ w^T precision fast
  }
  parallel i < BM, j < BN {
    let x = acc[i, j] * (sa[by*BM + i] * sw[bx*BN + j])
    acc[i, j] = x * rcp(1 + exp(-x))
  }
  C[by*BM +: BM, bx*BN +: BN] = acc
}
"""


def int8_gemm(t, d):
    if d["N"] % 8 == 0 and d["K"] % 8 == 0:
        s = torch._int_mm(t.A, t.W.t()).float()
    else:
        s = F.linear(t.A.float(), t.W.float())
    return F.gelu(s * t.sa[:, None] * t.sw + t.b).to(t.b.dtype)


def quantise(t, d):
    x = wide(F.linear(t.A, t.W, t.b))
    s = x.abs().amax(1).clamp(min=1e-12) / 448
    return (x / s[:, None]).to(torch.float8_e4m3fn), s


def quantise_exactly(t, d):
    x = F.linear(t.A, t.W, t.b)
    s = x.abs().amax(1).clamp(min=1e-12) / 448
    return x / s[:, None], s


def fp8(t, d):
    if t.A.is_cuda and t.A.dtype == torch.float8_e4m3fn and d["N"] % 16 == 0 and d["K"] % 16 == 0:
        x = torch._scaled_mm(t.A, t.W.t(), scale_a=t.sa[:, None], scale_b=t.sw[None], out_dtype=torch.bfloat16,
                             use_fast_accum=True)
    else:
        x = F.linear(t.A.to(t.sa.dtype), t.W.to(t.sa.dtype)) * t.sa[:, None] * t.sw
    return F.silu(x).bfloat16()


def near_one(s, t, d):
    return torch.rand(s, device=DEV) + 0.5


def integers(s, t, d):  # factors that leave variances of sums of 8-bit integers as they are
    return near_one(s, t, d) / (74 * d["K"] ** 0.5)


CASES = [
    Case("int8_gemm_scales_bias_gelu", INT8, mnk((4096, 8192, 8192), (1001, 1777, 1003)), int8_gemm,
         reference=lambda t, d: F.gelu(F.linear(t.A.double(), t.W.double()) * t.sa[:, None] * t.sw + t.b),
         fills={"sa": integers, "sw": lambda s, t, d: near_one(s, t, d) / 74}),
    # e4m3 has 3 bits behind the point, and where a sum falls beside a tie the two round apart
    *cases("gemm_bias_quantise_e4m3", E4M3, quantise, mnk((4096, 4096, 4096), (1001, 1003, 1005)),
           reference=quantise_exactly, kernel="gemm_bias_quantise", tolerance=4e-2),
    *cases("gemm_quantise_row_e4m3", E4M3_ROW, quantise, mnk((32768, 256, 4096), (3001, 177, 1003)), t16="f16",
           reference=quantise_exactly, tolerance=4e-2),
    Case("gemm_w8_bias_relu", W8, mnk((2048, 8192, 8192), (301, 1777, 1003)),
         lambda t, d: F.relu(F.linear(t.A, t.W.to(t.A.dtype)) * t.s + t.b), types={"T": "bf16"},
         fills={"s": lambda s, t, d: integers(s, t, d).bfloat16()}),
    Case("fp8_gemm_scales_swish", FP8, mnk((4096, 8192, 8192), (1001, 1777, 1003)), fp8,
         reference=lambda t, d: F.silu(F.linear(t.A.double(), t.W.double()) * t.sa[:, None] * t.sw),
         fills={"sa": lambda s, t, d: near_one(s, t, d) * d["K"] ** -0.5, "sw": near_one}, tolerance=1e-2),
]
