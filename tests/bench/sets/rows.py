"""Rows: losses, gradients, norms, an optimiser, routing, sampling."""
import sys

import torch
import torch.nn.functional as F
from unseen import Case

DEV = "cpu" if "--check" in sys.argv or not torch.cuda.is_available() else "cuda"
BF = torch.bfloat16
INF = float("inf")


def wide(x):
    """As torch's own kernels compute: in f32, or in float64 where that is what there is."""
    return x if x.dtype == torch.float64 else x.float()


def uniform(shape, low=0.0, high=1.0):
    return torch.rand(shape, device=DEV) * (high - low) + low


def integers(shape, low, high):
    return torch.randint(low, high, shape, device=DEV).to(torch.int32)


# ---- cross entropy over a large vocabulary, smoothed, with rows that do not count
CE = """tile 1
kernel ce_smooth<T: f16 | bf16 | f32>(X: T[N, V], target: i32[N], loss: out f32[N], lse: out f32[N], smooth: f32)
key  bucket(N), V
tune BV = 4096 | 2048 | 8192 | 1024, threads = 256 | 512 | 128
grid n < N
{
  fragment x: f32[BV], m: f32[1] = -1e30, s: f32[1] = 0, all: f32[1] = 0
  for v < ceildiv(V, BV) {
    x = X[n, v*BV +: BV] pad -inf
    parallel i < 1 {
      let most = max(m[i], max[j < BV](x[j]))
      s[i] = s[i] * exp(m[i] - most) + sum[j < BV](exp(x[j] - most))
      m[i] = most
      all[i] += sum[j < BV](v*BV + j < V ? x[j] : 0)
    }
  }
  let at = target[n]
  parallel i < 1 {
    let total = m[i] + log(s[i])
    lse[n] = total
    loss[n] = at < 0 ? 0 : total - (1 - smooth) * X[n, at] - smooth * all[i] / V
  }
}
"""


def ce_smooth(t, d):
    x = wide(t.X)
    return F.cross_entropy(x, t.target.long(), label_smoothing=t.smooth, reduction="none"), x.logsumexp(-1)


def targets(shape, t, d):
    return torch.where(torch.rand(shape, device=DEV) < 0.1, -100, integers(shape, 0, d["V"])).to(torch.int32)


# ---- a layer norm's three gradients
LNB = """tile 1
kernel input_gradient<T: f16 | bf16 | f32>(X: T[N, D], G: T[N, D], W: T[D], mean: f32[N], rstd: f32[N], dX: out T[N, D])
key  bucket(N), D
tune rows = 1 | 2 | 4 | 8
grid r < ceildiv(N, rows)
{
  fragment x: f32[rows, D], g: f32[rows, D], a: f32[rows], b: f32[rows]
  x = X[r*rows +: rows, :]
  g = G[r*rows +: rows, :]
  parallel i < rows, d < D {
    x[i, d] = (x[i, d] - mean[r*rows + i]) * rstd[r*rows + i]
    g[i, d] *= W[d]
  }
  parallel i < rows {
    a[i] = sum[d < D](g[i, d]) / D
    b[i] = sum[d < D](g[i, d] * x[i, d]) / D
  }
  parallel i < rows, d < D { g[i, d] = (g[i, d] - a[i] - x[i, d] * b[i]) * rstd[r*rows + i] }
  dX[r*rows +: rows, :] = g
}

kernel columns<T: f16 | bf16 | f32>(X: T[N, D], G: T[N, D], mean: f32[N], rstd: f32[N], w: out f32[P, D], b: out f32[P, D])
key  bucket(N), bucket(P), D
tune BR = 16 | 32 | 8, BD = 128 | 64 | 256
grid p < P, c < ceildiv(D, BD)
{
  fragment x: f32[BR, BD], g: f32[BR, BD], mu: f32[BR], rs: f32[BR], sw: f32[BD] = 0, sb: f32[BD] = 0
  let share = ceildiv(N, P), first = p * share
  for r < ceildiv(share, BR) {
    x = X[first + r*BR +: BR, c*BD +: BD] within first +: share
    g = G[first + r*BR +: BR, c*BD +: BD] within first +: share
    mu = mean[first + r*BR +: BR]
    rs = rstd[first + r*BR +: BR]
    parallel d < BD {
      sw[d] += sum[i < BR](g[i, d] * (x[i, d] - mu[i]) * rs[i])
      sb[d] += sum[i < BR](g[i, d])
    }
  }
  w[p, c*BD +: BD] = sw
  b[p, c*BD +: BD] = sb
}

kernel totals<T: f16 | bf16 | f32>(w: f32[P, D], b: f32[P, D], dW: out T[D], dB: out T[D])
key  bucket(P), D
tune BD = 64 | 32 | 16
grid c < ceildiv(D, BD)
{
  fragment x: f32[32, BD], y: f32[32, BD], sw: f32[BD] = 0, sb: f32[BD] = 0
  for p < ceildiv(P, 32) {
    x = w[p*32 +: 32, c*BD +: BD]
    y = b[p*32 +: 32, c*BD +: BD]
    parallel d < BD {
      sw[d] += sum[i < 32](x[i, d])
      sb[d] += sum[i < 32](y[i, d])
    }
  }
  dW[c*BD +: BD] = sw
  dB[c*BD +: BD] = sb
}

program layernorm_bwd<T: f16 | bf16 | f32>(X: T[N, D], G: T[N, D], W: T[D], mean: f32[N], rstd: f32[N],
                                           dX: out T[N, D], dW: out T[D], dB: out T[D])
key  bucket(N), D
tune parts = 128 | 32 | 64 | 256
{
  temp w: f32[parts, D], b: f32[parts, D]
  input_gradient(X, G, W, mean, rstd, dX)
  columns(X, G, mean, rstd, w, b)
  totals(w, b, dW, dB)
}
"""


