"""Small linear algebra, transforms, stencils, recurrences, dynamic programming, neighbours."""
import math

import torch
import torch.nn.functional as F
from unseen import Case

HF = {"T": "f16"}


def up(x):
    return x if x.dtype in (torch.float32, torch.float64) else x.float()


def number(value):
    return lambda shape, t, d: value


def device():
    return "cuda" if torch.cuda.is_available() else "cpu"


# ---- small systems --------------------------------------------------------------------------------------------------
LU = """tile 1
# Gaussian elimination without pivoting, for matrices whose diagonal is large.
kernel lu_solve(A: f32[B, N, N], R: f32[B, N], X: out f32[B, N])
key bucket(B), N
tune BB = 1 | 2 | 4 | 8, threads = 32 | 64 | 128 | 256
grid b < ceildiv(B, BB)
{
  fragment a: f32[BB, N, N], x: f32[BB, N]
  a = A[b*BB +: BB, :, :]
  x = R[b*BB +: BB, :]
  for k < N {
    parallel s < BB, i < N { if i > k { x[s, i] -= a[s, i, k] / a[s, k, k] * x[s, k] } }
    parallel s < BB, i < N, j < N { if i > k && j > k { a[s, i, j] -= a[s, i, k] / a[s, k, k] * a[s, k, j] } }
  }
  for q < N {
    let k = N - 1 - q
    parallel s < BB, i < N {
      let v = x[s, k] / a[s, k, k]
      x[s, i] = i < k ? x[s, i] - a[s, i, k] * v : i == k ? v : x[s, i]
    }
  }
  X[b*BB +: BB, :] = x
}
"""

LU_PIVOT = """tile 1
# With partial pivoting.
kernel lu_pivot(A: f32[B, N, N], R: f32[B, N], X: out f32[B, N])
key bucket(B), N
tune BB = 1 | 2 | 4 | 8, threads = 32 | 64 | 128 | 256
grid b < ceildiv(B, BB)
{
  shared a: f32[BB, N, N], x: f32[BB, N]
  fragment at: i32[BB]
  a = A[b*BB +: BB, :, :]
  x = R[b*BB +: BB, :]
  for k < N {
    parallel s < BB { at[s] = argmax[i < N](i >= k ? abs(a[s, i, k]) : -1.0) }
    parallel s < BB, i < N, j < N { if i == k { a[s, k, j] = a[s, at[s], j] } else if i == at[s] { a[s, i, j] = a[s, k, j] } }
    parallel s < BB, i < N { if i == k { x[s, k] = x[s, at[s]] } else if i == at[s] { x[s, i] = x[s, k] } }
    parallel s < BB, i < N { if i > k { x[s, i] -= a[s, i, k] / a[s, k, k] * x[s, k] } }
    parallel s < BB, i < N, j < N { if i > k && j > k { a[s, i, j] -= a[s, i, k] / a[s, k, k] * a[s, k, j] } }
  }
  for q < N {
    let k = N - 1 - q
    parallel s < BB, i < N {
      let v = x[s, k] / a[s, k, k]
      x[s, i] = i < k ? x[s, i] - a[s, i, k] * v : i == k ? v : x[s, i]
    }
  }
  X[b*BB +: BB, :] = x
}
"""


def solve(t, d):
    return torch.linalg.solve(t.A, t.R)


def dominant(shape, t, d):
    n = shape[-1]
    return torch.randn(shape, device=device()) + 2 * n * torch.eye(n, device=device())


def shuffled(shape, t, d):
    """dominant, with its rows in another order"""
    a = dominant(shape, t, d)
    return a[:, torch.randperm(shape[-1], device=a.device)]


def definite(shape, t, d):
    m = torch.randn(shape, device=device())
    return m @ m.mT / shape[-1] + torch.eye(shape[-1], device=device())


CHOLESKY = """tile 1
kernel cholesky(A: f32[B, N, N], L: out f32[B, N, N])
key bucket(B), N
tune BB = 1 | 2 | 4 | 8, threads = 32 | 64 | 128 | 256
grid b < ceildiv(B, BB)
{
  fragment a: f32[BB, N, N], c: f32[BB, N]
  a = A[b*BB +: BB, :, :]
  for k < N {
    parallel s < BB, i < N { c[s, i] = i >= k ? a[s, i, k] / sqrt(a[s, k, k]) : 0 }
    parallel s < BB, i < N, j < N { a[s, i, j] = j == k ? c[s, i] : j > k && i > k ? a[s, i, j] - c[s, i] * c[s, j] : a[s, i, j] }
  }
  parallel s < BB, i < N, j < N { if j > i { a[s, i, j] = 0 } }
  L[b*BB +: BB, :, :] = a
}
"""

