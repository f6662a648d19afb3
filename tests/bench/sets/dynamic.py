"""Dynamic programming, filters, neighbours."""
import torch
import torch.nn.functional as F
from sets.shared.solvers import HF, device, sizes, up
from unseen import Case


def number(value):
    return lambda shape, t, d: value


# ---- dynamic programming --------------------------------------------------------------------------------------------
VITERBI = """tile 1
kernel forward(E: f32[B, L, S], A: f32[S, S], back: out i32[B, L, S], score: out f32[B], last: out i32[B])
key bucket(B), S
tune threads = 64 | 128 | 256 | 512
grid b < B
{
  shared   a: f32[S, S]
  fragment v: f32[S], w: f32[S], at: i32[S], best: f32[1], place: i32[1]
  a = A[:, :]
  v = E[b, 0, :]
  for t in 1 .. L {
    parallel j < S {
      w[j] = E[b, t, j] + max[i < S](v[i] + a[i, j])
      at[j] = argmax[i < S](v[i] + a[i, j])
    }
    back[b, t, :] = at
    v = w
  }
  parallel i < 1 {
    best[i] = max[j < S](v[j])
    place[i] = argmax[j < S](v[j])
  }
  score[b +: 1] = best
  last[b +: 1] = place
}

kernel backward(back: i32[B, L, S], last: i32[B], path: out i32[B, L])
key bucket(B), S
tune BB = 1 | 4 | 8 | 32, threads = 32
grid b < ceildiv(B, BB)
{
  fragment s: i32[BB]
  s = last[b*BB +: BB]
  for q < L {
    let t = L - 1 - q
    path[b*BB +: BB, t] = s
    parallel i < BB { s[i] = t > 0 ? back[b*BB + i, t, s[i]] : 0 }
  }
}

program viterbi(E: f32[B, L, S], A: f32[S, S], score: out f32[B], path: out i32[B, L])
key bucket(B), bucket(L), S
{
  temp back: i32[B, L, S], last: i32[B]
  forward(E, A, back, score, last)
  backward(back, last, path)
}
"""


def viterbi(t, d):
    v, back = t.E[:, 0], []
    for k in range(1, d["L"]):
        v, at = (v[:, :, None] + t.A).max(1)
        v = v + t.E[:, k]
        back.append(at)
    score, s = v.max(1)
    path = [s]
    for at in reversed(back):
        s = at.gather(1, s[:, None])[:, 0]
        path.append(s)
    return score, torch.stack(path[::-1], 1).int()


def grid_values(scale):
    """sums of these are exact in f32"""
    return lambda shape, t, d: torch.randint(-scale, scale + 1, shape, device=device()).float() / scale


SMITH = """tile 1
# Local alignment, one diagonal after another.
kernel smith_waterman(A: u8[B, M], C: u8[B, N], best: out i32[B])
key bucket(B), M, N
tune R = 1 | 2 | 4, threads = 32 | 64 | 128 | 256
grid b < ceildiv(B, R)
{
  fragment x: i32[R, M], h: i32[R, M], p: i32[R, M] = 0, q: i32[R, M] = 0, top: i32[R, M] = 0, most: i32[R]
  x = A[b*R +: R, :]
  for d < M + N - 1 {
    parallel r < R, i < M {
      let j = d - i
      let s = x[r, i] == C[b*R + r, j] ? i32(2) : i32(-1)
      h[r, i] = j >= 0 && j < N ? max(0, q[r, i - 1] + s, p[r, i - 1] - 1, p[r, i] - 1) : 0
      top[r, i] = max(top[r, i], h[r, i])
    }
    q = p
    p = h
  }
  parallel r < R { most[r] = max[i < M](top[r, i]) }
  best[b*R +: R] = most
}
"""


def smith(t, d):
    m, n = d["M"], d["N"]
    a = t.A.int()
    c = F.pad(t.C.int(), (m - 1, m - 1), value=9).flip(1)          # place d - i of C stands at m + n - 2 - d + i
    p = q = torch.zeros_like(a)
    best = torch.zeros_like(a)
    for k in range(m + n - 1):
        at = c[:, m + n - 2 - k:2 * m + n - 2 - k]
        s = torch.where(a == at, 2, -1)
        h = torch.maximum(F.pad(q[:, :-1], (1, 0)) + s, torch.maximum(F.pad(p[:, :-1], (1, 0)), p) - 1).clamp_min_(0) * (at != 9)
        best = torch.maximum(best, h)
        q, p = p, h
    return best.max(1).values.int()


