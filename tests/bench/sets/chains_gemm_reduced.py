"""Gemms whose rows are summed by atomics, or changed by what their reductions give."""
import torch
import torch.nn.functional as F
from sets.shared.chains import cases, linear, mnk, uniform, value

# ---- sum over the row of sigmoid(x W^T + b); blocks add up with atomics
SIGMOID_SUM = """tile 1

kernel zero(y: out f32[M])
key bucket(M)
grid b < ceildiv(M, 1024)
{
  fragment z: f32[1024] = 0
  y[b*1024 +: 1024] = z
}

kernel gemm_part<T: f32 | f16 | bf16>(A: T[M, K], W: T[N, K], b: T[N], y: inout f32[M])
key  bucket(M), N, K
where BM <= 128
tune auto BM, BN, BK, stages
grid by < ceildiv(M, BM), bx < ceildiv(N, BN)
{
  shared   a: T[BM, BK], w: T[BN, BK]
  fragment acc: f32[BM, BN] = 0, s: f32[BM]

  pipelined k < ceildiv(K, BK), stages {
    a = A[by*BM +: BM, k*BK +: BK]
    w = W[bx*BN +: BN, k*BK +: BK]
    acc += a @ w^T
  }
  parallel i < BM, j < BN {
    let col = bx*BN + j
    acc[i, j] = col < N ? rcp(1 + exp(-(acc[i, j] + b[col]))) : 0.0
  }
  parallel i < BM { s[i] = sum[j < BN](acc[i, j]) }
  atomic y[by*BM +: BM] += s
}

program gemm_sigmoid_sum<T: f32 | f16 | bf16>(A: T[M, K], W: T[N, K], b: T[N], y: out f32[M])
key  bucket(M), N, K
{
  zero(y)
  gemm_part(A, W, b, y)
}
"""

# ---- y = gelu(x - max of the row); the gemm keeps x and each tile's maxima
MAX_SUB = """tile 1

kernel gemm_max_part<T: f32 | f16 | bf16>(A: T[M, K], W: T[N, K], b: T[N], x: out f32[M, N], most: out f32[M, P])
where P == ceildiv(N, BN)
key  bucket(M), N, K, P
tune BM = 64 | 128, BN = 128 | 256, BK = 32 | 64, stages = 3 | 4
grid by < ceildiv(M, BM), bx < ceildiv(N, BN)
{
  shared   a: T[BM, BK], w: T[BN, BK]
  fragment acc: f32[BM, BN] = 0, m: f32[BM]

  pipelined k < ceildiv(K, BK), stages {
    a = A[by*BM +: BM, k*BK +: BK]
    w = W[bx*BN +: BN, k*BK +: BK]
    acc += a @ w^T
  }
  parallel i < BM, j < BN {
    let col = bx*BN + j
    acc[i, j] = col < N ? acc[i, j] + b[col] : -inf
  }
  parallel i < BM { m[i] = max[j < BN](acc[i, j]) }
  x[by*BM +: BM, bx*BN +: BN] = acc
  most[by*BM +: BM, bx] = m
}

kernel subtract_gelu<T: f32 | f16 | bf16>(x: f32[M, N], most: f32[M, P], y: out T[M, N])
key  bucket(M), N, P
tune rows = 1 | 2 | 4, BN = 1024 | 2048
grid r < ceildiv(M, rows), n < ceildiv(N, BN)
{
  fragment v: f32[rows, BN], part: f32[rows, P], m: f32[rows]
  v = x[r*rows +: rows, n*BN +: BN]
  part = most[r*rows +: rows, :]
  parallel i < rows { m[i] = max[p < P](part[i, p]) }
  parallel i < rows, j < BN {
    let u = v[i, j] - m[i]
    v[i, j] = 0.5 * u * (1 + erf(u * 0.70710678))
  }
  y[r*rows +: rows, n*BN +: BN] = v
}

program gemm_max_subtract_gelu<T: f32 | f16 | bf16>(A: T[M, K], W: T[N, K], b: T[N], y: out T[M, N])
key  bucket(M), N, K
tune width = 128 | 256
{
  temp x: f32[M, N], most: f32[M, ceildiv(N, width)]
  gemm_max_part(A, W, b, x, most)
  subtract_gelu(x, most, y)
}
"""

