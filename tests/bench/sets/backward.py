"""Gradients and optimiser steps."""
import math

import torch
import torch.nn.functional as F
from unseen import Case

BF = {"T": "bf16"}
HF = {"T": "f16"}


def up(x):
    return x if x.dtype in (torch.float32, torch.float64) else x.float()


def number(value):
    return lambda shape, t, d: value


def normal(factor=1.0, of="X"):
    return lambda shape, t, d: (torch.randn(shape, device=getattr(t, of).device) * factor).to(getattr(t, of).dtype)


def normal32(factor=1.0, of="X"):
    return lambda shape, t, d: torch.randn(shape, device=getattr(t, of).device) * factor


COLUMNS = """
kernel columns(part: f32[S, D], W: out f32[D])
key bucket(S), D
tune BD = 32 | 64 | 128, BS = 8 | 16 | 32, threads = 128 | 256
grid d < ceildiv(D, BD)
{
  fragment p: f32[BS, BD], acc: f32[BD] = 0
  for s < ceildiv(S, BS) {
    p = part[s*BS +: BS, d*BD +: BD]
    parallel j < BD { acc[j] += sum[i < BS](p[i, j]) }
  }
  W[d*BD +: BD] = acc
}
"""

# ---- losses and norms -----------------------------------------------------------------------------------------------
XENT = """tile 1
# Gradient of the cross entropy with label smoothing; rows whose target is negative are left out.
kernel xent_backward<T: f16 | bf16 | f32>(X: T[N, V], target: i32[N], dX: out T[N, V], loss: out f32[N], smoothing: f32, scale: f32)
key bucket(N), V
tune BV = 2048 | 4096 | 8192, threads = 256 | 512 | 1024
grid n < N
{
  fragment x: f32[BV], m: f32[1] = -1e30, l: f32[1] = 0, all: f32[1] = 0, lost: f32[1]
  let at = target[n]
  for v < ceildiv(V, BV) {
    x = X[n, v*BV +: BV] pad -inf
    parallel i < 1 {
      let most = max(m[i], max[j < BV](x[j]))
      l[i] = l[i] * exp(m[i] - most) + sum[j < BV](exp(x[j] - most))
      all[i] += sum[j < BV](v*BV + j < V ? x[j] : 0)
      m[i] = most
    }
  }
  let lse = m[0] + log(l[0])
  let keep = at >= 0 ? scale : 0.0
  for v < ceildiv(V, BV) {
    x = X[n, v*BV +: BV]
    parallel j < BV {
      x[j] = keep * (exp(x[j] - lse) - smoothing / f32(V) - (v*BV + j == at ? 1 - smoothing : 0.0))
    }
    dX[n, v*BV +: BV] = x
  }
  parallel i < 1 {
    lost[i] = at >= 0 ? lse - (1 - smoothing) * X[n, at] - smoothing / f32(V) * all[i] : 0
  }
  loss[n +: 1] = lost
}
"""


def xent(t, d):
    x = up(t.X)
    lp = torch.log_softmax(x, -1)
    at = t.target.long()
    valid = at >= 0
    at = at.clamp_min(0)
    g = lp.exp() - 0.1 / d["V"] - 0.9 * (torch.arange(d["V"], device=x.device) == at[:, None])
    loss = -(0.9 * lp.gather(1, at[:, None])[:, 0] + 0.1 * lp.mean(-1))
    return (g * (valid[:, None] * 0.5)).to(t.X.dtype), torch.where(valid, loss, torch.zeros_like(loss))


def targets(shape, t, d):
    v = torch.randint(0, d["V"], shape, device=t.X.device, dtype=torch.int32)
    v[::7] = -100
    return v


RMS = """tile 1
# A block walks through a share of the rows and keeps its part of the weight's gradient.
kernel rows<T: f16 | bf16>(X: T[N, D], W: T[D], dY: T[N, D], rstd: f32[N], dX: out T[N, D], part: out f32[S, D])
key bucket(N), D, S
tune stages = 2 | 3 | 4, threads = 128 | 256 | 512
grid s < S
{
  shared xs: T[D], gs: T[D]
  fragment x: f32[D], g: f32[D], w: f32[D], dw: f32[D] = 0
  let share = ceildiv(N, S)
  w = W[:]
  pipelined n in s*share .. min(N, (s + 1)*share), stages {
    xs = X[n, :]
    gs = dY[n, :]
    let r = rstd[n]
    parallel d < D {
      x[d] = xs[d] * r
      g[d] = gs[d] * w[d]
      dw[d] += gs[d] * x[d]
    }
    let mean = sum[d < D](g[d] * x[d]) / D
    parallel d < D { g[d] = r * (g[d] - x[d] * mean) }
    dX[n, :] = g
  }
  part[s, :] = dw
}
""" + COLUMNS + """
program rms_backward<T: f16 | bf16>(X: T[N, D], W: T[D], dY: T[N, D], rstd: f32[N], dX: out T[N, D], dW: out f32[D])
key bucket(N), D
tune S = 264 | 132 | 528
{
  temp part: f32[S, D]
  rows(X, W, dY, rstd, dX, part)
  columns(part, dW)
}
"""


def rms_backward(t, d):
    x, g, r = up(t.X), up(t.dY), t.rstd[:, None]
    xh = x * r
    gw = g * t.W
    dx = r * (gw - xh * (gw * xh).mean(-1, keepdim=True))
    return dx.to(t.X.dtype), (g * xh).sum(0)


LAYER = """tile 1
kernel rows<T: f16 | bf16>(X: T[N, D], W: T[D], dY: T[N, D], mean: f32[N], rstd: f32[N], dX: out T[N, D], dw_part: out f32[S, D], db_part: out f32[S, D])
key bucket(N), D, S
tune R = 1 | 2 | 4, threads = 128 | 256 | 512
grid s < S
{
  fragment x: f32[R, D], g: f32[R, D], dw: f32[D] = 0, db: f32[D] = 0
  let share = ceildiv(ceildiv(N, S), 4) * 4
  for k < share / R {
    let n = s*share + k*R
    x = X[n +: R, :]
    g = dY[n +: R, :]
    parallel i < R, d < D { x[i, d] = (x[i, d] - mean[n + i]) * rstd[n + i] }
    parallel d < D {
      dw[d] += sum[i < R](g[i, d] * x[i, d])
      db[d] += sum[i < R](g[i, d])
    }
    parallel i < R, d < D { g[i, d] *= W[d] }
    parallel i < R, d < D {
      g[i, d] = rstd[n + i] * (g[i, d] - sum[e < D](g[i, e]) / D - x[i, d] * (sum[e < D](g[i, e] * x[i, e]) / D))
    }
    dX[n +: R, :] = g
  }
  dw_part[s, :] = dw
  db_part[s, :] = db
}
""" + COLUMNS + """
program layer_backward<T: f16 | bf16>(X: T[N, D], W: T[D], dY: T[N, D], mean: f32[N], rstd: f32[N], dX: out T[N, D], dW: out f32[D], dB: out f32[D])
key bucket(N), D
tune S = 264 | 132 | 528
{
  temp dw_part: f32[S, D], db_part: f32[S, D]
  rows(X, W, dY, mean, rstd, dX, dw_part, db_part)
  columns(dw_part, dW)
  columns(db_part, dB)
}
"""