KALMAN = """tile 1
# Predict and update, for many filters at once: N states, two measurements.
kernel kalman(X: f32[B, N], P: f32[B, N, N], Z: f32[B, 2], F: f32[N, N], Q: f32[N, N], H: f32[2, N], R: f32[2, 2], Y: out f32[B, N], U: out f32[B, N, N])
key bucket(B), N
tune BB = 4 | 8 | 16 | 32, threads = 64 | 128 | 256
grid b < ceildiv(B, BB)
{
  fragment x: f32[BB, N], p: f32[BB, N, N], w: f32[BB, N, N], g: f32[BB, N, 2], k: f32[BB, N, 2], s: f32[BB, 4], e: f32[BB, 2], y: f32[BB, N]
  x = X[b*BB +: BB, :]
  p = P[b*BB +: BB, :, :]
  parallel m < BB, i < N { y[m, i] = sum[a < N](F[i, a] * x[m, a]) }
  parallel m < BB, i < N, j < N { w[m, i, j] = sum[a < N](F[i, a] * p[m, a, j]) }
  parallel m < BB, i < N, j < N { p[m, i, j] = Q[i, j] + sum[a < N](w[m, i, a] * F[j, a]) }
  parallel m < BB, i < N, j < 2 { g[m, i, j] = sum[a < N](p[m, i, a] * H[j, a]) }
  parallel m < BB, q < 4 { s[m, q] = R[q / 2, q % 2] + sum[a < N](H[q / 2, a] * g[m, a, q % 2]) }
  parallel m < BB, j < 2 { e[m, j] = Z[b*BB + m, j] - sum[a < N](H[j, a] * y[m, a]) }
  parallel m < BB, i < N {
    let r = rcp(s[m, 0] * s[m, 3] - s[m, 1] * s[m, 2])
    k[m, i, 0] = (g[m, i, 0] * s[m, 3] - g[m, i, 1] * s[m, 2]) * r
    k[m, i, 1] = (g[m, i, 1] * s[m, 0] - g[m, i, 0] * s[m, 1]) * r
  }
  parallel m < BB, i < N { y[m, i] += k[m, i, 0] * e[m, 0] + k[m, i, 1] * e[m, 1] }
  parallel m < BB, i < N, j < N { p[m, i, j] -= k[m, i, 0] * g[m, j, 0] + k[m, i, 1] * g[m, j, 1] }
  Y[b*BB +: BB, :] = y
  U[b*BB +: BB, :, :] = p
}
"""


def kalman(t, d):
    x = t.X @ t.F.T
    p = t.F @ t.P @ t.F.T + t.Q
    g = p @ t.H.T
    s = t.H @ g + t.R
    det = s[:, 0, 0] * s[:, 1, 1] - s[:, 0, 1] * s[:, 1, 0]
    inv = torch.stack((s[:, 1, 1], -s[:, 0, 1], -s[:, 1, 0], s[:, 0, 0]), -1).view(-1, 2, 2) / det[:, None, None]
    k = g @ inv
    e = t.Z - x @ t.H.T
    return x + (k @ e[..., None])[..., 0], p - k @ g.mT


