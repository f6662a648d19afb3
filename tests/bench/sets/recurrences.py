"""Recurrent layers and scans."""
import math

import torch
from sets.shared.solvers import HF, device, sizes, up
from unseen import Case


# ---- recurrent networks ---------------------------------------------------------------------------------------------
PRODUCT = """
kernel gates<T: f16 | bf16>(X: T[L, B, I], W: T[E, I], bias: T[E], GX: out T[L, B, E])
key bucket(L), bucket(B), I, E
tune BM = 64 | 128, BN = 64 | 128 | 256, BK = 32 | 64, stages = 2 | 3
grid l < L, m < ceildiv(B, BM), n < ceildiv(E, BN)
{
  shared   x: T[BM, BK], w: T[BN, BK]
  fragment acc: f32[BM, BN] = 0
  pipelined k < ceildiv(I, BK), stages {
    x = X[l, m*BM +: BM, k*BK +: BK]
    w = W[n*BN +: BN, k*BK +: BK]
    acc += x @ w^T
  }
  parallel i < BM, j < BN { acc[i, j] += bias[n*BN + j] }
  GX[l, m*BM +: BM, n*BN +: BN] = acc
}
"""

LSTM = """tile 1
# Recurrent weights stay in the block's memory, states in registers.
kernel steps<T: f16 | bf16>(GX: T[L, B, E], W: T[E, H], Y: out T[L, B, H], last: out f32[B, H])
where E == 4 * H
key bucket(B), H
tune BB = 8 | 16 | 32, threads = 128 | 256 | 512
grid b < ceildiv(B, BB)
{
  shared   wi: T[H, H], wf: T[H, H], wg: T[H, H], wo: T[H, H], h: T[BB, H]
  fragment i: f32[BB, H], f: f32[BB, H], g: f32[BB, H], o: f32[BB, H], c: f32[BB, H] = 0
  wi = W[0 +: H, :]
  wf = W[H +: H, :]
  wg = W[2*H +: H, :]
  wo = W[3*H +: H, :]
  h = 0
  for t < L {
    i = h @ wi^T
    f = h @ wf^T
    g = h @ wg^T
    o = h @ wo^T
    parallel s < BB, j < H {
      let r = b*BB + s
      let xi = rcp(1 + exp(-(i[s, j] + GX[t, r, j]))), xf = rcp(1 + exp(-(f[s, j] + GX[t, r, H + j])))
      let xo = rcp(1 + exp(-(o[s, j] + GX[t, r, 3*H + j])))
      c[s, j] = xf * c[s, j] + xi * tanh(g[s, j] + GX[t, r, 2*H + j])
      h[s, j] = xo * tanh(c[s, j])
    }
    Y[t, b*BB +: BB, :] = h
  }
  last[b*BB +: BB, :] = c
}
""" + PRODUCT + """
program lstm<T: f16 | bf16>(X: T[L, B, I], V: T[E, I], W: T[E, H], bias: T[E], Y: out T[L, B, H], last: out f32[B, H])
where E == 4 * H
key bucket(L), bucket(B), I, H
{
  temp GX: T[L, B, E]
  gates(X, V, bias, GX)
  steps(GX, W, Y, last)
}
"""

GRU = """tile 1
kernel steps<T: f16 | bf16>(GX: T[L, B, E], W: T[E, H], hidden: T[E], Y: out T[L, B, H])
where E == 3 * H
key bucket(B), H
tune BB = 8 | 16 | 32, stages = 1 | 2 | 3, threads = 128 | 256
grid b < ceildiv(B, BB)
{
  shared   wr: T[H, H], wz: T[H, H], wn: T[H, H], h: T[BB, H], x: T[BB, 3*H]
  fragment r: f32[BB, H], z: f32[BB, H], n: f32[BB, H], s: f32[BB, H] = 0
  wr = W[0 +: H, :]
  wz = W[H +: H, :]
  wn = W[2*H +: H, :]
  h = 0
  pipelined t < L, stages {
    x = GX[t, b*BB +: BB, :]
    r = h @ wr^T
    z = h @ wz^T
    n = h @ wn^T
    parallel i < BB, j < H {
      let a = rcp(1 + exp(-(r[i, j] + x[i, j] + hidden[j]))), u = rcp(1 + exp(-(z[i, j] + x[i, H + j] + hidden[H + j])))
      let v = tanh(x[i, 2*H + j] + a * (n[i, j] + hidden[2*H + j]))
      s[i, j] = v + u * (s[i, j] - v)
      h[i, j] = s[i, j]
    }
    Y[t, b*BB +: BB, :] = h
  }
}
""" + PRODUCT + """
program gru<T: f16 | bf16>(X: T[L, B, I], V: T[E, I], W: T[E, H], bias: T[E], hidden: T[E], Y: out T[L, B, H])
where E == 3 * H
key bucket(L), bucket(B), I, H
{
  temp GX: T[L, B, E]
  gates(X, V, bias, GX)
  steps(GX, W, hidden, Y)
}
"""


