"""Gradients in front of products, behind them and of what gates them."""
import math

import torch
from sets.shared.gradients import BF, COLUMNS, normal, up
from unseen import Case


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


WEIGHT_BIAS = """tile 1
kernel wgrad_bias<T: f16 | bf16>(dY: T[tokens, N], X: T[tokens, K], dW: out T[N, K], db: out f32[N])
key  bucket(tokens), N, K
tune BM = 128 | 64, BN = 128 | 256, BK = 64 | 32, stages = 3 | 4
grid n < ceildiv(N, BM), c < ceildiv(K, BN)
{
  shared   dy: T[BK, BM], x: T[BK, BN]
  fragment acc: f32[BM, BN] = 0, rows: f32[BM] = 0

  pipelined k < ceildiv(tokens, BK), stages {
    dy = dY[k*BK +: BK, n*BM +: BM]
    x  = X[k*BK +: BK, c*BN +: BN]
    acc += dy^T @ x
    if c == 0 {
      parallel i < BM { rows[i] += sum[j < BK](dy[j, i]) }
    }
  }
  dW[n*BM +: BM, c*BN +: BN] = acc
  if c == 0 { db[n*BM +: BM] = rows }
}
"""


def weight_bias(t, d):
    return t.dY.T @ t.X, t.dY.sum(0, dtype=torch.promote_types(t.dY.dtype, torch.float32))


FFN = {"large": dict(M=8192, N=8192, K=2048), "odd": dict(M=3011, N=2777, K=1543), "small": dict(M=9, N=17, K=11)}

CASES = [
    Case("gelu_backward_product", GELU_INTO, FFN, gelu_into, types=BF, fills={"H": normal(1.0, "dY")}),
    Case("product_gelu_backward", GELU_AFTER, FFN, gelu_after, types=BF, fills={"H": normal(1.0, "dY")}),
    Case("gelu_backward_weight", GELU_WEIGHT, {"large": dict(M=16384, N=4096, K=1024), "odd": dict(M=9973, N=1999, K=1537), "small": dict(M=19, N=7, K=9)},
         gelu_weight, types=BF, fills={"H": normal(1.0, "dY")}, tolerance=1e-2),
    Case("bias_gelu_backward", BIAS_GELU, {"large": dict(M=8192, D=4096), "odd": dict(M=5003, D=3001), "small": dict(M=9, D=17)},
         bias_gelu, kernel="bias_gelu_backward", types=BF, tolerance=1e-2),
    Case("weight_bias_gradients", WEIGHT_BIAS, {"large": dict(tokens=65536, N=2048, K=1024), "odd": dict(tokens=30011, N=1237, K=1001), "small": dict(tokens=77, N=70, K=150)},
         weight_bias, types=BF),
    Case("swiglu_backward", SWIGLU, {"large": dict(N=8192, D=5632), "odd": dict(N=4999, D=3001), "small": dict(N=5, D=17)}, swiglu, types=BF),
]