TRIANGULAR = """tile 1
# Forward substitution for many right sides.
kernel triangular(L: f32[B, N, N], X: f32[B, N, R], Y: out f32[B, N, R])
key bucket(B), N, R
tune BR = 16 | 32 | 64 | 128, threads = 64 | 128 | 256
grid b < B, r < ceildiv(R, BR)
{
  shared l: f32[N, N]
  fragment x: f32[N, BR]
  l = L[b, :, :]
  x = X[b, :, r*BR +: BR]
  for k < N {
    parallel i < N, j < BR {
      let v = x[k, j] / l[k, k]
      x[i, j] = i > k ? x[i, j] - l[i, k] * v : i == k ? v : x[i, j]
    }
  }
  Y[b, :, r*BR +: BR] = x
}
"""


def lower(shape, t, d):
    n = shape[-1]
    return (torch.randn(shape, device=device()) / math.sqrt(n)).tril() + 2 * torch.eye(n, device=device())


QR = """tile 1
# Householder reflections, with the signs of LAPACK.
kernel qr(A: f32[B, M, N], Q: out f32[B, M, N], R: out f32[B, N, N])
where M >= N
key bucket(B), M, N
tune BB = 1 | 2 | 4 | 8, threads = 32 | 64 | 128 | 256
grid b < ceildiv(B, BB)
{
  fragment a: f32[BB, M, N], v: f32[BB, M, N], q: f32[BB, M, N], w: f32[BB, N], diagonal: f32[BB], tau: f32[BB, N], r: f32[BB, N, N]
  a = A[b*BB +: BB, :, :]
  for k < N {
    parallel s < BB {
      let length = sqrt(sum[i < M](i >= k ? a[s, i, k] * a[s, i, k] : 0))
      let e = a[s, k, k] >= 0 ? -length : length
      diagonal[s] = e
      tau[s, k] = (e - a[s, k, k]) / e
    }
    parallel s < BB, i < M { v[s, i, k] = i < k ? 0 : i == k ? 1 : a[s, i, k] / (a[s, k, k] - diagonal[s]) }
    parallel s < BB, j < N { w[s, j] = tau[s, k] * sum[i < M](v[s, i, k] * a[s, i, j]) }
    parallel s < BB, i < M, j < N { if j >= k { a[s, i, j] -= v[s, i, k] * w[s, j] } }
  }
  parallel s < BB, i < N, j < N { r[s, i, j] = j >= i ? a[s, i, j] : 0 }
  parallel s < BB, i < M, j < N { q[s, i, j] = i == j ? 1 : 0 }
  for z < N {
    let k = N - 1 - z
    parallel s < BB, j < N { w[s, j] = tau[s, k] * sum[i < M](v[s, i, k] * q[s, i, j]) }
    parallel s < BB, i < M, j < N { q[s, i, j] -= v[s, i, k] * w[s, j] }
  }
  Q[b*BB +: BB, :, :] = q
  R[b*BB +: BB, :, :] = r
}
"""

THOMAS = """tile 1
# Tridiagonal systems that lie beside each other: one thread walks through each.
kernel thomas(L: f32[N, B], D: f32[N, B], U: f32[N, B], R: f32[N, B], X: out f32[N, B])
key bucket(B), N
tune BB = 32 | 64 | 128, threads = 32 | 64 | 128
where threads == BB
grid b < ceildiv(B, BB)
{
  shared c: f32[N, BB], y: f32[N, BB]
  fragment p: f32[BB] = 0, q: f32[BB] = 0
  for k < N {
    parallel i < BB {
      let at = b*BB + i
      let low = L[k, at]
      let m = rcp(D[k, at] - low * p[i])
      q[i] = (R[k, at] - low * q[i]) * m
      p[i] = U[k, at] * m
      c[k, i] = p[i]
      y[k, i] = q[i]
    }
  }
  parallel i < BB { q[i] = 0 }
  for z < N {
    let k = N - 1 - z
    parallel i < BB { q[i] = y[k, i] - c[k, i] * q[i] }
    X[k, b*BB +: BB] = q
  }
}
"""

PCR = """tile 1
# Parallel cyclic reduction: each step doubles the distance of the unknowns that an equation holds.
kernel pcr(L: f32[B, N], D: f32[B, N], U: f32[B, N], R: f32[B, N], X: out f32[B, N])
key bucket(B), N
tune BB = 1 | 2 | 4, threads = 32 | 64 | 128 | 256
grid b < ceildiv(B, BB)
{
  fragment l: f32[BB, N], d: f32[BB, N], u: f32[BB, N], r: f32[BB, N]
  parallel i < BB, j < N {
    l[i, j] = j > 0 ? L[b*BB + i, j] : 0
    u[i, j] = j < N - 1 ? U[b*BB + i, j] : 0
    d[i, j] = D[b*BB + i, j]
    r[i, j] = R[b*BB + i, j]
  }
  for s < 11 {
    let h = 1 << s
    if h < N {
      parallel i < BB, j < N {
        let a = j >= h ? -l[i, j] / d[i, j - h] : 0, c = j + h < N ? -u[i, j] / d[i, j + h] : 0
        d[i, j] += a * u[i, j - h] + c * l[i, j + h]
        r[i, j] += a * r[i, j - h] + c * r[i, j + h]
        l[i, j] = a * l[i, j - h]
        u[i, j] = c * u[i, j + h]
      }
    }
  }
  parallel i < BB, j < N { r[i, j] /= d[i, j] }
  X[b*BB +: BB, :] = r
}
"""