def layernorm_bwd(t, d):
    mean, rstd = t.mean[:, None], t.rstd[:, None]
    return torch.ops.aten.native_layer_norm_backward(t.G, t.X, [d["D"]], mean, rstd, t.W, t.W, [True] * 3)


# ---- group norm and silu over images, with what the backward pass needs
GN = """tile 1
kernel groupnorm_silu<T: f16 | bf16 | f32>(X: T[N, C, P], W: T[C], bias: T[C], Y: out T[N, C, P], mean: out f32[N, G],
                                           rstd: out f32[N, G], eps: f32)
where C % G == 0
key  bucket(N), C, G, bucket(P)
tune BP = 256 | 128 | 512 | 1024, threads = 256 | 512 | 128
grid n < N, g < G
{
  fragment x: f32[C / G, BP], s: f32[1] = 0, q: f32[1] = 0, a: f32[C / G], b: f32[C / G]
  for p < ceildiv(P, BP) {
    x = X[n, g * (C / G) +: C / G, p*BP +: BP]
    parallel i < 1 {
      s[i] += sum[c < C / G, j < BP](x[c, j])
      q[i] += sum[c < C / G, j < BP](x[c, j] * x[c, j])
    }
  }
  let size = C / G * P, mu = s[0] / size, rs = rsqrt(q[0] / size - mu * mu + eps)
  parallel c < C / G {
    a[c] = W[g * (C / G) + c] * rs
    b[c] = bias[g * (C / G) + c] - mu * rs * W[g * (C / G) + c]
  }
  for p < ceildiv(P, BP) {
    x = X[n, g * (C / G) +: C / G, p*BP +: BP]
    parallel c < C / G, j < BP {
      let y = x[c, j] * a[c] + b[c]
      x[c, j] = y / (1 + exp(-y))
    }
    Y[n, g * (C / G) +: C / G, p*BP +: BP] = x
  }
  parallel i < 1 {
    mean[n, g] = mu
    rstd[n, g] = rs
  }
}
"""


def groupnorm_silu(t, d):
    y, mean, rstd = torch.native_group_norm(t.X, t.W, t.bias, d["N"], d["C"], d["P"], d["G"], t.eps)
    return F.silu(y), mean, rstd


