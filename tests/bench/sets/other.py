"""Convolutions, sampling, wave equations, scans of state space models, graphs, radio astronomy."""
import sys

import torch
import torch.nn.functional as F
from unseen import Case

DEV = "cpu" if "--check" in sys.argv or not torch.cuda.is_available() else "cuda"


# ---- a transposed convolution of 4 x 4 taps and stride 2: each quarter of the result is a convolution of 2 x 2 taps
UPCONV = """tile 1
kernel conv_transpose<T: f16 | bf16>(X: T[N, H, W, C], F: T[4, 4, O, C], bias: T[O], Y: out T[N*H, 2, W, 2, O])
key  bucket(N), H, W, C, O
tune auto BM, BN, BK, stages
grid q < 4, bm < ceildiv(N*H*W, BM), bn < ceildiv(O, BN)
{
  shared   a: T[BM, BK], f: T[BN, BK]
  fragment acc: f32[BM, BN] = 0
  let u = q / 2, v = q % 2, chunks = ceildiv(C, BK)

  pipelined k < 4*chunks, stages {
    let r = k / chunks / 2, s = k / chunks % 2, c = k % chunks * BK
    parallel i < BM, j < BK {
      let m = bm*BM + i
      a[i, j] = X[m / (H*W), m / W % H + u - r, m % W + v - s, c + j]
    }
    f = F[2*r + 1 - u, 2*s + 1 - v, bn*BN +: BN, c +: BK]
    acc += a @ f^T
  }
  parallel i < BM, j < BN {
    let m = bm*BM + i
    Y[m / W, u, m % W, v, bn*BN + j] = acc[i, j] + bias[bn*BN + j]
  }
}
"""


def conv_transpose(t, d):
    y = F.conv_transpose2d(t.X.permute(0, 3, 1, 2), t.F.permute(3, 2, 0, 1), t.bias, stride=2, padding=1)
    return y.permute(0, 2, 3, 1).reshape(t.Y.shape)


# ---- WaveNet: a causal dilated convolution of three taps, tanh times sigmoid
WAVENET = """tile 1
kernel wavenet_gate<T: f16 | bf16>(X: T[B, L, C], A: T[O, 3, C], G: T[O, 3, C], Y: out T[B, L, O], dilation: i32)
key  B, bucket(L), C, O
tune BM = 128 | 64, BN = 64 | 128, BK = 64 | 32, stages = 3 | 4 | 2
grid b < B, m < ceildiv(L, BM), n < ceildiv(O, BN)
{
  shared   x: T[BM, BK], a: T[BN, BK], g: T[BN, BK]
  fragment p: f32[BM, BN] = 0, q: f32[BM, BN] = 0
  let chunks = ceildiv(C, BK)

  pipelined k < 3*chunks, stages {
    let tap = k / chunks, c = k % chunks * BK
    x = X[b, m*BM - (2 - tap)*dilation +: BM, c +: BK]
    a = A[n*BN +: BN, tap, c +: BK]
    g = G[n*BN +: BN, tap, c +: BK]
    p += x @ a^T
    q += x @ g^T
  }
  parallel i < BM, j < BN { p[i, j] = tanh(p[i, j]) / (1 + exp(-q[i, j])) }
  Y[b, m*BM +: BM, n*BN +: BN] = p
}
"""


def wavenet_gate(t, d):
    x = F.pad(t.X.transpose(1, 2), (2 * t.dilation, 0))
    a, g = (F.conv1d(x, w.transpose(1, 2), dilation=t.dilation) for w in (t.A, t.G))
    return (torch.tanh(a) * torch.sigmoid(g)).transpose(1, 2)


# ---- bilinear sampling at given places, zeros outside
SAMPLE = """tile 1
kernel grid_sample<T: f32 | f16>(X: T[N, C, H, W], at: f32[N, P, 2], Y: out T[N, C, P])
key  bucket(N), C, H, W, bucket(P)
tune BP = 128 | 64 | 256, BC = 8 | 4 | 16 | 1, threads = 128 | 256
grid n < N, c < ceildiv(C, BC), p < ceildiv(P, BP)
{
  fragment y: f32[BC, BP]
  parallel i < BC, j < BP {
    let u = (at[n, p*BP + j, 0] + 1) * (0.5 * W) - 0.5, v = (at[n, p*BP + j, 1] + 1) * (0.5 * H) - 0.5
    let x0 = floor(u), y0 = floor(v), a = u - x0, b = v - y0
    let col = i32(x0), row = i32(y0), ch = c*BC + i
    y[i, j] = (1 - b) * ((1 - a) * X[n, ch, row, col] + a * X[n, ch, row, col + 1])
            + b * ((1 - a) * X[n, ch, row + 1, col] + a * X[n, ch, row + 1, col + 1])
  }
  Y[n, c*BC +: BC, p*BP +: BP] = y
}
"""