def pcr_rows(l, dg, u, r):
    n = l.shape[1]
    l, u = l.clone(), u.clone()
    l[:, 0] = 0
    u[:, -1] = 0
    h = 1
    while h < n:
        def before(x, fill):
            return F.pad(x[:, :-h], (h, 0), value=fill)

        def after(x, fill):
            return F.pad(x[:, h:], (0, h), value=fill)
        a, c = -l / before(dg, 1.0), -u / after(dg, 1.0)
        dg, r, l, u = (dg + a * before(u, 0.0) + c * after(l, 0.0), r + a * before(r, 0.0) + c * after(r, 0.0), a * before(l, 0.0),
                       c * after(u, 0.0))
        h *= 2
    return r / dg


def thomas_loop(l, dg, u, r):
    n = l.shape[0]
    cs, ys = [], []
    p = q = torch.zeros_like(r[0])
    for k in range(n):
        m = 1 / (dg[k] - l[k] * p)
        q, p = (r[k] - l[k] * q) * m, u[k] * m
        cs.append(p)
        ys.append(q)
    x = torch.zeros_like(q)
    out = []
    for k in reversed(range(n)):
        x = ys[k] - cs[k] * x
        out.append(x)
    return torch.stack(out[::-1])


def diagonal(shape, t, d):
    return torch.rand(shape, device=device()) + 3


SYM3 = """tile 1
# Eigenvalues of symmetric 3x3 matrices (xx yy zz xy xz yz) by Jacobi rotations, in ascending order.
kernel eigenvalues3(A: f32[B, 6], E: out f32[B, 3])
key bucket(B)
tune BB = 64 | 128 | 256 | 512, threads = 64 | 128 | 256
grid b < ceildiv(B, BB)
{
  fragment a: f32[BB, 6], e: f32[BB, 3]
  a = A[b*BB +: BB, :]
  for sweep < 4 {
    parallel i < BB {
      let o = a[i, 3], w = (a[i, 1] - a[i, 0]) / (2 * o)
      let t = o == 0 ? 0.0 : (w >= 0 ? 1.0 : -1.0) / (abs(w) + sqrt(w * w + 1))
      let c = rsqrt(t * t + 1), x = a[i, 4], y = a[i, 5]
      a[i, 0] -= t * o
      a[i, 1] += t * o
      a[i, 3] = 0
      a[i, 4] = c * (x - t * y)
      a[i, 5] = c * (y + t * x)
    }
    parallel i < BB {
      let o = a[i, 4], w = (a[i, 2] - a[i, 0]) / (2 * o)
      let t = o == 0 ? 0.0 : (w >= 0 ? 1.0 : -1.0) / (abs(w) + sqrt(w * w + 1))
      let c = rsqrt(t * t + 1), x = a[i, 3], y = a[i, 5]
      a[i, 0] -= t * o
      a[i, 2] += t * o
      a[i, 4] = 0
      a[i, 3] = c * (x - t * y)
      a[i, 5] = c * (y + t * x)
    }
    parallel i < BB {
      let o = a[i, 5], w = (a[i, 2] - a[i, 1]) / (2 * o)
      let t = o == 0 ? 0.0 : (w >= 0 ? 1.0 : -1.0) / (abs(w) + sqrt(w * w + 1))
      let c = rsqrt(t * t + 1), x = a[i, 3], y = a[i, 4]
      a[i, 1] -= t * o
      a[i, 2] += t * o
      a[i, 5] = 0
      a[i, 3] = c * (x - t * y)
      a[i, 4] = c * (y + t * x)
    }
  }
  parallel i < BB {
    let x = a[i, 0], y = a[i, 1], z = a[i, 2]
    e[i, 0] = min(x, y, z)
    e[i, 2] = max(x, y, z)
    e[i, 1] = max(min(x, y), min(max(x, y), z))
  }
  E[b*BB +: BB, :] = e
}
"""


