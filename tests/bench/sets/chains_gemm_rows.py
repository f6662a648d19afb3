"""Gemms with a number for each row behind them: a block walks over the columns of its rows."""
import torch
import torch.nn.functional as F
from sets.shared.chains import DEV, cases, mnk, value, wide

# ---- gelu(leaky_relu(logsumexp of a row)): one kernel, a block walks over the columns of its rows
LOGSUMEXP = """tile 1

kernel gemm_logsumexp_leakyrelu_gelu<T: f32 | f16 | bf16>(A: T[M, K], W: T[N, K], b: T[N], y: out f32[M])
key  bucket(M), N, K
tune BM = 64 | 128, BN = 128 | 256 | 64, BK = 64 | 32, stages = 3 | 4
grid by < ceildiv(M, BM)
{
  shared   a: T[BM, BK], w: T[BN, BK]
  fragment acc: f32[BM, BN], m: f32[BM] = -1e30, l: f32[BM] = 0

  for n < ceildiv(N, BN) {
    acc = 0
    pipelined k < ceildiv(K, BK), stages {
      a = A[by*BM +: BM, k*BK +: BK]
      w = W[n*BN +: BN, k*BK +: BK]
      acc += a @ w^T
    }
    parallel i < BM, j < BN {
      let col = n*BN + j
      acc[i, j] = col < N ? acc[i, j] + b[col] : -inf
    }
    parallel i < BM {
      let next = max(m[i], max[j < BN](acc[i, j]))
      l[i] = l[i] * exp(m[i] - next) + sum[j < BN](exp(acc[i, j] - next))
      m[i] = next
    }
  }
  parallel i < BM {
    let x = m[i] + log(l[i])
    let u = x > 0 ? x : 0.01 * x
    m[i] = 0.5 * u * (1 + erf(u * 0.70710678))
  }
  y[by*BM +: BM] = m
}
"""

# ---- x = clamp(2 s x); x * mish(logsumexp(x))
LSE_MISH = """tile 1

kernel gemm_scale_residual_clamp_logsumexp_mish<T: f32 | f16 | bf16>(
    A: T[M, K], W: T[N, K], b: T[N], y: out f32[M], s: f32, low: f32, high: f32)
key  bucket(M), N, K
tune auto BM, BN, BK, stages
grid by < ceildiv(M, BM)
{
  shared   a: T[BM, BK], w: T[BN, BK]
  fragment acc: f32[BM, BN], l: f32[BM] = 0

  for n < ceildiv(N, BN) {
    acc = 0
    pipelined k < ceildiv(K, BK), stages {
      a = A[by*BM +: BM, k*BK +: BK]
      w = W[n*BN +: BN, k*BK +: BK]
      acc += a @ w^T
    }
    parallel i < BM, j < BN {
      let x = (acc[i, j] + b[n*BN + j]) * s
      acc[i, j] = clamp(x + x, low, high)
    }
    # what is clamped to `high` needs no running maximum
    parallel i < BM { l[i] += sum[j < BN](n*BN + j < N ? exp(acc[i, j] - high) : 0.0) }
  }
  parallel i < BM {
    let x = high + log(l[i])
    l[i] = x * (x * tanh(log(1 + exp(x))))
  }
  y[by*BM +: BM] = l
}
"""

# ---- average over groups of P columns, gelu, scale, the row's maximum
AVGPOOL_MAX = """tile 1

kernel matmul_avgpool_gelu_scale_max<T: f32 | f16 | bf16, const pool: i32>(
    A: T[M, K], W: T[N, K], b: T[N], y: out f32[M], scale: f32)
where N % pool == 0
key  bucket(M), N, K
tune BM = 64 | 128, groups = 8 | 16, BK = 64 | 32, stages = 3 | 4
grid by < ceildiv(M, BM)
{
  shared   a: T[BM, BK], w: T[groups*pool, BK]
  fragment acc: f32[BM, groups*pool], g: f32[BM, groups], most: f32[BM] = -inf

  for n < ceildiv(N, groups*pool) {
    acc = 0
    pipelined k < ceildiv(K, BK), stages {
      a = A[by*BM +: BM, k*BK +: BK]
      w = W[n*(groups*pool) +: groups*pool, k*BK +: BK]
      acc += a @ w^T
    }
    parallel i < BM, j < groups*pool { acc[i, j] += b[n*(groups*pool) + j] }
    parallel i < BM, q < groups {
      let x = sum[p < pool](acc[i, q*pool + p]) / pool
      g[i, q] = (n*groups + q)*pool < N ? 0.5 * x * (1 + erf(x * 0.70710678)) * scale : -inf
    }
    parallel i < BM { most[i] = max(most[i], max[q < groups](g[i, q])) }
  }
  y[by*BM +: BM] = most
}
"""