def grid_sample(t, d):
    return F.grid_sample(t.X, t.at[:, :, None], align_corners=False)[..., 0]


# ---- a step of the acoustic wave equation, of eighth order in space
WAVE = """tile 1
kernel wave3d(U: f32[Z, Y, X], old: f32[Z, Y, X], speed: f32[Z, Y, X], new: out f32[Z, Y, X])
key  Z, Y, X
tune BZ = 1 | 2 | 4, BY = 4 | 8 | 2, BX = 64 | 128 | 32, threads = 128 | 256
where BZ * BY * BX <= 4096
grid z < ceildiv(Z, BZ), y < ceildiv(Y, BY), x < ceildiv(X, BX)
{
  fragment r: f32[BZ, BY, BX]
  parallel i < BZ, j < BY, k < BX {
    let c = z*BZ + i, b = y*BY + j, a = x*BX + k
    let one  = U[c, b, a - 1] + U[c, b, a + 1] + U[c, b - 1, a] + U[c, b + 1, a] + U[c - 1, b, a] + U[c + 1, b, a]
    let two  = U[c, b, a - 2] + U[c, b, a + 2] + U[c, b - 2, a] + U[c, b + 2, a] + U[c - 2, b, a] + U[c + 2, b, a]
    let tri  = U[c, b, a - 3] + U[c, b, a + 3] + U[c, b - 3, a] + U[c, b + 3, a] + U[c - 3, b, a] + U[c + 3, b, a]
    let four = U[c, b, a - 4] + U[c, b, a + 4] + U[c, b - 4, a] + U[c, b + 4, a] + U[c - 4, b, a] + U[c + 4, b, a]
    let space = 1.6 * one - 0.2 * two + 0.025396825 * tri - 0.0017857143 * four - 8.5416667 * U[c, b, a]
    r[i, j, k] = 2 * U[c, b, a] - old[c, b, a] + speed[c, b, a] * space
  }
  new[z*BZ +: BZ, y*BY +: BY, x*BX +: BX] = r
}
"""


def wave3d(t, d):
    u = F.pad(t.U, (4,) * 6)
    space = -8.5416667 * t.U
    for k, weight in enumerate((1.6, -0.2, 0.025396825, -0.0017857143), 1):
        for axis in range(3):
            for step in (-k, k):
                part = u
                for other in range(3):
                    part = part.narrow(other, 4 + (step if other == axis else 0), t.U.shape[other])
                space = space + weight * part
    return 2 * t.U - t.old + t.speed * space


# ---- Mamba's selective scan
MAMBA = """tile 1
kernel selective_scan<T: f16 | bf16>(X: T[B, L, D], dt: T[B, L, D], A: f32[D, S], P: T[B, L, S], R: T[B, L, S], skip: f32[D],
                                     Y: out T[B, L, D])
key  B, bucket(L), D, S
tune BD = 32 | 16 | 64, BL = 32 | 16 | 64, stages = 2 | 3, threads = 128 | 256 | 64
grid b < B, d < ceildiv(D, BD)
{
  shared   x: T[BL, BD], t: T[BL, BD], p: T[BL, S], r: T[BL, S], y: f32[BL, BD]
  fragment h: f32[BD, S] = 0, a: f32[BD, S]

  a = A[d*BD +: BD, :]
  pipelined n < ceildiv(L, BL), stages {
    x = X[b, n*BL +: BL, d*BD +: BD]
    t = dt[b, n*BL +: BL, d*BD +: BD]
    p = P[b, n*BL +: BL, :]
    r = R[b, n*BL +: BL, :]
    for l < BL {
      parallel i < BD, s < S { h[i, s] = exp(t[l, i] * a[i, s]) * h[i, s] + t[l, i] * x[l, i] * p[l, s] }
      parallel i < BD { y[l, i] = sum[s < S](h[i, s] * r[l, s]) + skip[d*BD + i] * x[l, i] }
    }
    Y[b, n*BL +: BL, d*BD +: BD] = y
  }
}
"""