def eigen3(t, d):
    xx, yy, zz, xy, xz, yz = t.A.unbind(-1)
    q = (xx + yy + zz) / 3
    a, b, c = xx - q, yy - q, zz - q
    p = torch.sqrt((a * a + b * b + c * c + 2 * (xy * xy + xz * xz + yz * yz)) / 6)
    det = a * (b * c - yz * yz) - xy * (xy * c - yz * xz) + xz * (xy * yz - b * xz)
    phi = torch.acos(torch.clamp(det / (2 * p ** 3), -1, 1)) / 3
    high, low = q + 2 * p * torch.cos(phi), q + 2 * p * torch.cos(phi + 2 * math.pi / 3)
    return torch.stack((low, 3 * q - high - low, high), -1)


INVERSE3 = """tile 1
kernel inverse3(A: f32[B, 3, 3], Y: out f32[B, 3, 3], D: out f32[B])
key bucket(B)
tune BB = 64 | 128 | 256 | 512, threads = 64 | 128 | 256
grid b < ceildiv(B, BB)
{
  fragment a: f32[BB, 3, 3], y: f32[BB, 3, 3], d: f32[BB]
  a = A[b*BB +: BB, :, :]
  parallel s < BB {
    d[s] = a[s, 0, 0] * (a[s, 1, 1] * a[s, 2, 2] - a[s, 1, 2] * a[s, 2, 1]) + a[s, 0, 1] * (a[s, 1, 2] * a[s, 2, 0] - a[s, 1, 0] * a[s, 2, 2])
         + a[s, 0, 2] * (a[s, 1, 0] * a[s, 2, 1] - a[s, 1, 1] * a[s, 2, 0])
  }
  parallel s < BB, i < 3, j < 3 {
    let p = (j + 1) % 3, q = (j + 2) % 3, u = (i + 1) % 3, v = (i + 2) % 3
    y[s, i, j] = (a[s, p, u] * a[s, q, v] - a[s, p, v] * a[s, q, u]) / d[s]
  }
  Y[b*BB +: BB, :, :] = y
  D[b*BB +: BB] = d
}
"""


def inverse3(t, d):
    a, b, c = t.A.unbind(1)
    x, y, z = torch.linalg.cross(b, c), torch.linalg.cross(c, a), torch.linalg.cross(a, b)
    det = (a * x).sum(-1)
    return torch.stack((x, y, z), -1) / det[:, None, None], det


# ---- transforms -----------------------------------------------------------------------------------------------------
FFT = """tile 1
# 256 complex points a row; W holds exp(-2 pi i k / 256).
kernel fft256(X: f32[B, 256, 2], W: f32[128, 2], Y: out f32[B, 256, 2])
key bucket(B)
tune R = 1 | 2 | 4 | 8, threads = 32 | 64 | 128 | 256
grid b < ceildiv(B, R)
{
  fragment x: f32[R, 256], y: f32[R, 256]
  parallel i < R, n < 256 {
    x[i, n] = X[b*R + i, n, 0]
    y[i, n] = X[b*R + i, n, 1]
  }
  for s < 8 {
    let h = 128 >> s
    parallel i < R, n < 256 {
      let k = (n & (h - 1)) << s
      let c = W[k, 0], d = W[k, 1], ar = x[i, n], ai = y[i, n], br = x[i, n ^ h], bi = y[i, n ^ h]
      x[i, n] = (n & h) == 0 ? ar + br : (br - ar) * c - (bi - ai) * d
      y[i, n] = (n & h) == 0 ? ai + bi : (br - ar) * d + (bi - ai) * c
    }
  }
  parallel i < R, n < 256 {
    let a = n >> 4 & 15 | (n & 15) << 4
    let e = a >> 2 & 0x33 | (a & 0x33) << 2
    let f = e >> 1 & 0x55 | (e & 0x55) << 1
    Y[b*R + i, n, 0] = x[i, f]
    Y[b*R + i, n, 1] = y[i, f]
  }
}
"""

