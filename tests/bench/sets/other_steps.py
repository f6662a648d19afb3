"""Sorting, Fourier transforms, bodies, filters, strings, fluids, hashes."""
import math
import sys

import torch
import torch.nn.functional as F
from unseen import Case

DEV = "cpu" if "--check" in sys.argv or not torch.cuda.is_available() else "cuda"

# ---- rows of up to 1024 keys, sorted by Batcher's network
SORT = """tile 1
kernel sort_rows<T: f32 | f16 | bf16>(X: T[N, M], Y: out T[N, M])
where M <= 1024
key  bucket(N), M
tune R = 1 | 2 | 4, threads = 128 | 256 | 64 | 512
grid r < ceildiv(N, R)
{
  fragment x: f32[R, 1024]
  x = X[r*R +: R, 0 +: 1024] pad inf
  for s < 10 {
    for t < s + 1 {
      let h = 1 << (s - t)
      parallel i < R, d < 1024 {
        let low = (d & h) == 0, up = (d & (2 << s)) == 0
        x[i, d] = low == up ? min(x[i, d], x[i, d ^ h]) : max(x[i, d], x[i, d ^ h])
      }
    }
  }
  Y[r*R +: R, 0 +: 1024] = x
}
"""

# ---- Fourier transforms of 1024 complex numbers
FFT = """tile 1
kernel fft1024(X: f32[N, 1024, 2], turn: f32[512, 2], Y: out f32[N, 1024, 2])
key  bucket(N)
tune R = 1 | 2 | 4, threads = 128 | 256 | 64 | 512
grid r < ceildiv(N, R)
{
  shared   z: f32[R, 1024, 2]
  fragment re: f32[R, 1024], im: f32[R, 1024]
  z = X[r*R +: R, :, :]
  parallel i < R, d < 1024 {
    let p = (d & 1) << 9 | (d & 2) << 7 | (d & 4) << 5 | (d & 8) << 3 | (d & 16) << 1
    let q = (d & 32) >> 1 | (d & 64) >> 3 | (d & 128) >> 5 | (d & 256) >> 7 | (d & 512) >> 9
    re[i, d] = z[i, p | q, 0]
    im[i, d] = z[i, p | q, 1]
  }
  for s < 10 {
    let h = 1 << s
    parallel i < R, d < 1024 {
      let at = (d & (h - 1)) << (9 - s), low = (d & h) == 0
      let c = turn[at, 0], n = turn[at, 1]
      let ar = low ? re[i, d] : re[i, d ^ h], ai = low ? im[i, d] : im[i, d ^ h]
      let br = low ? re[i, d ^ h] : re[i, d], bi = low ? im[i, d ^ h] : im[i, d]
      let tr = br * c - bi * n, ti = br * n + bi * c
      re[i, d] = low ? ar + tr : ar - tr
      im[i, d] = low ? ai + ti : ai - ti
    }
  }
  Y[r*R +: R, :, 0] = re
  Y[r*R +: R, :, 1] = im
}
"""


def unit_roots(shape, t, d):
    angle = -2 * math.pi * torch.arange(512, dtype=torch.float64, device=DEV) / 1024
    return torch.stack((angle.cos(), angle.sin()), 1).float()


# ---- gravity of all bodies on all
NBODY = """tile 1
kernel nbody(P: f32[N, 4], A: out f32[N, 3], soft: f32)
key  bucket(N)
tune BI = 128 | 64 | 256 | 32, BJ = 64 | 32 | 128, threads = 128 | 256
grid b < ceildiv(N, BI)
{
  shared   q: f32[BJ, 4]
  fragment p: f32[BI, 4], a: f32[BI, 3] = 0
  p = P[b*BI +: BI, :]
  pipelined n < ceildiv(N, BJ), 2 {
    q = P[n*BJ +: BJ, :]
    for j < BJ {
      parallel i < BI {
        let x = q[j, 0] - p[i, 0], y = q[j, 1] - p[i, 1], z = q[j, 2] - p[i, 2]
        let r = rsqrt(x*x + y*y + z*z + soft), w = q[j, 3] * r * r * r
        a[i, 0] += w * x
        a[i, 1] += w * y
        a[i, 2] += w * z
      }
    }
  }
  A[b*BI +: BI, :] = a
}
"""


def nbody(t, d):
    x = t.P[:, :3]
    gap = x[None] - x[:, None]
    w = t.P[:, 3] * (gap.square().sum(-1) + t.soft).rsqrt() ** 3
    return (w[..., None] * gap).sum(1)


def nbody_matmul(t, d):
    x = t.P[:, :3]
    w = t.P[:, 3] * (torch.cdist(x, x).square() + t.soft).rsqrt() ** 3
    return w @ x - w.sum(1, keepdim=True) * x


