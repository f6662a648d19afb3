"""Gemms with batch norms behind them: with factors that are given, and with the batch's own statistics."""
import torch.nn.functional as F
from sets.shared.chains import cases, mnk, uniform, value, wide

# ---- batchnorm (its factors folded by the kernel), gelu, relu
BATCHNORM = """tile 1

kernel gemm_batchnorm_gelu_relu<T: f32 | f16 | bf16>(
    A: T[M, K], W: T[N, K], b: T[N], mean: f32[N], var: f32[N], gamma: f32[N], beta: f32[N], C: out T[M, N], eps: f32)
key  bucket(M), N, K
where BM <= 128
tune auto BM, BN, BK, stages
grid by < ceildiv(M, BM), bx < ceildiv(N, BN)
{
  shared   a: T[BM, BK], w: T[BN, BK]
  fragment acc: f32[BM, BN] = 0, f: f32[BN], h: f32[BN]

  pipelined k < ceildiv(K, BK), stages {
    a = A[by*BM +: BM, k*BK +: BK]
    w = W[bx*BN +: BN, k*BK +: BK]
    acc += a @ w^T
  }
  parallel j < BN {
    let c = bx*BN + j
    let s = gamma[c] * rsqrt(var[c] + eps)
    f[j] = s
    h[j] = (b[c] - mean[c]) * s + beta[c]
  }
  parallel i < BM, j < BN {
    let x = acc[i, j] * f[j] + h[j]
    acc[i, j] = max(0.5 * x * (1 + erf(x * 0.70710678)), 0)
  }
  C[by*BM +: BM, bx*BN +: BN] = acc
}
"""

# ---- softmax(scale * batchnorm(x W^T + b)), batchnorm with its factors
BN_SOFTMAX = """tile 1

kernel gemm_norm<T: f32 | f16 | bf16>(A: T[M, K], W: T[N, K], b: T[N], mean: f32[N], var: f32[N], gamma: f32[N],
                                      beta: f32[N], x: out f32[M, N], eps: f32, scale: f32)
key  bucket(M), N, K
where BM <= 128
tune auto BM, BN, BK, stages
grid by < ceildiv(M, BM), bx < ceildiv(N, BN)
{
  shared   a: T[BM, BK], w: T[BN, BK]
  fragment acc: f32[BM, BN] = 0

  pipelined k < ceildiv(K, BK), stages {
    a = A[by*BM +: BM, k*BK +: BK]
    w = W[bx*BN +: BN, k*BK +: BK]
    acc += a @ w^T
  }
  parallel i < BM, j < BN {
    let c = bx*BN + j
    acc[i, j] = ((acc[i, j] + b[c] - mean[c]) * rsqrt(var[c] + eps) * gamma[c] + beta[c]) * scale
  }
  x[by*BM +: BM, bx*BN +: BN] = acc
}

kernel softmax_rows<T: f32 | f16 | bf16>(x: f32[M, N], y: out T[M, N])
key  bucket(M), N
tune rows = 1 | 2 | 4
grid r < ceildiv(M, rows)
{
  fragment v: f32[rows, N]
  v = x[r*rows +: rows, :]
  parallel i < rows, j < N { v[i, j] = exp(v[i, j] - max[k < N](v[i, k])) }
  parallel i < rows, j < N { v[i, j] /= sum[k < N](v[i, k]) }
  y[r*rows +: rows, :] = v
}

program gemm_batchnorm_scale_softmax<T: f32 | f16 | bf16>(
    A: T[M, K], W: T[N, K], b: T[N], mean: f32[N], var: f32[N], gamma: f32[N], beta: f32[N], y: out T[M, N],
    eps: f32, scale: f32)
{
  temp x: f32[M, N]
  gemm_norm(A, W, b, mean, var, gamma, beta, x, eps, scale)
  softmax_rows(x, y)
}
"""