def layer_native(t, d):
    dx, dw, db = torch.ops.aten.native_layer_norm_backward(t.dY, t.X, [d["D"]], t.mean[:, None], t.rstd[:, None], t.W, t.W,
                                                           [True, True, True])
    return dx, dw, db


def layer_formula(t, d):
    x, g, r = up(t.X), up(t.dY), t.rstd[:, None]
    xh = (x - t.mean[:, None]) * r
    gw = g * t.W
    dx = r * (gw - gw.mean(-1, keepdim=True) - xh * (gw * xh).mean(-1, keepdim=True))
    return dx.to(t.X.dtype), (g * xh).sum(0), g.sum(0)


GROUP = """tile 1
kernel sums<T: f16 | bf16 | f32>(X: T[N, C, P], dY: T[N, C, P], one: out f32[N, C], two: out f32[N, C])
key bucket(N), C, P
tune BP = 512 | 1024 | 2048, threads = 64 | 128 | 256
grid n < N, c < C
{
  fragment x: f32[BP], g: f32[BP], a: f32[1] = 0, b: f32[1] = 0
  for p < ceildiv(P, BP) {
    x = X[n, c, p*BP +: BP]
    g = dY[n, c, p*BP +: BP]
    parallel i < 1 {
      a[i] += sum[j < BP](g[j])
      b[i] += sum[j < BP](g[j] * x[j])
    }
  }
  one[n, c +: 1] = a
  two[n, c +: 1] = b
}

kernel weights(one: f32[N, C], two: f32[N, C], mean: f32[N, G], rstd: f32[N, G], dW: out f32[C], dB: out f32[C])
key bucket(N), C, G
tune BC = 16 | 32 | 64, BN = 8 | 16, threads = 64 | 128
grid c < ceildiv(C, BC)
{
  fragment w: f32[BC] = 0, b: f32[BC] = 0
  for n < ceildiv(N, BN) {
    parallel j < BC {
      let g = (c*BC + j) / (C / G)
      w[j] += sum[i < BN]((two[n*BN + i, c*BC + j] - mean[n*BN + i, g] * one[n*BN + i, c*BC + j]) * rstd[n*BN + i, g])
      b[j] += sum[i < BN](one[n*BN + i, c*BC + j])
    }
  }
  dW[c*BC +: BC] = w
  dB[c*BC +: BC] = b
}

kernel inputs<T: f16 | bf16 | f32>(X: T[N, C, P], dY: T[N, C, P], W: f32[C], one: f32[N, C], two: f32[N, C], mean: f32[N, G], rstd: f32[N, G],
                                   dX: out T[N, C, P])
where C % G == 0
key bucket(N), C, P, G
tune BP = 512 | 1024 | 2048 | 4096, threads = 128 | 256
grid n < N, c < C
{
  fragment x: f32[BP], g: f32[BP]
  let h = c / (C / G)
  let r = rstd[n, h], u = mean[n, h], size = f32(C / G * P)
  let a = sum[k < C / G](W[h * (C / G) + k] * one[n, h * (C / G) + k])
  let b = sum[k < C / G](W[h * (C / G) + k] * two[n, h * (C / G) + k])
  let slope = (b - u * a) * r * r * r / size
  let shift = a * r / size
  let w = W[c]
  for p < ceildiv(P, BP) {
    x = X[n, c, p*BP +: BP]
    g = dY[n, c, p*BP +: BP]
    parallel j < BP { g[j] = g[j] * r * w - (x[j] - u) * slope - shift }
    dX[n, c, p*BP +: BP] = g
  }
}

program group_backward<T: f16 | bf16 | f32>(X: T[N, C, P], dY: T[N, C, P], W: f32[C], mean: f32[N, G], rstd: f32[N, G],
                                                dX: out T[N, C, P], dW: out f32[C], dB: out f32[C])
where C % G == 0
key bucket(N), C, P, G
{
  temp one: f32[N, C], two: f32[N, C]
  sums(X, dY, one, two)
  weights(one, two, mean, rstd, dW, dB)
  inputs(X, dY, W, one, two, mean, rstd, dX)
}
"""


def group_native(t, d):
    return torch.ops.aten.native_group_norm_backward(t.dY, t.X, t.mean.to(t.X.dtype), t.rstd.to(t.X.dtype), t.W.to(t.X.dtype), d["N"], d["C"],
                                                     d["P"], d["G"], [True, True, True])