# ---- neighbours -----------------------------------------------------------------------------------------------------
KMEANS = """tile 1
kernel lengths<T: f16 | bf16>(C: T[K, D], length: out f32[K])
key K, D
tune rows = 4 | 8, threads = 128 | 256
grid k < ceildiv(K, rows)
{
  fragment c: f32[rows, D], l: f32[rows]
  c = C[k*rows +: rows, :]
  parallel i < rows { l[i] = sum[d < D](c[i, d] * c[i, d]) }
  length[k*rows +: rows] = l
}

kernel assign<T: f16 | bf16>(X: T[N, D], C: T[K, D], length: f32[K], at: out i32[N])
key bucket(N), K, D
tune BM = 64 | 128, BN = 64 | 128 | 256, stages = 2 | 3
grid m < ceildiv(N, BM)
{
  shared   x: T[BM, D], c: T[BN, D]
  fragment s: f32[BM, BN], best: f32[BM] = inf, place: i32[BM] = 0
  x = X[m*BM +: BM, :]
  pipelined n < ceildiv(K, BN), stages {
    c = C[n*BN +: BN, :]
    s = x @ c^T
    parallel i < BM, j < BN { s[i, j] = n*BN + j < K ? length[n*BN + j] - 2 * s[i, j] : inf }
    parallel i < BM {
      let here = min[j < BN](s[i, j])
      place[i] = here < best[i] ? n*BN + argmin[j < BN](s[i, j]) : place[i]
      best[i] = min(best[i], here)
    }
  }
  at[m*BM +: BM] = place
}

kernel clear(sums: out f32[K, D], count: out i32[K])
key K, D
tune rows = 4 | 8, threads = 128
grid k < ceildiv(K, rows)
{
  fragment z: f32[rows, D] = 0, c: i32[rows] = 0
  sums[k*rows +: rows, :] = z
  count[k*rows +: rows] = c
}

kernel add<T: f16 | bf16>(X: T[N, D], at: i32[N], sums: inout f32[K, D], count: inout i32[K])
key bucket(N), K, D
tune rows = 4 | 8 | 16, threads = 128 | 256
grid n < ceildiv(N, rows)
{
  fragment x: f32[rows, D]
  x = X[n*rows +: rows, :]
  parallel i < rows, d < D { if n*rows + i < N { atomic sums[at[n*rows + i], d] += x[i, d] } }
  parallel i < rows { if n*rows + i < N { atomic count[at[n*rows + i]] += 1 } }
}

program nearest<T: f16 | bf16>(X: T[N, D], C: T[K, D], at: out i32[N])
key bucket(N), K, D
{
  temp length: f32[K]
  lengths(C, length)
  assign(X, C, length, at)
}

program step<T: f16 | bf16>(X: T[N, D], C: T[K, D], at: out i32[N], sums: out f32[K, D], count: out i32[K])
key bucket(N), K, D
{
  temp length: f32[K]
  lengths(C, length)
  assign(X, C, length, at)
  clear(sums, count)
  add(X, at, sums, count)
}
"""


def nearest(t, d):
    c = up(t.C)
    return torch.addmm((c * c).sum(1).to(t.X.dtype), t.X, t.C.T, alpha=-2).argmin(1).int()


def kmeans_step(t, d):
    at = nearest(t, d)
    sums = torch.zeros(d["K"], d["D"], device=t.X.device, dtype=up(t.X).dtype).index_add_(0, at, up(t.X))
    return at, sums, torch.bincount(at, minlength=d["K"]).int()


def small_integers(shape, t, d):
    return torch.randint(-3, 4, shape, device=device()).half()


MANHATTAN = """tile 1
# The nearest by the sum of absolute differences.
kernel manhattan(X: f32[M, D], Y: f32[N, D], best: out f32[M], at: out i32[M])
key bucket(M), bucket(N), D
tune BM = 32 | 64 | 128, BN = 32 | 64 | 128, BK = 8 | 16 | 32, threads = 128 | 256
grid m < ceildiv(M, BM)
{
  shared   x: f32[BM, BK], y: f32[BN, BK]
  fragment s: f32[BM, BN], most: f32[BM] = inf, place: i32[BM] = 0
  for n < ceildiv(N, BN) {
    s = 0
    for k < ceildiv(D, BK) {
      x = X[m*BM +: BM, k*BK +: BK]
      y = Y[n*BN +: BN, k*BK +: BK]
      parallel i < BM, j < BN { s[i, j] += sum[a < BK](abs(x[i, a] - y[j, a])) }
    }
    parallel i < BM, j < BN { s[i, j] = n*BN + j < N ? s[i, j] : inf }
    parallel i < BM {
      let here = min[j < BN](s[i, j])
      place[i] = here < most[i] ? n*BN + argmin[j < BN](s[i, j]) : place[i]
      most[i] = min(most[i], here)
    }
  }
  best[m*BM +: BM] = most
  at[m*BM +: BM] = place
}
"""


def manhattan(t, d):
    v, i = zip(*((c.min(1)) for c in (torch.cdist(x, t.Y, p=1) for x in t.X.split(4096))))
    return torch.cat(v), torch.cat(i).int()