# ---- batchnorm that trains: statistics over the rows of scale * (x W^T + b); then relu
TRAIN = """tile 1

kernel zero(s: out f32[2, N])
key N
grid b < ceildiv(N, 1024)
{
  fragment z: f32[2, 1024] = 0
  s[:, b*1024 +: 1024] = z
}

kernel gemm_sums<T: f32 | f16 | bf16>(A: T[M, K], W: T[N, K], b: T[N], scale: T[N], x: out T[M, N], s: inout f32[2, N])
key  bucket(M), N, K
where BM <= 128
tune auto BM, BN, BK, stages
grid by < ceildiv(M, BM), bx < ceildiv(N, BN)
{
  shared   a: T[BM, BK], w: T[BN, BK]
  fragment acc: f32[BM, BN] = 0, one: f32[BN], two: f32[BN]

  pipelined k < ceildiv(K, BK), stages {
    a = A[by*BM +: BM, k*BK +: BK]
    w = W[bx*BN +: BN, k*BK +: BK]
    acc += a @ w^T
  }
  parallel i < BM, j < BN {
    let col = bx*BN + j
    acc[i, j] = by*BM + i < M ? (acc[i, j] + b[col]) * scale[col] : 0.0
  }
  x[by*BM +: BM, bx*BN +: BN] = acc
  parallel j < BN {
    one[j] = sum[i < BM](acc[i, j])
    two[j] = sum[i < BM](acc[i, j] * acc[i, j])
  }
  atomic s[0, bx*BN +: BN] += one
  atomic s[1, bx*BN +: BN] += two
}

kernel normalise<T: f32 | f16 | bf16>(x: T[M, N], s: f32[2, N], gamma: T[N], beta: T[N], y: out T[M, N], eps: f32)
key  bucket(M), N
tune rows = 1 | 4 | 16, BN = 256 | 1024
grid r < ceildiv(M, rows), n < ceildiv(N, BN)
{
  fragment v: f32[rows, BN], mean: f32[BN], rstd: f32[BN]
  v = x[r*rows +: rows, n*BN +: BN]
  parallel j < BN {
    let c = n*BN + j
    let mu = s[0, c] / M
    mean[j] = mu
    rstd[j] = rsqrt(s[1, c] / M - mu*mu + eps) * gamma[c]
  }
  parallel i < rows, j < BN { v[i, j] = max((v[i, j] - mean[j]) * rstd[j] + beta[n*BN + j], 0) }
  y[r*rows +: rows, n*BN +: BN] = v
}

program gemm_scale_batchnorm_train_relu<T: f32 | f16 | bf16>(
    A: T[M, K], W: T[N, K], b: T[N], scale: T[N], gamma: T[N], beta: T[N], y: out T[M, N], eps: f32)
{
  temp x: T[M, N], s: f32[2, N]
  zero(s)
  gemm_sums(A, W, b, scale, x, s)
  normalise(x, s, gamma, beta, y, eps)
}
"""


def batchnorm(t, d):
    factors = (v.to(t.A.dtype) for v in (t.mean, t.var, t.gamma, t.beta))
    return F.relu(F.gelu(F.batch_norm(F.linear(t.A, t.W, t.b), *factors, False, 0.0, t.eps)))


def batchnorm_softmax(t, d):
    x = wide(F.linear(t.A, t.W, t.b))
    x = F.batch_norm(x, t.mean, t.var, t.gamma, t.beta, False, 0.0, t.eps)
    return F.softmax(x * t.scale, 1).to(t.A.dtype)


def trained(t, d):
    x = F.linear(t.A, t.W, t.b) * t.scale
    return F.relu(F.batch_norm(x, None, None, t.gamma, t.beta, True, 0.1, t.eps))


PLAIN = {"mean": uniform(-0.5, 0.5), "var": uniform(0.5, 2)}

CASES = [
    *cases("gemm_batchnorm_gelu_relu", BATCHNORM, batchnorm, mnk((8192, 4096, 4096), (1001, 1003, 1005)),
           mnk((1024, 4096, 4096), (333, 517, 259)), t16="f16", fills={"eps": value(1e-5)}, plain=PLAIN),
    *cases("gemm_batchnorm_scale_softmax", BN_SOFTMAX, batchnorm_softmax, mnk((4096, 4096, 4096), (1001, 1003, 1005)),
           mnk((1024, 4096, 4096), (333, 517, 259)), kernel="gemm_batchnorm_scale_softmax",
           fills={"eps": value(1e-5), "scale": value(1.25)}, plain=PLAIN),
    *cases("gemm_scale_batchnorm_train_relu", TRAIN, trained, mnk((8192, 4096, 4096), (1001, 1003, 1005)),
           mnk((1024, 4096, 4096), (333, 517, 259)), kernel="gemm_scale_batchnorm_train_relu",
           fills={"eps": value(1e-5)}),
]