BLUESTEIN = """tile 1
# Any N up to 1024 by a convolution of 2048 points. H is the transform of the chirp, in the order in which the first
# transform leaves its result.
kernel bluestein(X: f32[B, N, 2], C: f32[N, 2], H: f32[2048, 2], W: f32[1024, 2], Y: out f32[B, N, 2])
where N <= 1024
key bucket(B), N
tune R = 1 | 2, threads = 128 | 256 | 512 | 1024
grid b < ceildiv(B, R)
{
  fragment x: f32[R, 2048], y: f32[R, 2048]
  parallel i < R, n < 2048 {
    let u = X[b*R + i, n, 0], v = X[b*R + i, n, 1]
    x[i, n] = u * C[n, 0] - v * C[n, 1]
    y[i, n] = u * C[n, 1] + v * C[n, 0]
  }
  for s < 11 {
    let h = 1024 >> s
    parallel i < R, n < 2048 {
      let k = (n & (h - 1)) << s
      let c = W[k, 0], d = W[k, 1], ar = x[i, n], ai = y[i, n], br = x[i, n ^ h], bi = y[i, n ^ h]
      x[i, n] = (n & h) == 0 ? ar + br : (br - ar) * c - (bi - ai) * d
      y[i, n] = (n & h) == 0 ? ai + bi : (br - ar) * d + (bi - ai) * c
    }
  }
  parallel i < R, n < 2048 {
    let u = x[i, n], v = y[i, n]
    x[i, n] = u * H[n, 0] - v * H[n, 1]
    y[i, n] = u * H[n, 1] + v * H[n, 0]
  }
  for s < 11 {
    let h = 1 << s
    parallel i < R, n < 2048 {
      let k = (n & (h - 1)) << (10 - s), up = (n & h) != 0
      let c = W[k, 0], d = W[k, 1]
      let hr = up ? x[i, n] : x[i, n ^ h], hi = up ? y[i, n] : y[i, n ^ h], lr = up ? x[i, n ^ h] : x[i, n], li = up ? y[i, n ^ h] : y[i, n]
      let tr = hr * c + hi * d, ti = hi * c - hr * d
      x[i, n] = up ? lr - tr : lr + tr
      y[i, n] = up ? li - ti : li + ti
    }
  }
  parallel i < R, n < N {
    Y[b*R + i, n, 0] = (x[i, n] * C[n, 0] - y[i, n] * C[n, 1]) * 0.00048828125
    Y[b*R + i, n, 1] = (x[i, n] * C[n, 1] + y[i, n] * C[n, 0]) * 0.00048828125
  }
}
"""

DFT = """tile 1
# A transform of any length as a product with cosines and sines, planes of real and imaginary parts.
kernel dft(X: f32[B, N], Z: f32[B, N], C: f32[N, N], S: f32[N, N], P: out f32[B, N], Q: out f32[B, N])
key bucket(B), N
tune BM = 64 | 128, BN = 64 | 128, BK = 32, stages = 2 | 3
grid m < ceildiv(B, BM), n < ceildiv(N, BN)
{
  shared   x: f32[BM, BK], z: f32[BM, BK], c: f32[BN, BK], s: f32[BN, BK]
  fragment xc: f32[BM, BN] = 0, xs: f32[BM, BN] = 0
  fragment zs: f32[BM, BN] = 0, zc: f32[BM, BN] = 0
  pipelined k < ceildiv(N, BK), stages {
    x = X[m*BM +: BM, k*BK +: BK]
    z = Z[m*BM +: BM, k*BK +: BK]
    c = C[n*BN +: BN, k*BK +: BK]
    s = S[n*BN +: BN, k*BK +: BK]
    xc += x @ c^T precision tf32
    xs += x @ s^T precision tf32
    zs += z @ s^T precision tf32
    zc += z @ c^T precision tf32
  }
  parallel i < BM, j < BN {
    xc[i, j] += zs[i, j]
    zc[i, j] -= xs[i, j]
  }
  P[m*BM +: BM, n*BN +: BN] = xc
  Q[m*BM +: BM, n*BN +: BN] = zc
}
"""


def fft_pairs(t, d):
    return torch.view_as_real(torch.fft.fft(torch.view_as_complex(t.X)))


def fft_planes(t, d):
    y = torch.fft.fft(torch.complex(t.X, t.Z))
    return y.real, y.imag


def dft_products(t, d):
    old = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    p, q = torch.addmm(t.X @ t.C, t.Z, t.S), torch.addmm(t.Z @ t.C, t.X, t.S, alpha=-1)
    torch.backends.cuda.matmul.allow_tf32 = old
    return p, q


def pair(z):
    return torch.stack((z.real, z.imag), -1).float().to(device())


def roots(n, count):
    return lambda shape, t, d: pair(torch.exp(-2j * math.pi * torch.arange(count, dtype=torch.float64) / n))


def chirp_of(n):
    k = torch.arange(n, dtype=torch.int64)
    return torch.exp(-1j * math.pi * ((k * k) % (2 * n)).double() / n)


def chirp_filter(shape, t, d):
    n, c = d["N"], chirp_of(d["N"]).conj()
    h = torch.zeros(2048, dtype=torch.complex128)
    h[:n] = c
    h[2048 - n + 1:] = c[1:].flip(0)
    order = torch.tensor([int(f"{k:011b}"[::-1], 2) for k in range(2048)])
    return pair(torch.fft.fft(h)[order])


def waves(function):
    def fill(shape, t, d):
        k = torch.arange(d["N"])
        return function(2 * math.pi * ((k[:, None] * k) % d["N"]).double() / d["N"]).float().to(device())
    return fill