# ---- maximum of pairs of columns, the row's sum, scale
MAXPOOL_SUM = """tile 1

kernel matmul_maxpool_sum_scale<T: f32 | f16 | bf16>(A: T[M, K], W: T[N, K], b: T[N], y: out f32[M], scale: f32)
where N % 2 == 0
key  bucket(M), N, K
tune BM = 64 | 128, BH = 64 | 128 | 32, BK = 64 | 32, stages = 3 | 4
grid by < ceildiv(M, BM)
{
  shared   a: T[BM, BK], w: T[2*BH, BK]
  fragment acc: f32[BM, 2*BH], s: f32[BM] = 0

  for n < ceildiv(N, 2*BH) {
    acc = 0
    pipelined k < ceildiv(K, BK), stages {
      a = A[by*BM +: BM, k*BK +: BK]
      w = W[n*2*BH +: 2*BH, k*BK +: BK]
      acc += a @ w^T
    }
    # columns beyond N are zeros, those of b too
    parallel i < BM, j < 2*BH { acc[i, j] += b[n*2*BH + j] }
    parallel i < BM { s[i] += sum[j < BH](max(acc[i, 2*j], acc[i, 2*j + 1])) }
  }
  parallel i < BM { s[i] *= scale }
  y[by*BM +: BM] = s
}
"""

# ---- where the largest of a row stands
ARGMAX = """tile 1

kernel gemm_argmax<T: f16 | bf16>(A: T[M, K], W: T[N, K], at: out i32[M])
key  bucket(M), N, K
tune BM = 64 | 128, BN = 128 | 256, BK = 64, stages = 3 | 4
grid by < ceildiv(M, BM)
{
  shared   a: T[BM, BK], w: T[BN, BK]
  fragment acc: f32[BM, BN], most: f32[BM] = -inf, place: i32[BM] = 0

  for n < ceildiv(N, BN) {
    acc = 0
    pipelined k < ceildiv(K, BK), stages {
      a = A[by*BM +: BM, k*BK +: BK]
      w = W[n*BN +: BN, k*BK +: BK]
      acc += a @ w^T
    }
    parallel i < BM, j < BN { acc[i, j] = n*BN + j < N ? acc[i, j] : -inf }
    parallel i < BM {
      let here = max[j < BN](acc[i, j])
      place[i] = here > most[i] ? n*BN + argmax[j < BN](acc[i, j]) : place[i]
      most[i] = max(most[i], here)
    }
  }
  at[by*BM +: BM] = place
}
"""


def lse_mish(t, d):
    x = F.linear(t.A, t.W, t.b) * t.s
    x = torch.logsumexp(wide((x + x).clamp(t.low, t.high)), 1)
    return x * F.mish(x)


def avgpool_max(t, d):
    x = F.avg_pool1d(wide(F.linear(t.A, t.W, t.b))[:, None], 16)[:, 0]
    return (F.gelu(x) * t.scale).amax(1)


def maxpool_sum(t, d):
    x = F.max_pool1d(F.linear(t.A, t.W, t.b)[:, None], 2)[:, 0]
    return x.sum(1, dtype=torch.promote_types(t.A.dtype, torch.float32)) * t.scale


def integers(s, d):
    return torch.randint(-8, 9, s, device=DEV)


CASES = [
    *cases("gemm_logsumexp_leakyrelu_gelu", LOGSUMEXP,
           lambda t, d: F.gelu(F.leaky_relu(torch.logsumexp(wide(F.linear(t.A, t.W, t.b)), 1), 0.01)),
           mnk((16384, 2048, 1024), (2001, 511, 301)), mnk((8448, 1024, 1024), (777, 259, 131)), tolerance=2e-5),
    *cases("gemm_scale_residual_clamp_lse_mish", LSE_MISH, lse_mish,
           mnk((16384, 2048, 1024), (2001, 511, 301)), mnk((8448, 1024, 1024), (777, 259, 131)),
           fills={"s": value(2.0), "low": value(-10.0), "high": value(10.0)}, tolerance=2e-5),
    *cases("matmul_avgpool_gelu_scale_max", AVGPOOL_MAX, avgpool_max,
           mnk((16384, 2048, 1024), (2001, 464, 301), (13, 48, 17)),
           mnk((8448, 1024, 1024), (777, 272, 131), (13, 48, 17)), consts={"pool": 16},
           fills={"scale": value(2.0)}, tolerance=2e-5),
    *cases("matmul_maxpool_sum_scale", MAXPOOL_SUM, maxpool_sum,
           mnk((16384, 2048, 1024), (2001, 510, 301), (13, 22, 17)),
           mnk((8448, 1024, 1024), (777, 258, 131), (13, 22, 17)), t16="f16",
           fills={"scale": value(0.5)}, tolerance=2e-5),
    # small integers: products and sums are exact, and no two columns agree but by chance, where torch takes the first
    *cases("gemm_argmax", ARGMAX, lambda t, d: torch.argmax(wide(F.linear(t.A, t.W)), 1).int(),
           mnk((16384, 2048, 1024), (2001, 511, 301)),
           reference=lambda t, d: torch.argmax(F.linear(t.A, t.W), 1).int(), fills={"A": integers, "W": integers}),
]
