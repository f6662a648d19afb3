"""Tridiagonal systems and matrices of three rows."""
import math

import torch
import torch.nn.functional as F
from sets.shared.solvers import device, sizes
from unseen import Case


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


TRI = {"D": diagonal}

CASES = [
    Case("thomas_columns", THOMAS, sizes(dict(B=65536, N=128), dict(B=40009, N=127), dict(B=5, N=9)),
         lambda t, d: pcr_rows(t.L.T, t.D.T, t.U.T, t.R.T).T, reference=lambda t, d: thomas_loop(t.L, t.D, t.U, t.R), fills=TRI, tolerance=1e-4,
         peers={"loop": lambda t, d: thomas_loop(t.L, t.D, t.U, t.R)}),
    Case("cyclic_reduction", PCR, sizes(dict(B=32768, N=512), dict(B=20011, N=501), dict(B=3, N=11)),
         lambda t, d: pcr_rows(t.L, t.D, t.U, t.R), fills=TRI, tolerance=1e-4),
    Case("eigenvalues3", SYM3, sizes(dict(B=4_000_000), dict(B=1_000_003), dict(B=37)), eigen3, tolerance=1e-4),
    Case("inverse3", INVERSE3, sizes(dict(B=4_000_000), dict(B=1_000_003), dict(B=37)), inverse3, tolerance=1e-4,
         fills={"A": lambda shape, t, d: 2 * torch.rand(shape, device=device()) - 1 + 4 * torch.eye(3, device=device())},
         peers={"inv": lambda t, d: torch.linalg.inv(t.A)}),
]
