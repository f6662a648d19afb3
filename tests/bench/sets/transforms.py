"""Fourier transforms and spectra."""
import math

import torch
from sets.shared.solvers import device, sizes
from unseen import Case


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


AUDIO = {"large": dict(B=64, N=480000, K=400, R=201, F=(480000 - 400) // 160 + 1), "odd": dict(B=13, N=333331, K=400, R=201, F=(333331 - 400) // 160 + 1),
         "small": dict(B=2, N=999, K=400, R=201, F=(999 - 400) // 160 + 1)}

CASES = [
    Case("fft256", FFT, sizes(dict(B=65536), dict(B=40009), dict(B=3)), fft_pairs, fills={"W": roots(256, 128)}, tolerance=1e-5, compiled=False),
    Case("fft_bluestein", BLUESTEIN, sizes(dict(B=16384, N=1003), dict(B=9973, N=751), dict(B=2, N=7)), fft_pairs, tolerance=1e-5, compiled=False,
         fills={"C": lambda shape, t, d: pair(chirp_of(d["N"])), "H": chirp_filter, "W": roots(2048, 1024)}),
    Case("dft_product", DFT, sizes(dict(B=8192, N=1003), dict(B=5003, N=251), dict(B=3, N=7)), fft_planes, tolerance=3e-3, compiled=False,
         fills={"C": waves(torch.cos), "S": waves(torch.sin)}, peers={"products tf32": dft_products}),
    Case("spectrogram", SPECTROGRAM, AUDIO, spectrogram, consts={"hop": HOP}, tolerance=3e-3, compiled=False,
         fills={"window": hann, "C": bins(torch.cos), "S": bins(torch.sin)}),
    Case("logmel", LOGMEL, {k: dict(v, G=80 if k != "odd" else 77) for k, v in AUDIO.items()}, logmel, consts={"hop": HOP}, tolerance=3e-3, compiled=False,
         fills={"window": hann, "C": bins(torch.cos), "S": bins(torch.sin), "M": lambda shape, t, d: torch.rand(shape, device=device())}),
]