def lstm(t, d):
    zero = t.X.new_zeros(1, d["B"], d["H"])
    y, _, c = torch._VF.lstm(t.X, (zero, zero), [t.V, t.W, t.bias, torch.zeros_like(t.bias)], True, 1, 0.0, False, False, False)
    return y, c[0]


def gru(t, d):
    zero = t.X.new_zeros(1, d["B"], d["H"])
    return torch._VF.gru(t.X, zero, [t.V, t.W, t.bias, t.hidden], True, 1, 0.0, False, False, False)[0]


def weights(shape, t, d):
    return (torch.randn(shape, device=t.X.device) / math.sqrt(shape[-1])).to(t.X.dtype)


# ---- scans ----------------------------------------------------------------------------------------------------------
SCAN_ROWS = """tile 1
kernel scan_rows<T: f32 | f16 | bf16>(X: T[R, N], Y: out f32[R, N], M: out T[R, N])
key bucket(R), bucket(N)
tune rows = 1 | 2 | 4, BN = 512 | 1024 | 2048 | 4096, threads = 128 | 256 | 512
where rows * BN <= 4096
grid r < ceildiv(R, rows)
{
  fragment x: f32[rows, BN], y: f32[rows, BN], total: f32[rows] = 0, most: f32[rows] = -inf
  for n < ceildiv(N, BN) {
    x = X[r*rows +: rows, n*BN +: BN]
    parallel i < rows, j < BN { y[i, j] = total[i] + sum[k <= j](x[i, k]) }
    Y[r*rows +: rows, n*BN +: BN] = y
    parallel i < rows, j < BN { y[i, j] = max(most[i], max[k <= j](x[i, k])) }
    M[r*rows +: rows, n*BN +: BN] = y
    parallel i < rows {
      total[i] += sum[j < BN](x[i, j])
      most[i] = max(most[i], max[j < BN](n*BN + j < N ? x[i, j] : -inf))
    }
  }
}
"""

SCAN_COLUMNS = """tile 1
kernel scan_columns<T: f32 | f16 | bf16>(X: T[N, D], Y: out f32[N, D])
key bucket(N), D
tune BN = 16 | 32 | 64 | 128, BD = 16 | 32 | 64, threads = 64 | 128 | 256
where BN * BD <= 4096
grid d < ceildiv(D, BD)
{
  fragment x: f32[BN, BD], y: f32[BN, BD], total: f32[BD] = 0
  for n < ceildiv(N, BN) {
    x = X[n*BN +: BN, d*BD +: BD]
    parallel i < BN, j < BD { y[i, j] = total[j] + sum[k <= i](x[k, j]) }
    parallel j < BD { total[j] += sum[i < BN](x[i, j]) }
    Y[n*BN +: BN, d*BD +: BD] = y
  }
}
"""

CUMPROD = """tile 1
# Products have no scan of their own: steps of doubling length.
kernel cumprod(X: f32[R, N], Y: out f32[R, N])
key bucket(R), bucket(N)
tune rows = 1 | 2 | 4, BN = 512 | 1024 | 2048, threads = 128 | 256
where rows * BN <= 4096
grid r < ceildiv(R, rows)
{
  fragment x: f32[rows, BN], total: f32[rows] = 1
  for n < ceildiv(N, BN) {
    x = X[r*rows +: rows, n*BN +: BN] pad 1
    for s < 11 {
      let h = 1 << s
      if h < BN {
        parallel i < rows, j < BN { x[i, j] *= j >= h ? x[i, j - h] : 1 }
      }
    }
    parallel i < rows, j < BN { x[i, j] *= total[i] }
    Y[r*rows +: rows, n*BN +: BN] = x
    parallel i < rows { total[i] = x[i, BN - 1] }
  }
}
"""