MANDELBROT = """tile 1
# Sixteen steps at a time, as long as a point of the block is left.
kernel mandelbrot(Y: out i32[H, W], x0: f32, y0: f32, dx: f32, dy: f32, iterations: i32)
key H, W
tune BH = 1 | 2 | 4 | 8, BW = 32 | 64 | 128, threads = 64 | 128 | 256
where BH * BW <= 1024
grid h < ceildiv(H, BH), w < ceildiv(W, BW)
{
  fragment a: f32[BH, BW] = 0, b: f32[BH, BW] = 0, n: i32[BH, BW] = 0
  for turn < iterations / 16 {
    if max[i < BH, j < BW](n[i, j]) >= turn * 16 {
      for step < 16 {
        parallel i < BH, j < BW {
          let u = a[i, j] * a[i, j], v = b[i, j] * b[i, j]
          if u + v <= 4 {
            b[i, j] = 2 * a[i, j] * b[i, j] + (y0 + dy * f32(h*BH + i))
            a[i, j] = u - v + (x0 + dx * f32(w*BW + j))
            n[i, j] += 1
          }
        }
      }
    }
  }
  Y[h*BH +: BH, w*BW +: BW] = n
}
"""


def mandelbrot(t, d):
    dev = t.Y.device
    cx = (-2 + 3 / d["W"] * torch.arange(d["W"], device=dev, dtype=torch.float32))[None]
    cy = (-1.25 + 2.5 / d["H"] * torch.arange(d["H"], device=dev, dtype=torch.float32))[:, None]
    a = torch.zeros(d["H"], d["W"], device=dev)
    b, n = torch.zeros_like(a), torch.zeros_like(a, dtype=torch.int32)
    for _ in range(64):
        u, v = a * a, b * b
        alive = u + v <= 4
        b = torch.where(alive, 2 * a * b + cy, b)
        a = torch.where(alive, u - v + cx, a)
        n = n + alive.int()
    return n


CLUSTERS = sizes(dict(N=262144, K=1024, D=128), dict(N=150001, K=1003, D=72), dict(N=37, K=11, D=8))

CASES = [
    Case("viterbi", VITERBI, sizes(dict(B=1024, L=128, S=64), dict(B=601, L=97, S=53), dict(B=2, L=5, S=7)), viterbi, kernel="viterbi", compiled=False,
         fills={"E": grid_values(1024), "A": grid_values(1024)}),
    Case("smith_waterman", SMITH, sizes(dict(B=4096, M=256, N=256), dict(B=2003, M=199, N=307), dict(B=3, M=7, N=11)), smith, compiled=False,
         fills={"A": lambda shape, t, d: torch.randint(0, 4, shape, device=device(), dtype=torch.uint8),
                "C": lambda shape, t, d: torch.randint(0, 4, shape, device=device(), dtype=torch.uint8)}),
    Case("kalman", KALMAN, sizes(dict(B=200_000, N=6), dict(B=100_003, N=7), dict(B=5, N=4)), kalman, tolerance=1e-4,
         fills={"P": lambda shape, t, d: (lambda m: m @ m.mT / shape[-1] + torch.eye(shape[-1], device=device()))(torch.randn(shape, device=device())),
                "F": lambda shape, t, d: torch.eye(shape[0], device=device()) + 0.1 * torch.randn(shape, device=device()).triu(1),
                "Q": lambda shape, t, d: torch.eye(shape[0], device=device()) * 0.1, "R": lambda shape, t, d: torch.eye(2, device=device())}),
    Case("kmeans_assign", KMEANS, CLUSTERS, nearest, kernel="nearest", types=HF, fills={"X": small_integers, "C": small_integers}),
    Case("kmeans_step", KMEANS, CLUSTERS, kmeans_step, kernel="step", types=HF, fills={"X": small_integers, "C": small_integers}),
    Case("manhattan_nearest", MANHATTAN, sizes(dict(M=16384, N=8192, D=64), dict(M=9973, N=5003, D=51), dict(M=13, N=7, D=9)), manhattan, compiled=False,
         fills={"X": grid_values(1024), "Y": grid_values(1024)}),
    Case("mandelbrot", MANDELBROT, sizes(dict(H=4096, W=4096), dict(H=3001, W=2999), dict(H=9, W=31)), mandelbrot, tolerance=0.1,
         fills={"x0": number(-2.0), "y0": number(-1.25), "dx": lambda shape, t, d: 3 / d["W"], "dy": lambda shape, t, d: 2.5 / d["H"], "iterations": number(64)}),
]
