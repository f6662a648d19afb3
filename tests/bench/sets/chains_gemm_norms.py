"""Gemms with norms of groups and rows behind them."""
import torch
import torch.nn.functional as F
from sets.shared.chains import cases, dims, value


# ---- a gemm whose tiles hold whole groups of D columns; N = G D. `before` works on x, `after` on the normalised n
def group_norm(name, params, before, after):
    return f"""tile 1

kernel {name}<T: f32 | f16 | bf16>(
    A: T[M, K], W: T[N, K], b: T[N], gamma: T[G, D], beta: T[G, D], {params}y: out T[M, N], eps: f32)
where N == G * D
key  bucket(M), N, K, D
where GB * D <= 256 && BM * GB * D <= 32768
tune BM = 64 | 128, GB = 1 | 2 | 4 | 8 | 16, BK = 64 | 32, stages = 3 | 4
grid by < ceildiv(M, BM), bg < ceildiv(G, GB)
{{
  shared   a: T[BM, BK], w: T[GB*D, BK]
  fragment acc: f32[BM, GB*D] = 0, mean: f32[BM, GB], rstd: f32[BM, GB]

  pipelined k < ceildiv(K, BK), stages {{
    a = A[by*BM +: BM, k*BK +: BK]
    w = W[bg*(GB*D) +: GB*D, k*BK +: BK]
    acc += a @ w^T
  }}
  parallel i < BM, j < GB*D {{
    let col = bg*(GB*D) + j
    let x = acc[i, j] + b[col]
    acc[i, j] = {before}
  }}
  parallel i < BM, g < GB {{ mean[i, g] = sum[k < D](acc[i, g*D + k]) / D }}
  parallel i < BM, g < GB {{
    rstd[i, g] = rsqrt(sum[k < D](let e = acc[i, g*D + k] - mean[i, g] in e * e) / D + eps)
  }}
  parallel i < BM, j < GB*D {{
    let row = by*BM + i, col = bg*(GB*D) + j
    let n = (acc[i, j] - mean[i, j / D]) * rstd[i, j / D] * gamma[col / D, col % D] + beta[col / D, col % D]
    acc[i, j] = {after}
  }}
  y[by*BM +: BM, bg*(GB*D) +: GB*D] = acc
}}
"""


# ---- batched x W^T + b, instance norm of each row, + c, * c
INSTANCE = """tile 1

kernel bmm_instancenorm_add_multiply<T: f32 | f16 | bf16>(A: T[B, M, K], W: T[B, N, K], b: T[N], c: T[B, M, N],
                                                          y: out T[B, M, N], eps: f32)
where N <= 512
key  B, bucket(M), N, K
where BM * N <= 32768
tune BM = 64 | 128, BK = 64 | 32, stages = 3 | 4 | 2
grid z < B, by < ceildiv(M, BM)
{
  shared   a: T[BM, BK], w: T[N, BK]
  fragment acc: f32[BM, N] = 0, mean: f32[BM], rstd: f32[BM], add: T[BM, N]

  pipelined k < ceildiv(K, BK), stages {
    a = A[z, by*BM +: BM, k*BK +: BK]
    w = W[z, :, k*BK +: BK]
    acc += a @ w^T
  }
  add = c[z, by*BM +: BM, :]
  parallel i < BM, j < N { acc[i, j] += b[j] }
  parallel i < BM { mean[i] = sum[j < N](acc[i, j]) / N }
  parallel i < BM, j < N { acc[i, j] -= mean[i] }
  parallel i < BM { rstd[i] = rsqrt(sum[j < N](acc[i, j] * acc[i, j]) / N + eps) }
  parallel i < BM, j < N { acc[i, j] = (acc[i, j] * rstd[i] + add[i, j]) * add[i, j] }
  y[z, by*BM +: BM, :] = acc
}
"""