SPECTROGRAM = """tile 1
# Windowed frames times cosines and sines; magnitudes.
kernel spectrogram<const hop: i32>(X: f32[B, N], window: f32[K], C: f16[R, K], S: f16[R, K], Y: out f32[B, F, R])
where F == (N - K) / hop + 1
key bucket(B), bucket(N), K, R
tune BM = 64 | 128, BN = 64 | 128, BK = 32 | 64, stages = 2 | 3
grid b < B, f < ceildiv(F, BM), n < ceildiv(R, BN)
{
  shared   a: f16[BM, BK], c: f16[BN, BK], s: f16[BN, BK]
  fragment u: f32[BM, BN] = 0, v: f32[BM, BN] = 0
  pipelined k < ceildiv(K, BK), stages {
    parallel i < BM, j < BK { a[i, j] = X[b, (f*BM + i) * hop + k*BK + j] * window[k*BK + j] }
    c = C[n*BN +: BN, k*BK +: BK]
    s = S[n*BN +: BN, k*BK +: BK]
    u += a @ c^T
    v += a @ s^T
  }
  parallel i < BM, j < BN { u[i, j] = sqrt(u[i, j] * u[i, j] + v[i, j] * v[i, j]) }
  Y[b, f*BM +: BM, n*BN +: BN] = u
}
"""

LOGMEL = """tile 1
# What speech models read: power spectra, mel filters and a logarithm, without spectra in memory.
kernel logmel<const hop: i32>(X: f32[B, N], window: f32[K], C: f16[R, K], S: f16[R, K], M: f32[G, R], Y: out f32[B, F, G])
where F == (N - K) / hop + 1
key bucket(B), bucket(N), K, R, G
tune BM = 64 | 128, BR = 32 | 64, stages = 1 | 2
grid b < B, f < ceildiv(F, BM)
{
  shared   a: f16[BM, K], c: f16[BR, K], s: f16[BR, K], g: f32[G, BR]
  fragment u: f32[BM, BR], v: f32[BM, BR], acc: f32[BM, G] = 0
  parallel i < BM, j < K { a[i, j] = X[b, (f*BM + i) * hop + j] * window[j] }
  pipelined r < ceildiv(R, BR), stages {
    c = C[r*BR +: BR, :]
    s = S[r*BR +: BR, :]
    g = M[:, r*BR +: BR]
    u = a @ c^T
    v = a @ s^T
    parallel i < BM, j < BR { u[i, j] = u[i, j] * u[i, j] + v[i, j] * v[i, j] }
    acc += u @ g^T precision tf32
  }
  parallel i < BM, j < G { acc[i, j] = log2(max(acc[i, j], 1e-10)) * 0.30103 }
  Y[b, f*BM +: BM, :] = acc
}
"""


def stft(t, d):
    return torch.stft(t.X, d["K"], HOP, window=t.window, center=False, return_complex=True)


HOP = 160


def spectrogram(t, d):
    return stft(t, d).abs().transpose(1, 2)


def logmel(t, d):
    p = torch.view_as_real(stft(t, d)).square().sum(-1)
    return torch.log10((t.M @ p).clamp_min(1e-10)).transpose(1, 2)


def bins(function):
    def fill(shape, t, d):
        r, k = torch.arange(shape[0]), torch.arange(shape[1])
        return function(2 * math.pi * ((r[:, None] * k) % d["K"]).double() / d["K"]).half().to(device())
    return fill


def hann(shape, t, d):
    return torch.hann_window(shape[0], device=device())


# ---- stencils -------------------------------------------------------------------------------------------------------
WAVE = """tile 1
# A step of the wave equation, of eighth order in space.
kernel wave(U: f32[H, W], P: f32[H, W], V: f32[H, W], C: f32[5], Y: out f32[H, W])
key H, W
tune BH = 1 | 4 | 8 | 16, BW = 64 | 128 | 256, threads = 128 | 256
where BH * BW <= 2048
grid h < ceildiv(H, BH), w < ceildiv(W, BW)
{
  fragment y: f32[BH, BW]
  parallel i < BH, j < BW {
    let a = h*BH + i, b = w*BW + j
    let s = 2 * C[0] * U[a, b] + sum[k < 4](C[k + 1] * (U[a - k - 1, b] + U[a + k + 1, b] + U[a, b - k - 1] + U[a, b + k + 1]))
    y[i, j] = 2 * U[a, b] - P[a, b] + V[a, b] * s
  }
  Y[h*BH +: BH, w*BW +: BW] = y
}
"""


def wave(t, d):
    u = F.pad(t.U, (4, 4, 4, 4))
    h, w = d["H"], d["W"]
    s = 2 * t.C[0] * t.U
    for k in range(1, 5):
        s = s + t.C[k] * (u[4 - k:4 - k + h, 4:4 + w] + u[4 + k:4 + k + h, 4:4 + w] + u[4:4 + h, 4 - k:4 - k + w] + u[4:4 + h, 4 + k:4 + k + w])
    return 2 * t.U - t.P + t.V * s