# ---- Adafactor: the second moment as rows times columns
ADAFACTOR = """tile 1
kernel by_rows<T: bf16 | f32>(G: T[M, N], R: inout f32[M], beta: f32)
key  bucket(M), N
tune rows = 4 | 1 | 2 | 8, BN = 1024 | 512 | 2048
where rows * BN <= 8192
grid r < ceildiv(M, rows)
{
  fragment g: f32[rows, BN], s: f32[rows] = 0, old: f32[rows]
  for n < ceildiv(N, BN) {
    g = G[r*rows +: rows, n*BN +: BN]
    parallel i < rows { s[i] += sum[j < BN](g[i, j] * g[i, j]) }
  }
  old = R[r*rows +: rows]
  parallel i < rows { s[i] = beta * old[i] + (1 - beta) * (s[i] / N + 1e-30) }
  R[r*rows +: rows] = s
}

kernel by_columns<T: bf16 | f32>(G: T[M, N], part: out f32[P, N])
key  bucket(M), N, bucket(P)
tune BM = 16 | 32 | 8, BN = 128 | 64 | 256
grid p < P, n < ceildiv(N, BN)
{
  fragment g: f32[BM, BN], s: f32[BN] = 0
  let share = ceildiv(M, P)
  for m < ceildiv(share, BM) {
    g = G[p*share + m*BM +: BM, n*BN +: BN] within p*share +: share
    parallel j < BN { s[j] += sum[i < BM](g[i, j] * g[i, j]) }
  }
  part[p, n*BN +: BN] = s
}

kernel join_columns(part: f32[P, N], R: f32[M], C: inout f32[N], average: out f32[1], beta: f32)
key  bucket(P), N
tune BN = 64 | 32 | 128
grid n < ceildiv(N, BN)
{
  fragment s: f32[BN] = 0, old: f32[BN], r: f32[1024], total: f32[1] = 0
  old = C[n*BN +: BN]
  for p < P {
    parallel j < BN { s[j] += part[p, n*BN + j] }
  }
  parallel j < BN { s[j] = beta * old[j] + (1 - beta) * (s[j] / M + 1e-30) }
  C[n*BN +: BN] = s
  if n == 0 {
    for m < ceildiv(M, 1024) {
      r = R[m*1024 +: 1024]
      parallel i < 1 { total[i] += sum[k < 1024](r[k]) }
    }
    parallel i < 1 { average[0] = total[i] / M }
  }
}

kernel step<T: bf16 | f32>(G: T[M, N], R: f32[M], C: f32[N], average: f32[1], W: inout T[M, N], rate: f32)
key  bucket(M), N
tune BM = 4 | 8 | 16, BN = 512 | 256 | 1024
grid m < ceildiv(M, BM), n < ceildiv(N, BN)
{
  fragment g: f32[BM, BN], w: f32[BM, BN]
  g = G[m*BM +: BM, n*BN +: BN]
  w = W[m*BM +: BM, n*BN +: BN]
  parallel i < BM, j < BN { w[i, j] -= rate * g[i, j] * rsqrt(R[m*BM + i] / average[0]) * rsqrt(C[n*BN + j]) }
  W[m*BM +: BM, n*BN +: BN] = w
}

program adafactor<T: bf16 | f32>(W: inout T[M, N], G: T[M, N], R: inout f32[M], C: inout f32[N], beta: f32, rate: f32)
key  bucket(M), N
tune parts = 64 | 16 | 32 | 128
{
  temp part: f32[parts, N], average: f32[1]
  by_rows(G, R, beta)
  by_columns(G, part)
  join_columns(part, R, C, average, beta)
  step(G, R, C, average, W, rate)
}
"""


def adafactor(t, d):
    g = wide(t.G)
    square = g * g + 1e-30
    rows = torch.lerp(square.mean(1), t.R, t.beta)
    columns = torch.lerp(square.mean(0), t.C, t.beta)
    w = wide(t.W) - t.rate * g * (rows / rows.mean()).rsqrt()[:, None] * columns.rsqrt()
    return w.to(t.W.dtype), rows, columns


# ---- which experts a token goes to: the K largest logits, and a softmax over these
ROUTER = """tile 1
kernel topk_router(X: f32[N, E], weight: out f32[N, K], expert: out i32[N, K])
key  bucket(N), E, K
tune rows = 4 | 1 | 2 | 8 | 16, threads = 128 | 64 | 256 | 32
grid r < ceildiv(N, rows)
{
  fragment x: f32[rows, E], w: f32[rows, K], e: i32[rows, K]
  x = X[r*rows +: rows, :]
  for k < K {
    parallel i < rows {
      w[i, k] = max[j < E](x[i, j])
      e[i, k] = argmax[j < E](x[i, j])
    }
    parallel i < rows, j < E { x[i, j] = j == e[i, k] ? -inf : x[i, j] }
  }
  parallel i < rows, k < K { w[i, k] = exp(w[i, k] - w[i, 0]) }
  parallel i < rows, k < K { w[i, k] = w[i, k] / sum[j < K](w[i, j]) }
  weight[r*rows +: rows, :] = w
  expert[r*rows +: rows, :] = e
}
"""