def selective_scan(t, d):
    kind = torch.float64 if t.X.dtype == torch.float64 else torch.float32
    x, dt, p, r = (v.to(kind) for v in (t.X, t.dt, t.P, t.R))
    h, rows, dx = torch.zeros(d["B"], d["D"], d["S"], dtype=kind, device=x.device), [], dt * x
    for n in range(d["L"]):
        h = torch.exp(dt[:, n, :, None] * t.A) * h + dx[:, n, :, None] * p[:, n, None]
        rows.append(torch.einsum("bds,bs->bd", h, r[:, n]))
    return (torch.stack(rows, 1) + t.skip * x).to(t.X.dtype)


# ---- a layer of a graph attention network: a softmax over the edges that enter a node
GAT = """tile 1
kernel gat<T: f16 | bf16>(X: T[N, H, D], left: f32[N, H], right: f32[N, H], first: i32[P], source: i32[E], Y: out T[N, H, D])
where P == N + 1
key  bucket(N), H, D, bucket(E)
tune BE = 16 | 8 | 32, threads = 128 | 64 | 256 | 32
grid n < N
{
  fragment x: f32[BE, H, D], e: f32[BE, H], y: f32[H, D] = 0
  fragment m: f32[H] = -1e30, l: f32[H] = 0, alpha: f32[H]
  let begin = first[n], count = first[n + 1] - begin
  for k < ceildiv(count, BE) {
    x = X[source[begin + k*BE +: BE] within begin +: count pad -1, :, :]
    parallel i < BE, h < H {
      let z = left[source[begin + k*BE + i], h] + right[n, h]
      e[i, h] = k*BE + i < count ? max(z, 0.2 * z) : -inf
    }
    parallel h < H {
      let most = max(m[h], max[i < BE](e[i, h]))
      alpha[h] = exp(m[h] - most)
      m[h] = most
    }
    parallel i < BE, h < H { e[i, h] = exp(e[i, h] - m[h]) }
    parallel h < H { l[h] = l[h] * alpha[h] + sum[i < BE](e[i, h]) }
    parallel h < H, d < D { y[h, d] = y[h, d] * alpha[h] + sum[i < BE](e[i, h] * x[i, h, d]) }
  }
  parallel h < H, d < D { y[h, d] = l[h] > 0 ? y[h, d] / l[h] : 0 }
  Y[n, :, :] = y
}
"""


def edge_starts(shape, t, d):
    t.target = torch.randint(0, d["N"], (d["E"],), device=DEV).sort().values
    return F.pad(torch.bincount(t.target, minlength=d["N"]).cumsum(0), (1, 0)).to(torch.int32)


def gat(t, d):
    source, n, h = t.source.long(), d["N"], d["H"]
    e = F.leaky_relu(t.left[source] + t.right[t.target], 0.2)
    m = e.new_full((n, h), float("-inf")).scatter_reduce(0, t.target[:, None].expand(-1, h), e, "amax")
    w = torch.exp(e - m[t.target])
    total = e.new_zeros(n, h).index_add(0, t.target, w)
    y = e.new_zeros(n, h, d["D"]).index_add(0, t.target, w[..., None] * t.X[source])
    return torch.where(total[..., None] > 0, y / total[..., None], 0.0).to(t.X.dtype)