# ---- a bilateral filter of 7 x 7, edges repeated
BILATERAL = """tile 1
kernel bilateral<T: f16 | f32>(X: T[N, H, W], Y: out T[N, H, W], near: f32, alike: f32)
key  bucket(N), H, W
tune BY = 8 | 4 | 16, BX = 32 | 64 | 128, threads = 128 | 256
grid n < N, y < ceildiv(H, BY), x < ceildiv(W, BX)
{
  fragment top: f32[BY, BX] = 0, all: f32[BY, BX] = 0
  for u < 7 {
    for v < 7 {
      parallel i < BY, j < BX {
        let b = y*BY + i, a = x*BX + j
        let z = X[n, clamp(b + u - 3, 0, H - 1), clamp(a + v - 3, 0, W - 1)], gap = z - X[n, b, a]
        let w = exp(-near * ((u - 3) * (u - 3) + (v - 3) * (v - 3)) - alike * gap * gap)
        top[i, j] += w * z
        all[i, j] += w
      }
    }
  }
  parallel i < BY, j < BX { top[i, j] /= all[i, j] }
  Y[n, y*BY +: BY, x*BX +: BX] = top
}
"""


def bilateral(t, d):
    x = t.X if t.X.dtype == torch.float64 else t.X.float()
    wide, top, total = F.pad(x[:, None], (3,) * 4, mode="replicate")[:, 0], 0, 0
    for u in range(7):
        for v in range(7):
            z = wide[:, u:u + d["H"], v:v + d["W"]]
            w = torch.exp(-t.near * ((u - 3) ** 2 + (v - 3) ** 2) - t.alike * (z - x).square())
            top, total = top + w * z, total + w
    return (top / total).to(t.X.dtype)


# ---- edit distances of pairs of strings: a row of the table at a time, the way along it as a running minimum
EDIT = """tile 1
kernel levenshtein(A: u8[P, L], B: u8[P, M], Y: out i32[P])
key  bucket(P), L, M
tune R = 4 | 1 | 2 | 8 | 16, threads = 128 | 64 | 256 | 32
grid p < ceildiv(P, R)
{
  shared   a: u8[R, L], b: u8[R, M]
  fragment d: i32[R, M + 1], t: i32[R, M + 1]
  a = A[p*R +: R, :]
  b = B[p*R +: R, :]
  parallel i < R, j < M + 1 { d[i, j] = j }
  for l < L {
    parallel i < R, j < M + 1 {
      t[i, j] = j == 0 ? l + 1 : min(d[i, j] + 1, d[i, j - 1] + (a[i, l] == b[i, j - 1] ? 0 : 1)) - j
    }
    parallel i < R, j < M + 1 { d[i, j] = j + min[k <= j](t[i, k]) }
  }
  parallel i < R { Y[p*R + i] = d[i, M] }
}
"""


def levenshtein(t, d):
    at = torch.arange(d["M"] + 1, device=t.A.device, dtype=torch.int32)
    row = at.expand(d["P"], -1)
    for l in range(d["L"]):
        cost = (t.A[:, l, None] != t.B).to(torch.int32)
        step = torch.minimum(row[:, 1:] + 1, row[:, :-1] + cost)
        row = torch.cat((torch.full_like(step[:, :1], l + 1), step), 1)
        row = (row - at).cummin(1).values + at
    return row[:, -1]


# ---- a step of a lattice Boltzmann method: nine directions arrive from their neighbours and collide
WAYS = [(0, 0), (1, 0), (0, 1), (-1, 0), (0, -1), (1, 1), (-1, 1), (-1, -1), (1, -1)]
WEIGHTS = [4 / 9] + [1 / 9] * 4 + [1 / 36] * 4


def lbm_text():
    def place(n, axis, size):
        return {0: axis, 1: f"({axis} + {size} - 1) % {size}", -1: f"({axis} + 1) % {size}"}[n]

    def total(terms):
        return " + ".join(terms).replace("+ -", "- ")
    reads = "\n".join(f"    let f{k} = f[{k}, {place(v, 'b', 'H')}, {place(u, 'a', 'W')}]" for k, (u, v) in enumerate(WAYS))
    speeds = [total(f"{'-' if w[axis] < 0 else ''}f{k}" for k, w in enumerate(WAYS) if w[axis]) for axis in (0, 1)]
    writes = "\n".join(
        f"    let c{k} = {total(f'{chr(45) if n < 0 else str()}{name}' for n, name in ((u, 'u'), (v, 'v')) if n) if u or v else '0.0'}\n"
        f"    if b < H && a < W {{ g[{k}, b, a] = f{k} + rate * ({WEIGHTS[k]:.9f} * rho * (1 + 3 * c{k} + 4.5 * c{k} * c{k} - s) - f{k}) }}"
        for k, (u, v) in enumerate(WAYS))
    return f"""tile 1
kernel lbm_d2q9(f: f32[9, H, W], g: out f32[9, H, W], rate: f32)
key  H, W
tune BY = 4 | 2 | 8 | 1, BX = 64 | 128 | 32, threads = 128 | 256
grid y < ceildiv(H, BY), x < ceildiv(W, BX)
{{
  parallel i < BY, j < BX {{
    let b = y*BY + i, a = x*BX + j
{reads}
    let rho = {total(f'f{k}' for k in range(9))}
    let u = ({speeds[0]}) / rho, v = ({speeds[1]}) / rho, s = 1.5 * (u*u + v*v)
{writes}
  }}
}}
"""


