"""Grouped, depthwise and separable convolutions."""
import torch.nn.functional as F
from sets.shared.convs import BF, HF, back, cl
from unseen import Case


# ---- grouped 3x3 ----------------------------------------------------------------------------------------------------
GROUPED = """tile 1
# ResNeXt: groups of G channels, each a product of its own.
kernel grouped3x3<T: f16 | bf16>(X: T[N, H, W, C], F: T[C, 3, 3, G], Y: out T[N*H*W, C])
where C % G == 0
key bucket(N), H, W, C, G
tune BM = 64 | 128 | 256, stages = 2 | 3 | 4, threads = 128 | 256
grid bm < ceildiv(N*H*W, BM), g < C / G
{
  shared   a: T[BM, G], f: T[G, G]
  fragment acc: f32[BM, G] = 0

  pipelined k < 9, stages {
    parallel i < BM, j < G {
      let m = bm*BM + i
      a[i, j] = X[m / (H*W), m / W % H + k / 3 - 1, m % W + k % 3 - 1, g*G + j]
    }
    f = F[g*G +: G, k / 3, k % 3, :]
    acc += a @ f^T
  }
  Y[bm*BM +: BM, g*G +: G] = acc
}
"""

GROUPED_DIAGONAL = """tile 1
# Groups of four channels: BC channels together are a product with a matrix of blocks on its diagonal.
kernel grouped3x3_diagonal<T: f16 | bf16>(X: T[N, H, W, C], F: T[C, 3, 3, G], Y: out T[N*H*W, C])
where C % G == 0
key bucket(N), H, W, C, G
tune BM = 64 | 128 | 256, BC = 16 | 32 | 64, stages = 2 | 3
grid bm < ceildiv(N*H*W, BM), c < ceildiv(C, BC)
{
  shared   a: T[BM, BC], f: T[BC, BC]
  fragment acc: f32[BM, BC] = 0

  pipelined k < 9, stages {
    parallel i < BM, j < BC {
      let m = bm*BM + i
      a[i, j] = X[m / (H*W), m / W % H + k / 3 - 1, m % W + k % 3 - 1, c*BC + j]
    }
    parallel o < BC, j < BC {
      f[o, j] = (c*BC + o) / G == (c*BC + j) / G ? F[c*BC + o, k / 3, k % 3, (c*BC + j) % G] : 0
    }
    acc += a @ f^T
  }
  Y[bm*BM +: BM, c*BC +: BC] = acc
}
"""

GROUPED_DIRECT = """tile 1
# Groups of four channels without tensor cores: each element of the result is a sum of 36 terms.
kernel grouped3x3_direct<T: f16 | bf16>(X: T[N, H, W, C], F: T[C, 3, 3, 4], Y: out T[N, H, W, C])
where C % 4 == 0
key bucket(N), H, W, C
tune BW = 4 | 8 | 16, BC = 32 | 64 | 128, threads = 128 | 256
grid n < N, h < H, w < ceildiv(W, BW), c < ceildiv(C, BC)
{
  fragment y: f32[BW, BC]
  parallel i < BW, j < BC {
    let o = c*BC + j
    y[i, j] = sum[r < 3, s < 3, q < 4](X[n, h + r - 1, w*BW + i + s - 1, o / 4 * 4 + q] * F[o, r, s, q])
  }
  Y[n, h, w*BW +: BW, c*BC +: BC] = y
}
"""