# ---- a correlator of a radio telescope: V = x x^H of interleaved complex samples, for each channel
CORRELATOR = """tile 1
kernel correlator<T: f16 | bf16>(X: T[C, S, A, 2], V: out f32[C, A, A, 2])
key  C, bucket(S), A
tune BM = 64 | 128, BN = 64 | 128, BS = 32 | 64, stages = 2 | 3
where BM * BN <= 64 * 128
grid c < C, m < ceildiv(A, BM), n < ceildiv(A, BN)
{
  shared   ar: T[BS, BM], ai: T[BS, BM], br: T[BS, BN], bi: T[BS, BN]
  fragment re: f32[BM, BN] = 0, ir: f32[BM, BN] = 0, ri: f32[BM, BN] = 0
  pipelined s < ceildiv(S, BS), stages {
    ar = X[c, s*BS +: BS, m*BM +: BM, 0]
    ai = X[c, s*BS +: BS, m*BM +: BM, 1]
    br = X[c, s*BS +: BS, n*BN +: BN, 0]
    bi = X[c, s*BS +: BS, n*BN +: BN, 1]
    re += ar^T @ br
    re += ai^T @ bi
    ir += ai^T @ br
    ri += ar^T @ bi
  }
  parallel i < BM, j < BN { ir[i, j] -= ri[i, j] }
  V[c, m*BM +: BM, n*BN +: BN, 0] = re
  V[c, m*BM +: BM, n*BN +: BN, 1] = ir
}
"""


def correlator(t, d):
    z = t.X.flatten(2)
    g = torch.bmm(z.transpose(1, 2), z).view(d["C"], d["A"], 2, d["A"], 2)
    g = g if g.dtype == torch.float64 else g.float()
    return torch.stack((g[:, :, 0, :, 0] + g[:, :, 1, :, 1], g[:, :, 1, :, 0] - g[:, :, 0, :, 1]), -1)


def randn(shape, scale, dtype):
    return (torch.randn(shape, device=DEV) * scale).to(dtype)


def times(shape, t, d):
    return F.softplus(torch.randn(shape, device=DEV) - 2).to(t.X.dtype)


B16 = {"T": "bf16"}
CASES = [
    Case("conv_transpose", UPCONV,
         {"large": dict(N=16, H=64, W=64, C=512, O=256), "odd": dict(N=5, H=47, W=53, C=200, O=136),
          "small": dict(N=2, H=5, W=7, C=24, O=20)}, conv_transpose, types=B16),
    Case("wavenet_gate", WAVENET,
         {"large": dict(B=8, L=16384, C=256, O=256), "odd": dict(B=3, L=10007, C=152, O=131),
          "small": dict(B=2, L=90, C=24, O=17)}, wavenet_gate, types=B16,
         fills={"dilation": lambda s, t, d: 64 if d["L"] > 1000 else 7, "A": lambda s, t, d: randn(s, (3 * s[2]) ** -0.5, t.X.dtype),
                "G": lambda s, t, d: randn(s, (3 * s[2]) ** -0.5, t.X.dtype)}),
    Case("grid_sample", SAMPLE,
         {"large": dict(N=8, C=64, H=256, W=256, P=65536), "odd": dict(N=3, C=37, H=181, W=203, P=40009),
          "small": dict(N=2, C=5, H=13, W=17, P=150)}, grid_sample, types={"T": "f32"},
         fills={"at": lambda s, t, d: torch.rand(s, device=DEV) * 2.2 - 1.1}),
    Case("wave3d", WAVE, {"large": dict(Z=320, Y=384, X=512), "odd": dict(Z=211, Y=199, X=307), "small": dict(Z=7, Y=9, X=70)},
         wave3d, fills={"speed": lambda s, t, d: torch.rand(s, device=DEV) * 0.1 + 0.02}),
    Case("selective_scan", MAMBA,
         {"large": dict(B=4, L=1024, D=4096, S=16), "odd": dict(B=3, L=701, D=1531, S=16), "small": dict(B=1, L=70, D=37, S=8)},
         selective_scan, types=B16, compiled=False,
         fills={"dt": times, "A": lambda s, t, d: -torch.rand(s, device=DEV) * s[1] - 0.5}),
    Case("gat", GAT,
         {"large": dict(N=100000, H=4, D=32, E=1600000, P=100001), "odd": dict(N=30011, H=3, D=40, E=400009, P=30012),
          "small": dict(N=30, H=2, D=12, E=200, P=31)}, gat, types={"T": "f16"},
         fills={"first": edge_starts, "source": lambda s, t, d: torch.randint(0, d["N"], s, device=DEV).to(torch.int32)}),
    Case("correlator", CORRELATOR,
         {"large": dict(C=64, S=1024, A=256), "odd": dict(C=37, S=1001, A=197), "small": dict(C=2, S=50, A=37)},
         correlator, types={"T": "f16"}, reference=correlator),
]