def lbm_d2q9(t, d):
    f = torch.stack([torch.roll(t.f[k], (v, u), (0, 1)) for k, (u, v) in enumerate(WAYS)])
    ways = torch.tensor(WAYS, dtype=f.dtype, device=f.device)
    weights = torch.tensor(WEIGHTS, dtype=f.dtype, device=f.device)[:, None, None]
    rho = f.sum(0)
    u = torch.einsum("kc,khw->chw", ways, f) / rho
    c = torch.einsum("kc,chw->khw", ways, u)
    return f + t.rate * (weights * rho * (1 + 3 * c + 4.5 * c * c - 1.5 * u.square().sum(0)) - f)


# ---- instant-ngp: features of points from hashed grids of many resolutions
HASH = """tile 1
kernel hash_encode<T: f16 | f32>(X: f32[N, 3], table: T[L, S, 2], size: f32[L], Y: out T[N, L, 2], mask: u32)
key  bucket(N), L, S
tune BN = 32 | 64 | 16 | 128, threads = 128 | 256
grid n < ceildiv(N, BN)
{
  fragment y: f32[BN, L, 2]
  parallel i < BN, l < L, e < 2 {
    let x = X[n*BN + i, 0] * size[l], y0 = X[n*BN + i, 1] * size[l], z = X[n*BN + i, 2] * size[l]
    let a = floor(x), b = floor(y0), c = floor(z)
    y[i, l, e] = sum[k < 8](
      let u = u32(k & 1), v = u32(k >> 1 & 1), w = u32(k >> 2) in
      let at = ((u32(a) + u) ^ (u32(b) + v) * 2654435761 ^ (u32(c) + w) * 805459861) & mask in
      table[l, at, e] * (u == 1 ? x - a : 1 - (x - a)) * (v == 1 ? y0 - b : 1 - (y0 - b)) * (w == 1 ? z - c : 1 - (z - c)))
  }
  Y[n*BN +: BN, :, :] = y
}
"""


def hash_encode(t, d):
    x = t.X[:, None] * t.size[:, None]
    low = x.floor()
    f, low, y = x - low, low.long(), 0
    level = torch.arange(d["L"], device=x.device)
    for k in range(8):
        bits = [k & 1, k >> 1 & 1, k >> 2]
        at = low[..., 0] + bits[0] ^ (low[..., 1] + bits[1]) * 2654435761 ^ (low[..., 2] + bits[2]) * 805459861
        w = torch.stack([f[..., i] if bit else 1 - f[..., i] for i, bit in enumerate(bits)]).prod(0)
        y = y + t.table[level, at & t.mask].to(w.dtype) * w[..., None]
    return y.to(t.table.dtype)


CASES = [
    Case("sort_rows", SORT, {"large": dict(N=32768, M=1024), "odd": dict(N=10007, M=777), "small": dict(N=3, M=1001)},
         lambda t, d: t.X.sort(-1).values, types={"T": "f32"}),
    Case("fft1024", FFT, {"large": dict(N=16384), "odd": dict(N=5003), "small": dict(N=3)},
         lambda t, d: torch.view_as_real(torch.fft.fft(torch.view_as_complex(t.X))), fills={"turn": unit_roots}),
    Case("nbody", NBODY, {"large": dict(N=16384), "odd": dict(N=9001), "small": dict(N=90)}, nbody,
         fills={"soft": lambda s, t, d: 0.01, "P": lambda s, t, d: torch.rand(s, device=DEV) + 0.1},
         peers={"matmul": nbody_matmul}),
    Case("bilateral", BILATERAL, {"large": dict(N=8, H=1080, W=1920), "odd": dict(N=3, H=719, W=1277), "small": dict(N=1, H=19, W=41)},
         bilateral, types={"T": "f32"}, fills={"near": lambda s, t, d: 0.08, "alike": lambda s, t, d: 0.5}),
    Case("levenshtein", EDIT, {"large": dict(P=65536, L=128, M=127), "odd": dict(P=20011, L=101, M=149), "small": dict(P=9, L=23, M=31)},
         levenshtein, compiled=False,
         fills={n: lambda s, t, d: torch.randint(0, 4, s, device=DEV).to(torch.uint8) for n in "AB"}),
    Case("lbm_d2q9", lbm_text(), {"large": dict(H=2048, W=4096), "odd": dict(H=1021, W=3067), "small": dict(H=19, W=70)}, lbm_d2q9,
         fills={"rate": lambda s, t, d: 0.6, "f": lambda s, t, d: (torch.rand(s, device=DEV) + 0.5) * 0.1}),
    Case("hash_encode", HASH,
         {"large": dict(N=262144, L=16, S=1 << 19), "odd": dict(N=100003, L=13, S=1 << 17), "small": dict(N=50, L=5, S=1 << 10)},
         hash_encode, types={"T": "f16"},
         fills={"X": lambda s, t, d: torch.rand(s, device=DEV), "mask": lambda s, t, d: d["S"] - 1,
                "size": lambda s, t, d: (16 * 1.38 ** torch.arange(s[0], device=DEV)).floor()}),
]