STENCIL27 = """tile 1
# 27 points, four weights by distance.
kernel stencil27(U: f32[D, H, W], C: f32[4], Y: out f32[D, H, W])
key D, H, W
tune BD = 1 | 2 | 4 | 8, BH = 1 | 2 | 4 | 8, BW = 64 | 128, threads = 128 | 256
where BD * BH * BW <= 2048
grid d < ceildiv(D, BD), h < ceildiv(H, BH), w < ceildiv(W, BW)
{
  fragment y: f32[BD, BH, BW]
  parallel i < BD, j < BH, k < BW {
    y[i, j, k] = sum[a < 3, b < 3, c < 3](C[abs(a - 1) + abs(b - 1) + abs(c - 1)] * U[d*BD + i + a - 1, h*BH + j + b - 1, w*BW + k + c - 1])
  }
  Y[d*BD +: BD, h*BH +: BH, w*BW +: BW] = y
}
"""


def stencil27(t, d):
    u = F.pad(t.U, (1,) * 6)
    dd, h, w = d["D"], d["H"], d["W"]
    return sum(t.C[abs(a - 1) + abs(b - 1) + abs(c - 1)] * u[a:a + dd, b:b + h, c:c + w] for a in range(3) for b in range(3) for c in range(3))


def stencil27_separable(t, d):
    """sums of neighbours, axis by axis"""
    u = F.pad(t.U, (1,) * 6)
    n = u[..., :-2] + u[..., 2:]
    u = u[..., 1:-1]
    # face, edge and corner sums by the number of axes that step
    z0, z1 = u, n
    y00, y10, y01, y11 = z0[:, 1:-1], z0[:, :-2] + z0[:, 2:], z1[:, 1:-1], z1[:, :-2] + z1[:, 2:]
    a0, a1, a2 = y00, y10 + y01, y11
    def both(x):
        return x[:-2] + x[2:]
    return t.C[0] * a0[1:-1] + t.C[1] * (a1[1:-1] + both(a0)) + t.C[2] * (a2[1:-1] + both(a1)) + t.C[3] * both(a2)


JACOBI = """tile 1
# Four sweeps of Jacobi's method for the Poisson equation at once; tiles overlap by four.
kernel jacobi4(U: f32[H, W], R: f32[H, W], Y: out f32[H, W])
key H, W
tune BH = 16 | 24 | 32 | 56, BW = 56 | 64 | 120 | 128, threads = 256 | 512
grid h < ceildiv(H, BH), w < ceildiv(W, BW)
{
  shared   u: f32[BH + 8, BW + 8]
  fragment r: f32[BH + 8, BW + 8]
  u = U[h*BH - 4 +: BH + 8, w*BW - 4 +: BW + 8]
  r = R[h*BH - 4 +: BH + 8, w*BW - 4 +: BW + 8]
  for sweep < 4 {
    parallel i < BH + 8, j < BW + 8 {
      let a = h*BH + i - 4, b = w*BW + j - 4
      u[i, j] = a >= 0 && a < H && b >= 0 && b < W ? 0.25 * (u[i - 1, j] + u[i + 1, j] + u[i, j - 1] + u[i, j + 1] - r[i, j]) : 0
    }
  }
  Y[h*BH +: BH, w*BW +: BW] = u[4 +: BH, 4 +: BW]
}
"""


def jacobi(t, d):
    u = t.U
    for _ in range(4):
        p = F.pad(u, (1, 1, 1, 1))
        u = 0.25 * (p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:] - t.R)
    return u


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


def sizes(large, odd, small):
    return {"large": large, "odd": odd, "small": small}


