"""Stencils."""
import torch
import torch.nn.functional as F
from sets.shared.solvers import device, sizes
from unseen import Case


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

CASES = [
    Case("wave_eighth_order", WAVE, sizes(dict(H=8192, W=8192), dict(H=5003, W=4999), dict(H=9, W=13)), wave,
         fills={"C": lambda shape, t, d: torch.tensor([-205 / 72, 8 / 5, -1 / 5, 8 / 315, -1 / 560], device=device()),
                "V": lambda shape, t, d: torch.rand(shape, device=device()) * 0.2}),
    Case("stencil27", STENCIL27, sizes(dict(D=512, H=512, W=512), dict(D=251, H=331, W=307), dict(D=3, H=5, W=7)), stencil27,
         fills={"C": lambda shape, t, d: torch.tensor([0.5, 0.1, 0.03, 0.01], device=device())}, peers={"by axes": stencil27_separable}),
    Case("jacobi4", JACOBI, sizes(dict(H=8192, W=8192), dict(H=5003, W=4999), dict(H=9, W=13)), jacobi),
]