def grouped(t, d):
    return back(F.conv2d(cl(t.X), cl(t.F), padding=1, groups=d["C"] // t.F.shape[3])).reshape(t.Y.shape)


# ---- depthwise ------------------------------------------------------------------------------------------------------
DEPTHWISE = """tile 1
kernel depthwise3x3<T: f16 | bf16>(X: T[N, H, W, C], F: T[3, 3, C], B: T[C], Y: out T[N, H, W, C])
key bucket(N), H, W, C
tune BH = 1 | 2 | 4, BW = 4 | 8 | 16, BC = 32 | 64 | 128, threads = 128 | 256
where BH * BW * BC <= 4096
grid n < N, h < ceildiv(H, BH), w < ceildiv(W, BW), c < ceildiv(C, BC)
{
  fragment y: T[BH, BW, BC]
  parallel u < BH, v < BW, j < BC {
    y[u, v, j] = max(B[c*BC + j] + sum[r < 3, s < 3](X[n, h*BH + u + r - 1, w*BW + v + s - 1, c*BC + j] * F[r, s, c*BC + j]), 0)
  }
  Y[n, h*BH +: BH, w*BW +: BW, c*BC +: BC] = y
}
"""


def depthwise(t, d):
    y = F.conv2d(cl(t.X), t.F.permute(2, 0, 1)[:, None], t.B, padding=1, groups=d["C"])
    return back(F.relu(y))


DEPTHWISE_NCHW = """tile 1
# Stride 2 over planes, as mobile networks have it.
kernel depthwise_nchw<T: f32 | f16>(X: T[N, C, H, W], F: T[C, 3, 3], Y: out T[N, C, P, Q])
where P == (H + 1) / 2, Q == (W + 1) / 2
key bucket(N), C, H, W
tune BH = 1 | 4 | 8 | 16, BW = 32 | 64 | 128, threads = 128 | 256
where BH * BW <= 2048
grid n < N, c < C, h < ceildiv(P, BH), w < ceildiv(Q, BW)
{
  fragment y: f32[BH, BW]
  parallel u < BH, v < BW {
    y[u, v] = sum[r < 3, s < 3](X[n, c, 2*(h*BH + u) + r - 1, 2*(w*BW + v) + s - 1] * F[c, r, s])
  }
  Y[n, c, h*BH +: BH, w*BW +: BW] = y
}
"""

SEPARABLE = """tile 1
# MobileNet: the depthwise filter makes the left operand of the 1x1 product.
kernel separable<T: f16 | bf16>(X: T[N, H, W, C], D: T[3, 3, C], P: T[O, C], B: f32[O], Y: out T[N*H*W, O])
key bucket(N), H, W, C, O
tune BM = 64 | 128, BN = 64 | 128 | 256, BK = 32 | 64, stages = 2 | 3
grid bm < ceildiv(N*H*W, BM), bn < ceildiv(O, BN)
{
  shared   a: T[BM, BK], p: T[BN, BK]
  fragment acc: f32[BM, BN] = 0

  pipelined k < ceildiv(C, BK), stages {
    parallel i < BM, j < BK {
      let m = bm*BM + i, c = k*BK + j
      a[i, j] = max(sum[r < 3, s < 3](X[m / (H*W), m / W % H + r - 1, m % W + s - 1, c] * D[r, s, c]), 0)
    }
    p = P[bn*BN +: BN, k*BK +: BK]
    acc += a @ p^T
  }
  parallel i < BM, j < BN { acc[i, j] = clamp(acc[i, j] + B[bn*BN + j], 0, 6) }
  Y[bm*BM +: BM, bn*BN +: BN] = acc
}
"""


def separable(t, d):
    a = F.relu(F.conv2d(cl(t.X), t.D.permute(2, 0, 1)[:, None], padding=1, groups=d["C"]))
    y = back(F.conv2d(a, t.P[:, :, None, None])).reshape(t.Y.shape)
    return (y + t.B).clamp(0, 6).to(y.dtype)


CONVNEXT = """tile 1
# 7x7 depthwise, bias, layernorm over channels.
kernel convnext<T: f16 | bf16>(X: T[N, H, W, C], F: T[7, 7, C], B: T[C], G: T[C], S: T[C], Y: out T[N, H, W, C], eps: f32)
key bucket(N), H, W, C
tune BW = 1 | 2 | 4 | 8, threads = 128 | 256 | 512
grid n < N, h < H, w < ceildiv(W, BW)
{
  fragment y: f32[BW, C]
  parallel v < BW, c < C {
    y[v, c] = B[c] + sum[r < 7, s < 7](X[n, h + r - 3, w*BW + v + s - 3, c] * F[r, s, c])
  }
  parallel v < BW, c < C { y[v, c] -= sum[k < C](y[v, k]) / C }
  parallel v < BW, c < C { y[v, c] = y[v, c] * rsqrt(sum[k < C](y[v, k] * y[v, k]) / C + eps) * G[c] + S[c] }
  Y[n, h, w*BW +: BW, :] = y
}
"""


def convnext(t, d):
    y = back(F.conv2d(cl(t.X), t.F.permute(2, 0, 1)[:, None], t.B, padding=3, groups=d["C"]))
    return F.layer_norm(y, (d["C"],), t.G, t.S, 1e-6)


EPS6 = {"eps": lambda shape, t, d: 1e-6}
GC = {"large": dict(N=32, H=56, W=56, C=256), "odd": dict(N=13, H=53, W=59, C=416), "small": dict(N=1, H=5, W=3, C=64)}

CASES = [
    Case("grouped3x3_g32", GROUPED, {k: dict(v, G=32) for k, v in GC.items()}, grouped, types=HF),
    Case("grouped3x3_g4_diagonal", GROUPED_DIAGONAL, {k: dict(v, G=4) for k, v in GC.items()}, grouped, types=HF),
    Case("grouped3x3_g4_direct", GROUPED_DIRECT, GC, grouped, types=HF),
    Case("depthwise3x3", DEPTHWISE,
         {"large": dict(N=32, H=56, W=56, C=256), "odd": dict(N=17, H=61, W=47, C=333), "small": dict(N=2, H=5, W=3, C=7)},
         depthwise, types=BF),
    Case("depthwise_nchw_s2", DEPTHWISE_NCHW,
         {"large": dict(N=32, C=144, H=112, W=112, P=56, Q=56), "odd": dict(N=13, C=131, H=101, W=127, P=51, Q=64),
          "small": dict(N=2, C=3, H=7, W=5, P=4, Q=3)},
         lambda t, d: F.conv2d(t.X, t.F[:, None], stride=2, padding=1, groups=d["C"]), types=HF),
    Case("separable", SEPARABLE,
         {"large": dict(N=32, H=28, W=28, C=256, O=256), "odd": dict(N=11, H=43, W=37, C=200, O=331), "small": dict(N=1, H=4, W=5, C=8, O=7)},
         separable, types=BF),
    Case("convnext7x7_ln", CONVNEXT,
         {"large": dict(N=16, H=56, W=56, C=192), "odd": dict(N=7, H=41, W=43, C=251), "small": dict(N=1, H=3, W=9, C=13)},
         convnext, types=BF, fills=EPS6),
]
