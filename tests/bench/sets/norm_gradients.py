"""Gradients of norms and of cross entropy."""
import torch
from sets.shared.gradients import BF, COLUMNS, HF, number, up
from unseen import Case


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


def rstd_fill(shape, t, d):
    return torch.rsqrt(t.X.float().square().mean(-1) + 1e-5)


def ln_mean(shape, t, d):
    return t.X.float().mean(-1)


def ln_rstd(shape, t, d):
    return torch.rsqrt(t.X.float().var(-1, correction=0) + 1e-5)


NORMS = {"large": dict(N=8192, D=4096), "odd": dict(N=5003, D=3001), "small": dict(N=5, D=24)}
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
]