def topk_router(t, d):
    top = t.X.topk(d["K"], -1)
    return top.values.softmax(-1), top.indices


# ---- sampling by Gumbel's trick, with the token's log-probability
GUMBEL = """tile 1
kernel gumbel_sample<T: f16 | bf16 | f32>(X: T[N, V], U: f32[N, V], heat: f32[N], token: out i32[N], logp: out f32[N])
key  bucket(N), V
tune BV = 2048 | 1024 | 4096, threads = 256 | 512
grid n < N
{
  fragment x: f32[BV], y: f32[BV], m: f32[1] = -1e30, s: f32[1] = 0, best: f32[1] = -inf, at: i32[1] = 0
  let cold = 1 / heat[n]
  for v < ceildiv(V, BV) {
    x = X[n, v*BV +: BV] pad -inf
    y = U[n, v*BV +: BV] pad 0.5
    parallel j < BV {
      x[j] *= cold
      y[j] = x[j] - log(-log(y[j]))
    }
    parallel i < 1 {
      let most = max(m[i], max[j < BV](x[j])), top = max[j < BV](y[j])
      s[i] = s[i] * exp(m[i] - most) + sum[j < BV](exp(x[j] - most))
      m[i] = most
      at[i] = top > best[i] ? v*BV + argmax[j < BV](y[j]) : at[i]
      best[i] = max(best[i], top)
    }
  }
  token[n +: 1] = at
  parallel i < 1 { logp[n] = X[n, at[i]] * cold - m[i] - log(s[i]) }
}
"""


def gumbel_sample(t, d):
    x = wide(t.X) / t.heat[:, None]
    token = (x - torch.log(-torch.log(t.U))).argmax(-1)
    return token, x.log_softmax(-1).gather(1, token[:, None])[:, 0]


B16 = {"T": "bf16"}
CASES = [
    Case("ce_smooth", CE, {"large": dict(N=4096, V=128256), "odd": dict(N=1021, V=50257), "small": dict(N=7, V=301)},
         ce_smooth, types=B16, fills={"target": targets, "smooth": lambda s, t, d: 0.1}),
    Case("layernorm_bwd", LNB, {"large": dict(N=16384, D=4096), "odd": dict(N=10007, D=1531), "small": dict(N=200, D=70)},
         layernorm_bwd, types=B16, tolerance=1e-2,
         fills={"mean": lambda s, t, d: t.X.float().mean(1),
                "rstd": lambda s, t, d: (t.X.float().var(1, correction=0) + 1e-5).rsqrt()}),
    Case("groupnorm_silu", GN,
         {"large": dict(N=16, C=320, P=4096, G=32), "odd": dict(N=7, C=480, P=2809, G=32), "small": dict(N=2, C=12, P=301, G=4)},
         groupnorm_silu, types=B16, fills={"eps": lambda s, t, d: 1e-5}, tolerance=1e-2),
    Case("adafactor", ADAFACTOR, {"large": dict(M=8192, N=8192), "odd": dict(M=5003, N=3001), "small": dict(M=90, N=130)},
         adafactor, types=B16,
         fills={"R": lambda s, t, d: uniform(s, 0.5, 1.5), "C": lambda s, t, d: uniform(s, 0.5, 1.5),
                "beta": lambda s, t, d: 0.99, "rate": lambda s, t, d: 0.01}),
    Case("topk_router", ROUTER,
         {"large": dict(N=32768, E=128, K=8), "odd": dict(N=20011, E=61, K=6), "small": dict(N=20, E=37, K=4)}, topk_router),
    Case("gumbel_sample", GUMBEL, {"large": dict(N=512, V=128256), "odd": dict(N=251, V=50257), "small": dict(N=5, V=3001)},
         gumbel_sample, types=B16,
         fills={"U": lambda s, t, d: uniform(s).clamp(1e-6, 1 - 1e-6), "heat": lambda s, t, d: uniform(s, 0.6, 1.2)}),
]