# ---- relu(x) / (sum of the row + eps); rows of one tile, so one kernel
DIVIDE = """tile 1

kernel gemm_relu_divide_sum<T: f32 | f16 | bf16>(A: T[M, K], W: T[N, K], b: T[N], y: out T[M, N], eps: f32)
where N <= 512
key  bucket(M), N, K
where BM * N <= 32768
tune BM = 64 | 128 | 32, BK = 32 | 64, stages = 2 | 3 | 4
grid by < ceildiv(M, BM)
{
  shared   a: T[BM, BK], w: T[N, BK]
  fragment acc: f32[BM, N] = 0, s: f32[BM]

  pipelined k < ceildiv(K, BK), stages {
    a = A[by*BM +: BM, k*BK +: BK]
    w = W[:, k*BK +: BK]
    acc += a @ w^T
  }
  parallel i < BM, j < N { acc[i, j] = max(acc[i, j] + b[j], 0) }
  parallel i < BM { s[i] = rcp(sum[j < N](acc[i, j]) + eps) }
  parallel i < BM, j < N { acc[i, j] *= s[i] }
  y[by*BM +: BM, :] = acc
}
"""

# ---- rows of length 1
L2NORM = """tile 1

kernel gemm_l2norm<T: f32 | f16 | bf16>(A: T[M, K], W: T[N, K], b: T[N], y: out T[M, N], eps: f32)
where N <= 512
key  bucket(M), N, K
where BM * N <= 32768
tune auto BM, BK, stages
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
  parallel i < BM { s[i] = rcp(max(sqrt(sum[j < N](acc[i, j] * acc[i, j])), eps)) }
  parallel i < BM, j < N { acc[i, j] *= s[i] }
  y[by*BM +: BM, :] = acc
}
"""


def sigmoid_sum(t, d):
    return torch.sigmoid(F.linear(t.A, t.W, t.b)).sum(1, dtype=torch.promote_types(t.A.dtype, torch.float32))


def max_subtract(t, d):
    x = F.linear(t.A, t.W, t.b)
    return F.gelu(x - x.amax(1, keepdim=True))


def divide_sum(t, d):
    x = F.relu(F.linear(t.A, t.W, t.b))
    return x / (x.sum(1, keepdim=True) + t.eps)


ROWS = {**mnk((32768, 256, 4096), (3001, 177, 1003)), "wide": {"M": 16384, "N": 512, "K": 4096}}

CASES = [
    *cases("gemm_sigmoid_sum", SIGMOID_SUM, sigmoid_sum, mnk((4096, 8192, 4096), (1001, 1777, 1003)),
           mnk((1024, 4096, 4096), (333, 517, 259)), kernel="gemm_sigmoid_sum", tolerance=2e-5),
    # gelu of what is far below 0 is next to nothing: small inputs keep it away from there
    *cases("gemm_max_subtract_gelu", MAX_SUB, max_subtract, mnk((4096, 4096, 4096), (1001, 1003, 1005)),
           mnk((1024, 4096, 4096), (333, 517, 259)), kernel="gemm_max_subtract_gelu",
           fills={"W": lambda s, d: linear(s, d) * 0.3, "b": uniform(-0.3, 0.3)}),
    *cases("gemm_relu_divide_sum", DIVIDE, divide_sum, ROWS, mnk((16384, 256, 2048), (1001, 131, 259)),
           fills={"eps": value(1e-3)}),
    *cases("gemm_l2norm", L2NORM, lambda t, d: F.normalize(F.linear(t.A, t.W, t.b), dim=1, eps=t.eps), ROWS,
           mnk((16384, 256, 2048), (1001, 131, 259)), fills={"eps": value(1e-12)}),
]