def group_formula(t, d):
    n, c, p, g = (d[k] for k in "NCPG")
    x, dy = up(t.X).view(n, g, c // g, p), up(t.dY).view(n, g, c // g, p)
    r, m = t.rstd[:, :, None, None], t.mean[:, :, None, None]
    xh = (x - m) * r
    gw = dy * t.W.view(1, g, c // g, 1)
    dx = r * (gw - gw.mean((2, 3), keepdim=True) - xh * (gw * xh).mean((2, 3), keepdim=True))
    return dx.to(t.X.dtype).view(n, c, p), (dy * xh).sum((0, 3)).view(c), dy.sum((0, 3)).view(c)


def group_stat(which):
    def fill(shape, t, d):
        x = t.X.float().view(d["N"], d["G"], -1)
        return x.mean(-1) if which == "mean" else torch.rsqrt(x.var(-1, correction=0) + 1e-5)
    return fill


# ---- activations and the products beside them -----------------------------------------------------------------------
GELU_INTO = """tile 1
# dX = (dY * gelu'(H)) W: the left operand is made where it is used.
kernel gelu_into<T: f16 | bf16>(dY: T[M, N], H: T[M, N], W: T[N, K], dX: out T[M, K])
key bucket(M), N, K
tune BM = 64 | 128, BK = 128 | 256, BN = 32 | 64, stages = 2 | 3 | 4
grid m < ceildiv(M, BM), k < ceildiv(K, BK)
{
  shared   g: T[BM, BN], h: T[BM, BN], w: T[BN, BK]
  fragment a: T[BM, BN], acc: f32[BM, BK] = 0
  pipelined n < ceildiv(N, BN), stages {
    g = dY[m*BM +: BM, n*BN +: BN]
    h = H[m*BM +: BM, n*BN +: BN]
    w = W[n*BN +: BN, k*BK +: BK]
    parallel i < BM, j < BN {
      let x = f32(h[i, j])
      a[i, j] = g[i, j] * (0.5 * (1 + erf(x * 0.70710678)) + x * 0.39894228 * exp(-0.5 * x * x))
    }
    acc += a @ w
  }
  dX[m*BM +: BM, k*BK +: BK] = acc
}
"""


def gelu_slope(h):
    return 0.5 * (1 + torch.erf(h * math.sqrt(0.5))) + h * torch.exp(-0.5 * h * h) / math.sqrt(2 * math.pi)


def gelu_into(t, d):
    return torch.ops.aten.gelu_backward(t.dY, t.H) @ t.W


GELU_AFTER = """tile 1
# dH = (dY W) * gelu'(H), with the gelu of tanh: the product of the layer above, and the activation behind it.
kernel gelu_after<T: f16 | bf16>(dY: T[M, K], W: T[K, N], H: T[M, N], dH: out T[M, N])
key bucket(M), N, K
tune BM = 64 | 128, BN = 128 | 256, BK = 32 | 64, stages = 3 | 4
grid m < ceildiv(M, BM), n < ceildiv(N, BN)
{
  shared   a: T[BM, BK], w: T[BK, BN]
  fragment acc: f32[BM, BN] = 0
  pipelined k < ceildiv(K, BK), stages {
    a = dY[m*BM +: BM, k*BK +: BK]
    w = W[k*BK +: BK, n*BN +: BN]
    acc += a @ w
  }
  parallel i < BM, j < BN {
    let x = f32(H[m*BM + i, n*BN + j])
    let u = tanh(0.79788456 * (x + 0.044715 * x * x * x))
    acc[i, j] *= 0.5 * (1 + u) + 0.5 * x * (1 - u * u) * 0.79788456 * (1 + 0.134145 * x * x)
  }
  dH[m*BM +: BM, n*BN +: BN] = acc
}
"""


def gelu_after(t, d):
    return torch.ops.aten.gelu_backward(t.dY @ t.W, t.H, approximate="tanh")


GELU_WEIGHT = """tile 1
# dW = (dY * gelu'(H))^T X.
kernel gelu_weight<T: f16 | bf16>(dY: T[M, N], H: T[M, N], X: T[M, K], dW: out T[N, K])
key bucket(M), N, K
tune BN = 64 | 128, BK = 64 | 128 | 256, BM = 32 | 64, stages = 2 | 3 | 4
grid n < ceildiv(N, BN), k < ceildiv(K, BK)
{
  shared   a: T[BM, BN], x: T[BM, BK]
  fragment acc: f32[BN, BK] = 0
  pipelined m < ceildiv(M, BM), stages {
    parallel i < BM, j < BN {
      let h = f32(H[m*BM + i, n*BN + j])
      a[i, j] = dY[m*BM + i, n*BN + j] * (0.5 * (1 + erf(h * 0.70710678)) + h * 0.39894228 * exp(-0.5 * h * h))
    }
    x = X[m*BM +: BM, k*BK +: BK]
    acc += a^T @ x
  }
  dW[n*BN +: BN, k*BK +: BK] = acc
}
"""


def gelu_weight(t, d):
    return torch.ops.aten.gelu_backward(t.dY, t.H).T @ t.X


BIAS_GELU = """tile 1
# dX = dY * gelu'(X + b), and the column sums of dX, the bias's gradient.
kernel slopes<T: f16 | bf16>(X: T[M, D], B: T[D], dY: T[M, D], dX: out T[M, D], part: out f32[S, D])
key bucket(M), D, S
tune BM = 8 | 16 | 32, BD = 64 | 128 | 256, threads = 128 | 256
where BM * BD <= 4096
grid s < S, d < ceildiv(D, BD)
{
  fragment x: f32[BM, BD], g: f32[BM, BD], db: f32[BD] = 0
  let share = ceildiv(ceildiv(M, S), 32) * 32
  for k < share / BM {
    x = X[s*share + k*BM +: BM, d*BD +: BD]
    g = dY[s*share + k*BM +: BM, d*BD +: BD]
    parallel i < BM, j < BD {
      let h = x[i, j] + B[d*BD + j]
      g[i, j] *= 0.5 * (1 + erf(h * 0.70710678)) + h * 0.39894228 * exp(-0.5 * h * h)
    }
    parallel j < BD { db[j] += sum[i < BM](g[i, j]) }
    dX[s*share + k*BM +: BM, d*BD +: BD] = g
  }
  part[s, d*BD +: BD] = db
}
""" + COLUMNS + """
program bias_gelu_backward<T: f16 | bf16>(X: T[M, D], B: T[D], dY: T[M, D], dX: out T[M, D], dB: out f32[D])
key bucket(M), D
tune S = 32 | 16 | 64 | 128
{
  temp part: f32[S, D]
  slopes(X, B, dY, dX, part)
  columns(part, dB)
}
"""


def bias_gelu(t, d):
    g = up(t.dY) * gelu_slope(up(t.X) + t.B)
    return g.to(t.X.dtype), g.sum(0)


SWIGLU = """tile 1
# Gate and up lie beside each other in a row, as one product makes them; the activation is made again for the product's gradient.
kernel swiglu_backward<T: f16 | bf16>(X: T[N, 2, D], dY: T[N, D], dX: out T[N, 2, D], Y: out T[N, D])
key bucket(N), D
tune BN = 1 | 2 | 4, BD = 512 | 1024 | 2048, threads = 128 | 256
where BN * BD <= 4096
grid n < ceildiv(N, BN), d < ceildiv(D, BD)
{
  fragment g: f32[BN, BD], u: f32[BN, BD], y: f32[BN, BD]
  g = X[n*BN +: BN, 0, d*BD +: BD]
  u = X[n*BN +: BN, 1, d*BD +: BD]
  y = dY[n*BN +: BN, d*BD +: BD]
  parallel i < BN, j < BD {
    let s = rcp(1 + exp(-g[i, j]))
    let a = g[i, j] * s
    let t = y[i, j]
    y[i, j] = a * u[i, j]
    g[i, j] = t * u[i, j] * (s + a * (1 - s))
    u[i, j] = t * a
  }
  dX[n*BN +: BN, 0, d*BD +: BD] = g
  dX[n*BN +: BN, 1, d*BD +: BD] = u
  Y[n*BN +: BN, d*BD +: BD] = y
}
"""


def swiglu(t, d):
    g, u, y = up(t.X[:, 0]), up(t.X[:, 1]), up(t.dY)
    s = torch.sigmoid(g)
    a = g * s
    return torch.stack((y * u * (s + a * (1 - s)), y * a), 1).to(t.X.dtype), (a * u).to(t.X.dtype)


ROPE = """tile 1
# The gradient is turned back; pairs lie beside each other, positions come from memory.
kernel rope_backward<T: f16 | bf16>(dY: T[N, H, D], at: i32[N], cosine: f32[L, half], sine: f32[L, half], dX: out T[N, H, D])
where D == 2 * half
key bucket(N), H, D
tune rows = 1 | 2 | 4, heads = 4 | 8 | 16, threads = 128 | 256
grid n < ceildiv(N, rows), h < ceildiv(H, heads)
{
  fragment x: f32[rows, heads, D]
  x = dY[n*rows +: rows, h*heads +: heads, :]
  parallel i < rows, g < heads, d < half {
    let p = at[n*rows + i]
    let c = cosine[p, d], s = sine[p, d]
    let a = x[i, g, 2*d], b = x[i, g, 2*d + 1]
    x[i, g, 2*d] = a * c + b * s
    x[i, g, 2*d + 1] = b * c - a * s
  }
  dX[n*rows +: rows, h*heads +: heads, :] = x
}
"""


def rope_backward(t, d):
    at = t.at.long()
    c, s = t.cosine[at][:, None], t.sine[at][:, None]
    a, b = up(t.dY[..., 0::2]), up(t.dY[..., 1::2])
    return torch.stack((a * c + b * s, b * c - a * s), -1).flatten(-2).to(t.dY.dtype)


def rope_complex(t, d):
    if not hasattr(t, "turn"):
        t.turn = torch.complex(t.cosine, -t.sine)
    x = torch.view_as_complex(t.dY.float().view(d["N"], d["H"], d["half"], 2))
    return torch.view_as_real(x * t.turn[t.at.long()][:, None]).flatten(-2).to(t.dY.dtype)


# ---- scatter --------------------------------------------------------------------------------------------------------
EMBEDDING = """tile 1
kernel clear(W: out f32[V, D])
key V, D
tune rows = 4 | 8 | 16, BD = 256 | 512, threads = 128 | 256
grid v < ceildiv(V, rows), d < ceildiv(D, BD)
{
  fragment z: f32[rows, BD] = 0
  W[v*rows +: rows, d*BD +: BD] = z
}

kernel add<T: f16 | bf16>(dY: T[N, D], at: i32[N], W: inout f32[V, D])
key bucket(N), D
tune rows = 1 | 2 | 4, BD = 256 | 512 | 1024, threads = 128 | 256
grid n < ceildiv(N, rows), d < ceildiv(D, BD)
{
  fragment g: f32[rows, BD]
  g = dY[n*rows +: rows, d*BD +: BD]
  parallel i < rows, j < BD {
    if n*rows + i < N && d*BD + j < D { atomic W[at[n*rows + i], d*BD + j] += g[i, j] }
  }
}

program embedding_backward<T: f16 | bf16>(dY: T[N, D], at: i32[N], dW: out f32[V, D])
key bucket(N), V, D
{
  clear(dW)
  add(dY, at, dW)
}
"""


def embedding(t, d):
    g = up(t.dY)
    return torch.zeros(d["V"], d["D"], device=g.device, dtype=g.dtype).index_add_(0, t.at, g)


DEPTHWISE = """tile 1
# The gradient of a depthwise 3x3 filter: a sum over all pixels for each tap and channel.
kernel taps<T: f16 | bf16>(X: T[N, H, W, C], dY: T[N, H, W, C], part: out f32[S, 9, C])
key bucket(N), H, W, C, S
tune BW = 4 | 8 | 16, BC = 32 | 64 | 128, threads = 64 | 128 | 256
grid s < S, c < ceildiv(C, BC)
{
  fragment g: f32[BW, BC], f: f32[9, BC] = 0
  let share = ceildiv(N*H, S)
  for row in s*share .. min(N*H, (s + 1)*share) {
    let n = row / H, h = row % H
    for w < ceildiv(W, BW) {
      g = dY[n, h, w*BW +: BW, c*BC +: BC]
      parallel q < 9, j < BC {
        f[q, j] += sum[i < BW](g[i, j] * X[n, h + q / 3 - 1, w*BW + i + q % 3 - 1, c*BC + j])
      }
    }
  }
  part[s, :, c*BC +: BC] = f
}

kernel join(part: f32[S, 9, C], F: out f32[9, C])
key bucket(S), C
tune BC = 32 | 64, threads = 128 | 256
grid q < 9, c < ceildiv(C, BC)
{
  fragment p: f32[16, BC], acc: f32[BC] = 0
  for s < ceildiv(S, 16) {
    p = part[s*16 +: 16, q, c*BC +: BC]
    parallel j < BC { acc[j] += sum[i < 16](p[i, j]) }
  }
  F[q, c*BC +: BC] = acc
}

program depthwise_weight<T: f16 | bf16>(X: T[N, H, W, C], dY: T[N, H, W, C], dF: out f32[9, C])
key bucket(N), H, W, C
tune S = 128 | 64 | 256 | 512
{
  temp part: f32[S, 9, C]
  taps(X, dY, part)
  join(part, dF)
}
"""


def depthwise_weight(t, d):
    x, g = t.X.permute(0, 3, 1, 2), t.dY.permute(0, 3, 1, 2)
    w = torch.nn.grad.conv2d_weight(x, (d["C"], 1, 3, 3), g, padding=1, groups=d["C"])
    return up(w).view(d["C"], 9).T


def depthwise_reference(t, d):
    x = F.pad(t.X, (0, 0, 1, 1, 1, 1))
    return torch.stack([(x[:, r:r + d["H"], s:s + d["W"]] * t.dY).sum((0, 1, 2)) for r in range(3) for s in range(3)])


def depthwise_sums(t, d):
    return depthwise_reference(t, d)


# ---- attention ------------------------------------------------------------------------------------------------------
SOFTCAP = """tile 1
# Causal attention whose scores are cap * tanh(scale * q k / cap), with grouped heads.
kernel dots<T: f16 | bf16>(O: T[B, S, H, D], dO: T[B, S, H, D], delta: out f32[B, H, S])
key bucket(S), H, D
tune rows = 8 | 16 | 32, threads = 128 | 256
grid s < ceildiv(S, rows), h < H, b < B
{
  fragment o: f32[rows, D], g: f32[rows, D], x: f32[rows]
  o = O[b, s*rows +: rows, h, :]
  g = dO[b, s*rows +: rows, h, :]
  parallel i < rows { x[i] = sum[d < D](o[i, d] * g[i, d]) }
  delta[b, h, s*rows +: rows] = x
}

kernel queries<T: f16 | bf16>(Q: T[B, S, H, D], K: T[B, S, G, D], V: T[B, S, G, D], dO: T[B, S, H, D], lse: f32[B, H, S], delta: f32[B, H, S],
                              dQ: out T[B, S, H, D], scale: f32, cap: f32)
where H % G == 0
key bucket(S), H, D
tune BM = 128 | 64, BN = 64 | 128 | 32, stages = 2 | 3
grid s < ceildiv(S, BM), h < H, b < B
{
  shared   q: T[BM, D], g: T[BM, D], k: T[BN, D], v: T[BN, D]
  fragment x: f32[BM, BN], y: f32[BM, BN], z: T[BM, BN], acc: f32[BM, D] = 0
  let u = h / (H / G)
  q = Q[b, s*BM +: BM, h, :]
  g = dO[b, s*BM +: BM, h, :]
  pipelined n < ceildiv(min(S, (s + 1)*BM), BN), stages {
    k = K[b, n*BN +: BN, u, :]
    v = V[b, n*BN +: BN, u, :]
    x = q @ k^T
    y = g @ v^T
    parallel i < BM, j < BN {
      let row = s*BM + i, t = tanh(x[i, j] * (scale / cap))
      let p = n*BN + j <= row ? exp2((cap * t - lse[b, h, row]) * log2e) : 0
      z[i, j] = p * (y[i, j] - delta[b, h, row]) * (1 - t * t)
    }
    acc += z @ k
  }
  parallel i < BM, d < D { acc[i, d] *= scale }
  dQ[b, s*BM +: BM, h, :] = acc
}

kernel keys<T: f16 | bf16>(Q: T[B, S, H, D], K: T[B, S, G, D], V: T[B, S, G, D], dO: T[B, S, H, D], lse: f32[B, H, S], delta: f32[B, H, S],
                           dK: out T[B, S, G, D], dV: out T[B, S, G, D], scale: f32, cap: f32)
where H % G == 0
key bucket(S), H, G, D
tune BN = 128 | 64, BM = 64 | 32 | 128, stages = 2 | 3
grid n < ceildiv(S, BN), u < G, b < B
{
  shared   k: T[BN, D], v: T[BN, D], q: T[BM, D], g: T[BM, D]
  fragment x: f32[BN, BM], y: f32[BN, BM], p: T[BN, BM], z: T[BN, BM], dk: f32[BN, D] = 0, dv: f32[BN, D] = 0
  k = K[b, n*BN +: BN, u, :]
  v = V[b, n*BN +: BN, u, :]
  let first = n*BN / BM
  let steps = ceildiv(S, BM) - first
  pipelined e < steps * (H / G), stages {
    let h = u * (H / G) + e / steps, m = first + e % steps
    q = Q[b, m*BM +: BM, h, :]
    g = dO[b, m*BM +: BM, h, :]
    x = k @ q^T
    y = v @ g^T
    parallel i < BN, j < BM {
      let row = m*BM + j, t = tanh(x[i, j] * (scale / cap))
      let w = n*BN + i <= row ? exp2((cap * t - lse[b, h, row]) * log2e) : 0
      p[i, j] = w
      z[i, j] = w * (y[i, j] - delta[b, h, row]) * (1 - t * t)
    }
    dv += p @ g
    dk += z @ q
  }
  parallel i < BN, d < D { dk[i, d] *= scale }
  dK[b, n*BN +: BN, u, :] = dk
  dV[b, n*BN +: BN, u, :] = dv
}

program softcap_backward<T: f16 | bf16>(Q: T[B, S, H, D], K: T[B, S, G, D], V: T[B, S, G, D], dO: T[B, S, H, D], O: T[B, S, H, D], lse: f32[B, H, S],
                                        dQ: out T[B, S, H, D], dK: out T[B, S, G, D], dV: out T[B, S, G, D], scale: f32, cap: f32)
where H % G == 0
key bucket(S), H, G, D
{
  temp delta: f32[B, H, S]
  dots(O, dO, delta)
  queries(Q, K, V, dO, lse, delta, dQ, scale, cap)
  keys(Q, K, V, dO, lse, delta, dK, dV, scale, cap)
}
"""
CAP = 30.0


def softcap_forward(t, d):
    """scores' tanh, probabilities; b h s s"""
    rep = d["H"] // d["G"]
    k = t.K.repeat_interleave(rep, 2)
    s = torch.tanh(torch.einsum("bqhd,bkhd->bhqk", t.Q, k) * (d["D"] ** -0.5 / CAP))
    mask = torch.ones(d["S"], d["S"], dtype=torch.bool, device=s.device).tril()
    return s, (up(s) * CAP).masked_fill(~mask, float("-inf"))


def softcap_o(shape, t, d):
    _, x = softcap_forward(t, d)
    p = torch.softmax(x, -1).to(t.Q.dtype)
    return torch.einsum("bhqk,bkhd->bqhd", p, t.V.repeat_interleave(d["H"] // d["G"], 2))


def softcap_lse(shape, t, d):
    return torch.logsumexp(softcap_forward(t, d)[1], -1).float()


def softcap_backward(t, d):
    rep = d["H"] // d["G"]
    b, n, h, g = (d[k] for k in "BSHG")
    s, x = softcap_forward(t, d)
    p = torch.exp(x - t.lse[..., None])
    dp = torch.einsum("bqhd,bkhd->bhqk", t.dO, t.V.repeat_interleave(rep, 2))
    delta = (up(t.dO) * up(t.O)).sum(-1).transpose(1, 2)
    ds = (p * (dp - delta[..., None]) * (1 - up(s) ** 2) * d["D"] ** -0.5).to(t.Q.dtype)
    dq = torch.einsum("bhqk,bkhd->bqhd", ds, t.K.repeat_interleave(rep, 2))
    dk = torch.einsum("bhqk,bqhd->bkhd", ds, t.Q).view(b, n, g, rep, -1).sum(3)
    dv = torch.einsum("bhqk,bqhd->bkhd", p.to(t.Q.dtype), t.dO).view(b, n, g, rep, -1).sum(3)
    return dq, dk, dv


def graph_of(t, d, forward):
    if not hasattr(t, "graph"):
        q, k, v = (x.detach().transpose(1, 2).contiguous().requires_grad_() for x in (t.Q, t.K, t.V))
        t.graph = (forward(q, k, v), (q, k, v), t.dO.transpose(1, 2).contiguous())
    out, inputs, grad = t.graph
    return torch.autograd.grad(out, inputs, grad, retain_graph=True)


FLEX = {}


def softcap_flex(t, d):
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention
    if "flex" not in FLEX:
        FLEX["flex"] = torch.compile(flex_attention, dynamic=False)
    mask = create_block_mask(lambda b, h, q, k: q >= k, None, None, d["S"], d["S"], device=t.Q.device) if not hasattr(t, "graph") else None
    return graph_of(t, d, lambda q, k, v: FLEX["flex"](q, k, v, score_mod=lambda s, b, h, i, j: CAP * torch.tanh(s / CAP), block_mask=mask,
                                                       enable_gqa=True))


def plain_sdpa(t, d):
    """without the cap: what a library's kernel takes for a simpler function"""
    rep = d["H"] // d["G"]
    return graph_of_plain(t, d, rep)


def graph_of_plain(t, d, rep):
    if not hasattr(t, "plain_graph"):
        q, k, v = (x.detach().transpose(1, 2).contiguous() for x in (t.Q, t.K, t.V))
        q, k, v = q.requires_grad_(), k.repeat_interleave(rep, 1).requires_grad_(), v.repeat_interleave(rep, 1).requires_grad_()
        t.plain_graph = (F.scaled_dot_product_attention(q, k, v, is_causal=True), (q, k, v), t.dO.transpose(1, 2).contiguous())
    out, inputs, grad = t.plain_graph
    return torch.autograd.grad(out, inputs, grad, retain_graph=True)


# ---- optimisers -----------------------------------------------------------------------------------------------------
ADAM = """tile 1
# AdamW on f32 master weights, with the weights of 16 bits written beside them.
kernel adamw<T: f16 | bf16>(P: inout f32[N], G: T[N], M: inout f32[N], V: inout f32[N], W: out T[N],
                            lr: f32, b1: f32, b2: f32, eps: f32, decay: f32, c1: f32, c2: f32)
key bucket(N)
tune BN = 512 | 1024 | 2048 | 4096, threads = 128 | 256 | 512
grid n < ceildiv(N, BN)
{
  fragment p: f32[BN], g: f32[BN], m: f32[BN], v: f32[BN]
  p = P[n*BN +: BN]
  g = G[n*BN +: BN]
  m = M[n*BN +: BN]
  v = V[n*BN +: BN]
  parallel i < BN {
    m[i] = b1 * m[i] + (1 - b1) * g[i]
    v[i] = b2 * v[i] + (1 - b2) * g[i] * g[i]
    p[i] = p[i] * (1 - lr * decay) - lr * (m[i] / c1) / (sqrt(v[i] / c2) + eps)
  }
  P[n*BN +: BN] = p
  M[n*BN +: BN] = m
  V[n*BN +: BN] = v
  W[n*BN +: BN] = p
}
"""
LR, B1, B2, EPS, DECAY, C1, C2 = 1e-3, 0.9, 0.95, 1e-8, 0.1, 0.4, 0.2


def adamw(t, d):
    g = up(t.G) if t.G.dtype != torch.float64 else t.G
    m = B1 * t.M + (1 - B1) * g
    v = B2 * t.V + (1 - B2) * g * g
    p = t.P * (1 - LR * DECAY) - LR * (m / C1) / (torch.sqrt(v / C2) + EPS)
    return p, m, v, p.to(t.G.dtype)


def adamw_in_place(t, d):
    p, m, v, w = adamw(t, d)
    t.P.copy_(p)
    t.M.copy_(m)
    t.V.copy_(v)
    t.W.copy_(w)


ADAM_IN_PLACE = {}


def adamw_compiled(t, d):
    if "f" not in ADAM_IN_PLACE:
        ADAM_IN_PLACE["f"] = torch.compile(adamw_in_place, dynamic=False)
    ADAM_IN_PLACE["f"](t, d)


def adamw_fused(t, d):
    """torch's own: gradients of f32, no copy in 16 bits"""
    if not hasattr(t, "G32"):
        t.G32, t.step = t.G.float(), torch.tensor(5.0, device=t.G.device)
    torch._fused_adamw_([t.P], [t.G32], [t.M], [t.V], [], [t.step], lr=LR, beta1=B1, beta2=B2, weight_decay=DECAY, eps=EPS,
                        amsgrad=False, maximize=False)


LION = """tile 1
kernel lion<T: f16 | bf16>(P: inout f32[N], G: T[N], M: inout T[N], lr: f32, b1: f32, b2: f32, decay: f32)
key bucket(N)
tune BN = 512 | 1024 | 2048 | 4096, threads = 128 | 256 | 512
grid n < ceildiv(N, BN)
{
  fragment p: f32[BN], g: f32[BN], m: f32[BN]
  p = P[n*BN +: BN]
  g = G[n*BN +: BN]
  m = M[n*BN +: BN]
  parallel i < BN {
    let c = b1 * m[i] + (1 - b1) * g[i]
    p[i] = p[i] * (1 - lr * decay) - (c > 0 ? lr : c < 0 ? -lr : 0)
    m[i] = b2 * m[i] + (1 - b2) * g[i]
  }
  P[n*BN +: BN] = p
  M[n*BN +: BN] = m
}
"""


def lion(t, d):
    g, m = up(t.G), up(t.M)
    c = 0.9 * m + (1 - 0.9) * g
    return t.P * (1 - 1e-4 * DECAY) - 1e-4 * torch.sign(c), (0.99 * m + (1 - 0.99) * g).to(t.M.dtype)


ADAFACTOR = """tile 1
# Second moments as a row and a column; updates are clipped by their root mean square.
kernel squares<T: f16 | bf16>(G: T[R, C], row: inout f32[R], part: out f32[S, C], b2: f32)
key bucket(R), C, S
tune rows = 1 | 2 | 4, threads = 128 | 256 | 512
grid s < S
{
  fragment g: f32[rows, C], total: f32[C] = 0, old: f32[rows]
  let share = ceildiv(ceildiv(R, S), 4) * 4
  for k < share / rows {
    let r = s*share + k*rows
    g = G[r +: rows, :]
    old = row[r +: rows]
    parallel i < rows, c < C { g[i, c] = r + i < R ? g[i, c] * g[i, c] + 1e-30 : 0 }
    parallel i < rows { old[i] = b2 * old[i] + (1 - b2) * (sum[c < C](g[i, c]) / C) }
    parallel c < C { total[c] += sum[i < rows](g[i, c]) }
    row[r +: rows] = old
  }
  part[s, :] = total
}

kernel columns(part: f32[S, C], column: inout f32[C], rows: i64, b2: f32)
key bucket(S), C
tune BC = 32 | 64, threads = 128 | 256
grid c < ceildiv(C, BC)
{
  fragment p: f32[16, BC], acc: f32[BC] = 0, old: f32[BC]
  for s < ceildiv(S, 16) {
    p = part[s*16 +: 16, c*BC +: BC]
    parallel j < BC { acc[j] += sum[i < 16](p[i, j]) }
  }
  old = column[c*BC +: BC]
  parallel j < BC { old[j] = b2 * old[j] + (1 - b2) * acc[j] / f32(rows) }
  column[c*BC +: BC] = old
}

kernel mean(row: f32[R], M: out f32[1])
key bucket(R)
tune BR = 1024 | 4096, threads = 256 | 512
grid b < 1
{
  fragment x: f32[BR], total: f32[1] = 0
  for r < ceildiv(R, BR) {
    x = row[r*BR +: BR]
    parallel i < 1 { total[i] += sum[j < BR](x[j]) }
  }
  parallel i < 1 { total[i] /= f32(R) }
  M[0 +: 1] = total
}

kernel lengths<T: f16 | bf16>(G: T[R, C], row: f32[R], column: f32[C], M: f32[1], length: out f32[S])
key bucket(R), C, S
tune rows = 1 | 2 | 4, threads = 128 | 256 | 512
grid s < S
{
  fragment g: f32[rows, C], f: f32[C], total: f32[1] = 0
  f = column[:]
  parallel c < C { f[c] = rcp(f[c]) }
  let share = ceildiv(ceildiv(R, S), 4) * 4
  for k < share / rows {
    let r = s*share + k*rows
    g = G[r +: rows, :]
    parallel i < 1 { total[i] += sum[a < rows, c < C](r + a < R ? g[a, c] * g[a, c] * f[c] * M[0] * rcp(row[r + a]) : 0) }
  }
  length[s +: 1] = total
}

kernel update<T: f16 | bf16>(P: inout f32[R, C], G: T[R, C], row: f32[R], column: f32[C], M: f32[1], length: f32[S], lr: f32)
key bucket(R), C, S
tune BR = 1 | 2 | 4, BC = 512 | 1024, threads = 128 | 256
grid r < ceildiv(R, BR), c < ceildiv(C, BC)
{
  fragment p: f32[BR, BC], g: f32[BR, BC]
  let rms = sqrt(sum[s < S](length[s]) / f32(R * C))
  let step = lr / max(1.0, rms)
  p = P[r*BR +: BR, c*BC +: BC]
  g = G[r*BR +: BR, c*BC +: BC]
  parallel i < BR, j < BC {
    p[i, j] -= step * g[i, j] * rsqrt(row[r*BR + i] / M[0]) * rsqrt(column[c*BC + j])
  }
  P[r*BR +: BR, c*BC +: BC] = p
}

program adafactor<T: f16 | bf16>(P: inout f32[R, C], G: T[R, C], row: inout f32[R], column: inout f32[C], lr: f32, b2: f32)
key bucket(R), C
tune S = 264 | 132 | 528
{
  temp part: f32[S, C], M: f32[1], length: f32[S]
  squares(G, row, part, b2)
  columns(part, column, R, b2)
  mean(row, M)
  lengths(G, row, column, M, length)
  update(P, G, row, column, M, length, lr)
}
"""


def adafactor(t, d):
    g = up(t.G)
    g2 = g * g + 1e-30
    row = 0.99 * t.row + 0.01 * g2.mean(1)
    col = 0.99 * t.column + 0.01 * g2.mean(0)
    u = g * torch.rsqrt(row / row.mean())[:, None] * torch.rsqrt(col)
    u = u / torch.clamp_min(torch.sqrt((u * u).mean()), 1.0)
    return t.P - 1e-2 * u, row, col


CLIP = """tile 1
kernel squares<T: f16 | bf16 | f32>(G: T[N], part: out f32[S])
key bucket(N), S
tune BN = 1024 | 2048 | 4096, threads = 128 | 256 | 512
grid s < S
{
  fragment x: f32[BN], total: f32[1] = 0
  let share = ceildiv(ceildiv(N, S), 4096) * 4096
  for n < share / BN {
    x = G[s*share + n*BN +: BN]
    parallel i < 1 { total[i] += sum[j < BN](x[j] * x[j]) }
  }
  part[s +: 1] = total
}

kernel join(part: f32[S], norm: out f32[1])
key S
grid b < 1
{
  fragment x: f32[S], y: f32[1]
  x = part[:]
  parallel i < 1 { y[i] = sqrt(sum[s < S](x[s])) }
  norm[0 +: 1] = y
}

kernel scale<T: f16 | bf16 | f32>(G: T[N], norm: f32[1], Y: out T[N], most: f32)
key bucket(N)
tune BN = 1024 | 2048 | 4096, threads = 128 | 256 | 512
grid n < ceildiv(N, BN)
{
  fragment x: f32[BN]
  let factor = min(most / (norm[0] + 1e-6), 1.0)
  x = G[n*BN +: BN]
  parallel i < BN { x[i] *= factor }
  Y[n*BN +: BN] = x
}

program clip<T: f16 | bf16 | f32>(G: T[N], Y: out T[N], norm: out f32[1], most: f32)
key bucket(N)
tune S = 264 | 528 | 1056
{
  temp part: f32[S]
  squares(G, part)
  join(part, norm)
  scale(G, norm, Y, most)
}
"""


def clip(t, d):
    n = torch.linalg.vector_norm(t.G, dtype=torch.float64 if t.G.dtype == torch.float64 else torch.float32)
    return (t.G * torch.clamp_max(1000.0 / (n + 1e-6), 1.0)).to(t.G.dtype), n[None]


def clip_out(t, d):
    n = torch.linalg.vector_norm(t.G, dtype=torch.float32)
    return torch.mul(t.G, torch.clamp_max(1000.0 / (n + 1e-6), 1.0), out=t.Y), n


def rstd_fill(shape, t, d):
    return torch.rsqrt(t.X.float().square().mean(-1) + 1e-5)


def ln_mean(shape, t, d):
    return t.X.float().mean(-1)


def ln_rstd(shape, t, d):
    return torch.rsqrt(t.X.float().var(-1, correction=0) + 1e-5)


def angles(which):
    def fill(shape, t, d):
        w = 10000.0 ** (-torch.arange(d["half"], dtype=torch.float64) / d["half"])
        a = torch.arange(d["L"], dtype=torch.float64)[:, None] * w
        return (a.cos() if which == "cos" else a.sin()).float().to(t.dY.device)
    return fill


def places(of):
    return lambda shape, t, d: torch.randint(0, d[of], shape, device=t.dY.device, dtype=torch.int32)


def rand(low, of="P"):
    return lambda shape, t, d: torch.rand(shape, device=getattr(t, of).device) + low


NORMS = {"large": dict(N=8192, D=4096), "odd": dict(N=5003, D=3001), "small": dict(N=5, D=24)}
FFN = {"large": dict(M=8192, N=8192, K=2048), "odd": dict(M=3011, N=2777, K=1543), "small": dict(M=9, N=17, K=11)}
GN = {"large": dict(N=16, C=320, P=4096, G=32), "odd": dict(N=7, C=385, P=2999, G=35), "small": dict(N=2, C=6, P=35, G=3)}

CASES = [
    Case("xent_smoothing_backward", XENT,
         {"large": dict(N=4096, V=32000), "large128k": dict(N=2048, V=128256), "odd": dict(N=3001, V=50257), "small": dict(N=9, V=37)},
         xent, types=BF, fills={"target": targets, "smoothing": number(0.1), "scale": number(0.5)}),
    Case("rmsnorm_backward", RMS, NORMS, rms_backward, kernel="rms_backward", types=BF, fills={"rstd": rstd_fill}, tolerance=1e-2,
         peers={"native": lambda t, d: torch.ops.aten._fused_rms_norm_backward(t.dY, t.X, [d["D"]], t.rstd[:, None], t.W, [True, True])}),
    Case("layernorm_backward", LAYER, NORMS, layer_native, reference=layer_formula, kernel="layer_backward", types=BF,
         fills={"mean": ln_mean, "rstd": ln_rstd}, tolerance=1e-2, peers={"formula": layer_formula}),
    Case("groupnorm_backward", GROUP,
         GN, group_native, reference=group_formula, kernel="group_backward", types=HF, tolerance=1e-2,
         fills={"mean": group_stat("mean"), "rstd": group_stat("rstd")}),
    Case("gelu_backward_product", GELU_INTO, FFN, gelu_into, types=BF, fills={"H": normal(1.0, "dY")}),
    Case("product_gelu_backward", GELU_AFTER, FFN, gelu_after, types=BF, fills={"H": normal(1.0, "dY")}),
    Case("gelu_backward_weight", GELU_WEIGHT, {"large": dict(M=16384, N=4096, K=1024), "odd": dict(M=9973, N=1999, K=1537), "small": dict(M=19, N=7, K=9)},
         gelu_weight, types=BF, fills={"H": normal(1.0, "dY")}, tolerance=1e-2),
    Case("bias_gelu_backward", BIAS_GELU, {"large": dict(M=8192, D=4096), "odd": dict(M=5003, D=3001), "small": dict(M=9, D=17)},
         bias_gelu, kernel="bias_gelu_backward", types=BF, tolerance=1e-2),
    Case("swiglu_backward", SWIGLU, {"large": dict(N=8192, D=5632), "odd": dict(N=4999, D=3001), "small": dict(N=5, D=17)}, swiglu, types=BF),
    Case("rope_backward_pairs", ROPE,
         {"large": dict(N=16384, H=32, D=128, half=64, L=4096), "odd": dict(N=9001, H=27, D=90, half=45, L=3001),
          "small": dict(N=3, H=3, D=6, half=3, L=11)},
         rope_backward, types=BF, peers={"complex": rope_complex},
         fills={"at": places("L"), "cosine": angles("cos"), "sine": angles("sin")}),
    Case("embedding_backward", EMBEDDING,
         {"large": dict(N=16384, V=32000, D=2048), "odd": dict(N=9001, V=20011, D=1537), "small": dict(N=11, V=5, D=9)},
         embedding, kernel="embedding_backward", types=BF, fills={"at": places("V")}, tolerance=1e-4,
         peers={"native": lambda t, d: torch.ops.aten.embedding_dense_backward(t.dY, t.at, d["V"], -1, False)}),
    Case("depthwise_weight_grad", DEPTHWISE,
         {"large": dict(N=32, H=56, W=56, C=256), "odd": dict(N=13, H=53, W=47, C=333), "small": dict(N=2, H=3, W=5, C=7)},
         depthwise_weight, reference=depthwise_reference, kernel="depthwise_weight", types=HF, tolerance=1e-3, compiled=False,
         peers={"sums": depthwise_sums}),
    Case("softcap_attention_backward", SOFTCAP,
         {"large": dict(B=1, S=4096, H=16, G=8, D=128), "odd": dict(B=1, S=2999, H=9, G=3, D=88), "small": dict(B=1, S=7, H=4, G=2, D=8)},
         softcap_backward, kernel="softcap_backward", types=BF, tolerance=2e-2,
         fills={"O": softcap_o, "lse": softcap_lse, "scale": lambda shape, t, d: d["D"] ** -0.5, "cap": number(CAP),
                "K": normal(2.0, "Q"), "V": normal(1.0, "Q"), "dO": normal(1.0, "Q")},
         peers={"flex": softcap_flex, "sdpa_without_cap": plain_sdpa}),
    Case("adamw_master", ADAM, {"large": dict(N=100_000_000), "odd": dict(N=33_333_331), "small": dict(N=1001)}, adamw, types=BF,
         fills={"M": normal32(0.1, "G"), "V": rand(0.0), "lr": number(LR), "b1": number(B1), "b2": number(B2), "eps": number(EPS),
                "decay": number(DECAY), "c1": number(C1), "c2": number(C2)},
         peers={"in place": adamw_in_place, "compiled in place": adamw_compiled, "fused f32": adamw_fused}),
    Case("lion", LION, {"large": dict(N=100_000_000), "odd": dict(N=33_333_331), "small": dict(N=1001)}, lion, types=BF, tolerance=1e-2,
         fills={"lr": number(1e-4), "b1": number(0.9), "b2": number(0.99), "decay": number(DECAY)}),
    Case("adafactor", ADAFACTOR, {"large": dict(R=8192, C=4096), "odd": dict(R=5003, C=3001), "small": dict(R=7, C=13)}, adafactor,
         kernel="adafactor", types=BF, tolerance=1e-4,
         fills={"row": rand(0.5), "column": rand(0.5), "lr": number(1e-2), "b2": number(0.99)}),
    Case("clip_global_norm", CLIP, {"large": dict(N=200_000_000), "odd": dict(N=66_666_667), "small": dict(N=10_007)}, clip, kernel="clip",
         types=BF, fills={"most": number(1000.0)}, tolerance=1e-2, peers={"out": clip_out}),
]