SOLVE16 = sizes(dict(B=65536, N=16), dict(B=30011, N=17), dict(B=3, N=5))
SOLVE32 = sizes(dict(B=16384, N=32), dict(B=9973, N=29), dict(B=3, N=7))
TRI = {"D": diagonal}
AUDIO = {"large": dict(B=64, N=480000, K=400, R=201, F=(480000 - 400) // 160 + 1), "odd": dict(B=13, N=333331, K=400, R=201, F=(333331 - 400) // 160 + 1),
         "small": dict(B=2, N=999, K=400, R=201, F=(999 - 400) // 160 + 1)}
RNN = sizes(dict(L=256, B=1024, I=128, H=128), dict(L=199, B=1013, I=120, H=104), dict(L=5, B=3, I=8, H=8))


def rnn(gates):
    return {k: dict(v, E=gates * v["H"]) for k, v in RNN.items()}


CLUSTERS = sizes(dict(N=262144, K=1024, D=128), dict(N=150001, K=1003, D=72), dict(N=37, K=11, D=8))

CASES = [
    Case("lu16", LU, SOLVE16, solve, fills={"A": dominant}, tolerance=1e-4, compiled=False),
    Case("lu32", LU, SOLVE32, solve, fills={"A": dominant}, tolerance=1e-4, compiled=False),
    Case("lu16_pivot", LU_PIVOT, SOLVE16, solve, fills={"A": shuffled}, tolerance=1e-4, compiled=False),
    Case("cholesky16", CHOLESKY, SOLVE16, lambda t, d: torch.linalg.cholesky(t.A), fills={"A": definite}, tolerance=1e-4, compiled=False),
    Case("cholesky32", CHOLESKY, SOLVE32, lambda t, d: torch.linalg.cholesky(t.A), fills={"A": definite}, tolerance=1e-4, compiled=False),
    Case("triangular_many", TRIANGULAR, sizes(dict(B=512, N=64, R=512), dict(B=307, N=61, R=333), dict(B=2, N=5, R=7)),
         lambda t, d: torch.linalg.solve_triangular(t.L, t.X, upper=False), fills={"L": lower}, tolerance=1e-4, compiled=False),
    Case("qr_householder", QR, sizes(dict(B=8192, M=32, N=8), dict(B=5003, M=27, N=11), dict(B=3, M=5, N=3)),
         lambda t, d: torch.linalg.qr(t.A), tolerance=1e-3, compiled=False),
    Case("thomas_columns", THOMAS, sizes(dict(B=65536, N=128), dict(B=40009, N=127), dict(B=5, N=9)),
         lambda t, d: pcr_rows(t.L.T, t.D.T, t.U.T, t.R.T).T, reference=lambda t, d: thomas_loop(t.L, t.D, t.U, t.R), fills=TRI, tolerance=1e-4,
         peers={"loop": lambda t, d: thomas_loop(t.L, t.D, t.U, t.R)}),
    Case("cyclic_reduction", PCR, sizes(dict(B=32768, N=512), dict(B=20011, N=501), dict(B=3, N=11)),
         lambda t, d: pcr_rows(t.L, t.D, t.U, t.R), fills=TRI, tolerance=1e-4),
    Case("eigenvalues3", SYM3, sizes(dict(B=4_000_000), dict(B=1_000_003), dict(B=37)), eigen3, tolerance=1e-4),
    Case("inverse3", INVERSE3, sizes(dict(B=4_000_000), dict(B=1_000_003), dict(B=37)), inverse3, tolerance=1e-4,
         fills={"A": lambda shape, t, d: torch.randn(shape, device=device()) + 4 * torch.eye(3, device=device())},
         peers={"inv": lambda t, d: torch.linalg.inv(t.A)}),
    Case("fft256", FFT, sizes(dict(B=65536), dict(B=40009), dict(B=3)), fft_pairs, fills={"W": roots(256, 128)}, tolerance=1e-5, compiled=False),
    Case("fft_bluestein", BLUESTEIN, sizes(dict(B=16384, N=1003), dict(B=9973, N=751), dict(B=2, N=7)), fft_pairs, tolerance=1e-5, compiled=False,
         fills={"C": lambda shape, t, d: pair(chirp_of(d["N"])), "H": chirp_filter, "W": roots(2048, 1024)}),
    Case("dft_product", DFT, sizes(dict(B=8192, N=1003), dict(B=5003, N=251), dict(B=3, N=7)), fft_planes, tolerance=3e-3, compiled=False,
         fills={"C": waves(torch.cos), "S": waves(torch.sin)}, peers={"products tf32": dft_products}),
    Case("spectrogram", SPECTROGRAM, AUDIO, spectrogram, consts={"hop": HOP}, tolerance=3e-3, compiled=False,
         fills={"window": hann, "C": bins(torch.cos), "S": bins(torch.sin)}),
    Case("logmel", LOGMEL, {k: dict(v, G=80 if k != "odd" else 77) for k, v in AUDIO.items()}, logmel, consts={"hop": HOP}, tolerance=3e-3, compiled=False,
         fills={"window": hann, "C": bins(torch.cos), "S": bins(torch.sin), "M": lambda shape, t, d: torch.rand(shape, device=device())}),
    Case("wave_eighth_order", WAVE, sizes(dict(H=8192, W=8192), dict(H=5003, W=4999), dict(H=9, W=13)), wave,
         fills={"C": lambda shape, t, d: torch.tensor([-205 / 72, 8 / 5, -1 / 5, 8 / 315, -1 / 560], device=device()),
                "V": lambda shape, t, d: torch.rand(shape, device=device()) * 0.2}),
    Case("stencil27", STENCIL27, sizes(dict(D=512, H=512, W=512), dict(D=251, H=331, W=307), dict(D=3, H=5, W=7)), stencil27,
         fills={"C": lambda shape, t, d: torch.tensor([0.5, 0.1, 0.03, 0.01], device=device())}, peers={"by axes": stencil27_separable}),
    Case("jacobi4", JACOBI, sizes(dict(H=8192, W=8192), dict(H=5003, W=4999), dict(H=9, W=13)), jacobi),
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