# ---- layernorm(x W^T + b + residual), post-norm as in BERT; the rows are complete after the gemm only
LAYERNORM = """tile 1

kernel linear_add<T: f32 | f16 | bf16>(A: T[M, K], W: T[N, K], b: T[N], R: T[M, N], x: out f32[M, N])
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
    let row = by*BM + i, col = bx*BN + j
    acc[i, j] += b[col] + R[row, col]
  }
  x[by*BM +: BM, bx*BN +: BN] = acc
}

kernel layernorm<T: f32 | f16 | bf16>(X: f32[M, N], gamma: T[N], beta: T[N], y: out T[M, N], eps: f32)
key  bucket(M), N
tune rows = 1 | 2 | 4
grid r < ceildiv(M, rows)
{
  fragment x: f32[rows, N]
  x = X[r*rows +: rows, :]
  parallel i < rows, d < N { x[i, d] -= sum[k < N](x[i, k]) / N }
  parallel i < rows, d < N { x[i, d] = x[i, d] * rsqrt(sum[k < N](x[i, k] * x[i, k]) / N + eps) * gamma[d] + beta[d] }
  y[r*rows +: rows, :] = x
}

program gemm_residual_layernorm<T: f32 | f16 | bf16>(
    A: T[M, K], W: T[N, K], b: T[N], R: T[M, N], gamma: T[N], beta: T[N], y: out T[M, N], eps: f32)
{
  temp x: f32[M, N]
  linear_add(A, W, b, R, x)
  layernorm(x, gamma, beta, y, eps)
}
"""


def gnorm(x, t):
    return F.group_norm(x, t.gamma.shape[0], t.gamma.flatten(), t.beta.flatten(), t.eps)


def instance(t, d):
    x = torch.matmul(t.A, t.W.transpose(1, 2)) + t.b
    x = F.instance_norm(x, eps=t.eps)  # each row of each batch is an instance
    return (x + t.c) * t.c


def gdims(large, odd, small):
    return {label: {"M": m, "N": g * d, "K": k, "G": g, "D": d}
            for label, (m, g, d, k) in (("large", large), ("odd", odd), ("small", small))}


EPS = {"eps": value(1e-5)}

CASES = [
    # swish, a bias, groupnorm
    *cases("matmul_swish_add_groupnorm",
           group_norm("matmul_swish_add_groupnorm", "c: T[N], ", "x * rcp(1 + exp(-x)) + c[col]", "n"),
           lambda t, d: gnorm(F.silu(F.linear(t.A, t.W, t.b)) + t.c, t),
           gdims((4096, 64, 64, 4096), (1001, 21, 49, 1003), (13, 3, 7, 17)),
           gdims((1024, 64, 64, 4096), (333, 13, 37, 259), (13, 3, 7, 17)), fills=EPS),
    # groupnorm, leaky relu, y + y
    *cases("matmul_groupnorm_leakyrelu_sum",
           group_norm("matmul_groupnorm_leakyrelu_sum", "", "x", "n > 0 ? n + n : 0.02 * n"),
           lambda t, d: (lambda y: y + y)(F.leaky_relu(gnorm(F.linear(t.A, t.W, t.b), t), 0.01)),
           gdims((4096, 32, 256, 4096), (1001, 9, 131, 1003), (13, 3, 7, 17)), t16="f16", fills=EPS),
    # groupnorm, hardtanh
    *cases("gemm_groupnorm_hardtanh", group_norm("gemm_groupnorm_hardtanh", "", "x", "clamp(n, -2, 2)"),
           lambda t, d: F.hardtanh(gnorm(F.linear(t.A, t.W, t.b), t), -2.0, 2.0),
           gdims((4096, 64, 128, 4096), (1001, 15, 65, 1003), (13, 3, 7, 17)), fills=EPS),
    # groupnorm, swish, a factor, swish
    *cases("gemm_groupnorm_swish_multiply_swish",
           group_norm("gemm_groupnorm_swish_multiply_swish", "f: T[N], ", "x",
                      "let z = n * rcp(1 + exp(-n)) * f[col] in z * rcp(1 + exp(-z))"),
           lambda t, d: F.silu(F.silu(gnorm(F.linear(t.A, t.W, t.b), t)) * t.f),
           gdims((1024, 256, 32, 8192), (129, 51, 33, 2049), (13, 3, 7, 17)), fills=EPS),
    *cases("bmm_instancenorm_add_multiply", INSTANCE, instance,
           dims("B M N K", (16, 4096, 256, 2048), (5, 1001, 177, 301), (2, 13, 21, 17)),
           dims("B M N K", (8, 2048, 256, 2048), (3, 333, 131, 259), (2, 13, 21, 17)), fills=EPS),
    *cases("gemm_residual_layernorm", LAYERNORM,
           lambda t, d: F.layer_norm(F.linear(t.A, t.W, t.b) + t.R, (d["N"],), t.gamma, t.beta, t.eps),
           dims("M N K", (8192, 1024, 4096), (1001, 765, 1003), (13, 21, 17)),
           dims("M N K", (2048, 1024, 4096), (333, 515, 259), (13, 21, 17)),
           kernel="gemm_residual_layernorm", fills=EPS),
]