CUMSUM_LONG = """tile 1
# One long vector: sums of parts, where each part begins, parts.
kernel sums<T: f32 | f16>(X: T[N], part: out f32[S])
key bucket(N), S
tune BN = 1024 | 2048 | 4096, threads = 128 | 256 | 512
grid s < S
{
  fragment x: f32[BN], total: f32[1] = 0
  let share = ceildiv(ceildiv(N, S), 4096) * 4096
  for n < share / BN {
    x = X[s*share + n*BN +: BN]
    parallel i < 1 { total[i] += sum[j < BN](x[j]) }
  }
  part[s +: 1] = total
}

kernel starts(part: f32[S], start: out f32[S])
key S
grid b < 1
{
  fragment x: f32[S], y: f32[S]
  x = part[:]
  parallel j < S { y[j] = sum[k < j](x[k]) }
  start[:] = y
}

kernel parts<T: f32 | f16>(X: T[N], start: f32[S], Y: out f32[N])
key bucket(N), S
tune BN = 1024 | 2048 | 4096, threads = 128 | 256 | 512
grid s < S
{
  fragment x: f32[BN], y: f32[BN], total: f32[1]
  let share = ceildiv(ceildiv(N, S), 4096) * 4096
  total = start[s +: 1]
  for n < share / BN {
    x = X[s*share + n*BN +: BN]
    parallel j < BN { y[j] = total[0] + sum[k <= j](x[k]) }
    parallel i < 1 { total[i] += sum[j < BN](x[j]) }
    Y[s*share + n*BN +: BN] = y
  }
}

program cumsum_long<T: f32 | f16>(X: T[N], Y: out f32[N])
key bucket(N)
tune S = 1024 | 512 | 2048 | 4096
{
  temp part: f32[S], start: f32[S]
  sums(X, part)
  starts(part, start)
  parts(X, start, Y)
}
"""
RNN = sizes(dict(L=256, B=1024, I=128, H=128), dict(L=199, B=1013, I=120, H=104), dict(L=5, B=3, I=8, H=8))


def rnn(gates):
    return {k: dict(v, E=gates * v["H"]) for k, v in RNN.items()}

CASES = [
    Case("lstm", LSTM, rnn(4), lstm, kernel="lstm", types=HF, tolerance=3e-3, compiled=False,
         fills={"V": weights, "W": weights}),
    Case("gru", GRU, rnn(3), gru, kernel="gru", types=HF, tolerance=3e-3, compiled=False, fills={"V": weights, "W": weights}),
    Case("scan_rows", SCAN_ROWS, sizes(dict(R=4096, N=8192), dict(R=2003, N=9001), dict(R=3, N=37)),
         lambda t, d: (up(t.X).cumsum(1), t.X.cummax(1).values), types=HF, tolerance=1e-3),
    Case("scan_columns", SCAN_COLUMNS, sizes(dict(N=8192, D=4096), dict(N=5003, D=3001), dict(N=37, D=11)),
         lambda t, d: up(t.X).cumsum(0), types=HF, tolerance=1e-4),
    Case("cumprod_rows", CUMPROD, sizes(dict(R=8192, N=4096), dict(R=5003, N=3001), dict(R=3, N=37)), lambda t, d: t.X.cumprod(1), tolerance=1e-4,
         fills={"X": lambda shape, t, d: 1 + (torch.rand(shape, device=device()) - 0.5) * 0.02}),
    Case("cumsum_long", CUMSUM_LONG, sizes(dict(N=1 << 26), dict(N=33_333_331), dict(N=9973)), lambda t, d: up(t.X).cumsum(0), kernel="cumsum_long",
         types={"T": "f32"}, tolerance=1e-4),
]
