"""Factorisations and solutions of small systems, one a block."""
import math

import torch
from sets.shared.solvers import device, sizes
from unseen import Case


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
SOLVE16 = sizes(dict(B=65536, N=16), dict(B=30011, N=17), dict(B=3, N=5))
SOLVE32 = sizes(dict(B=16384, N=32), dict(B=9973, N=29), dict(B=3, N=7))

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
]
