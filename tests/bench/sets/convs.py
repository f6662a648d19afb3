"""Convolutions and their neighbours: grouped, depthwise, deformable, causal, dilated, pooling, upsampling, statistics."""
import torch
import torch.nn.functional as F
from unseen import Case

try:
    from torchvision.ops import deform_conv2d
except Exception:  # noqa: BLE001
    deform_conv2d = None

BF = {"T": "bf16"}
HF = {"T": "f16"}


def cl(x):
    """NHWC in memory as torch's NCHW view"""
    return x.permute(0, 3, 1, 2)


def back(y):
    return y.permute(0, 2, 3, 1)


def scaled(factor):
    return lambda shape, t, d: (torch.randn(shape, device=t.X.device) * factor).to(t.X.dtype)


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


# ---- deformable -----------------------------------------------------------------------------------------------------
DEFORMABLE = """tile 1
# DCNv2: each tap of each pixel has a place of its own, read bilinearly, and a weight. Outside of the image is 0.
kernel deformable<T: f16 | bf16>(X: T[N, H, W, C], offset: f32[N*H*W, 9, 2], mask: f32[N*H*W, 9], F: T[O, 9, C], Y: out T[N*H*W, O])
key bucket(N), H, W, C, O
tune BM = 64 | 128, BN = 64 | 128 | 256, BK = 32 | 64, stages = 2 | 3
grid bm < ceildiv(N*H*W, BM), bn < ceildiv(O, BN)
{
  shared   a: T[BM, BK], f: T[BN, BK]
  fragment acc: f32[BM, BN] = 0
  let chunks = ceildiv(C, BK)

  pipelined k < 9*chunks, stages {
    let tap = k / chunks, c = k % chunks * BK
    parallel i < BM, j < BK {
      let m = bm*BM + i
      let n = m / (H*W)
      let y = f32(m / W % H + tap / 3 - 1) + offset[m, tap, 0]
      let x = f32(m % W + tap % 3 - 1) + offset[m, tap, 1]
      let y0 = floor(y), x0 = floor(x)
      let fy = y - y0, fx = x - x0
      let iy = i32(y0), ix = i32(x0)
      a[i, j] = mask[m, tap] * ((1 - fy) * ((1 - fx) * X[n, iy, ix, c + j] + fx * X[n, iy, ix + 1, c + j])
                                     + fy * ((1 - fx) * X[n, iy + 1, ix, c + j] + fx * X[n, iy + 1, ix + 1, c + j]))
    }
    f = F[bn*BN +: BN, tap, c +: BK]
    acc += a @ f^T
  }
  Y[bm*BM +: BM, bn*BN +: BN] = acc
}
"""


def deformable(t, d):
    n, h, w, c, o = (d[k] for k in "NHWCO")
    off = t.offset.view(n, h, w, 9, 2)
    dev, dt = t.X.device, off.dtype
    ys = torch.arange(h, device=dev, dtype=dt).view(1, h, 1, 1) + torch.arange(9, device=dev).div(3, rounding_mode="floor") - 1
    xs = torch.arange(w, device=dev, dtype=dt).view(1, 1, w, 1) + torch.arange(9, device=dev) % 3 - 1
    gy = (ys + off[..., 0]) * (2.0 / max(h - 1, 1)) - 1
    gx = (xs + off[..., 1]) * (2.0 / max(w - 1, 1)) - 1
    grid = torch.stack((gx, gy), -1).view(n, h, w * 9, 2)
    v = F.grid_sample(cl(t.X).to(dt), grid, mode="bilinear", padding_mode="zeros", align_corners=True)
    v = v.view(n, c, h, w, 9) * t.mask.view(n, 1, h, w, 9)
    a = v.permute(0, 2, 3, 4, 1).to(t.X.dtype).reshape(n * h * w, 9 * c)
    return a @ t.F.view(o, 9 * c).T


def deformable_vision(t, d):
    if deform_conv2d is None:
        raise RuntimeError("no torchvision")
    n, h, w = (d[k] for k in "NHW")
    dt = t.X.dtype
    off = t.offset.view(n, h, w, 18).permute(0, 3, 1, 2).to(dt).contiguous()
    return deform_conv2d(cl(t.X).contiguous(), off, t.F.view(d["O"], 3, 3, d["C"]).permute(0, 3, 1, 2).contiguous(),
                         padding=1, mask=t.mask.view(n, h, w, 9).permute(0, 3, 1, 2).to(dt).contiguous())


INVOLUTION = """tile 1
# Involution: a 7x7 filter for each pixel and group of channels.
kernel involution<T: f16 | bf16>(X: T[N, H, W, C], K: T[N, H, W, G, 49], Y: out T[N, H, W, C])
where C % G == 0
key bucket(N), H, W, C, G
tune BW = 2 | 4 | 8 | 16, BC = 32 | 64 | 128, threads = 128 | 256
grid n < N, h < H, w < ceildiv(W, BW), c < ceildiv(C, BC)
{
  fragment y: f32[BW, BC]
  parallel v < BW, j < BC {
    let o = c*BC + j, x = w*BW + v
    y[v, j] = sum[r < 7, s < 7](X[n, h + r - 3, x + s - 3, o] * K[n, h, x, o / (C / G), 7*r + s])
  }
  Y[n, h, w*BW +: BW, c*BC +: BC] = y
}
"""


def involution(t, d):
    n, h, w, c, g = (d[k] for k in "NHWCG")
    u = F.pad(t.X, (0, 0, 3, 3, 3, 3)).unfold(1, 7, 1).unfold(2, 7, 1)          # n h w c 7 7, a view
    y = (u.reshape(n, h, w, g, c // g, 49) * t.K[:, :, :, :, None]).sum(-1)
    return y.reshape(n, h, w, c)


# ---- one dimension --------------------------------------------------------------------------------------------------
CAUSAL = """tile 1
# The short convolution of a state-space model: four taps back, bias, silu.
kernel causal4<T: f16 | bf16>(X: T[B, L, D], W: T[D, 4], bias: T[D], Y: out T[B, L, D])
key bucket(B), bucket(L), D
tune BL = 4 | 8 | 16 | 32, BD = 64 | 128 | 256, threads = 128 | 256
where BL * BD <= 4096
grid b < B, l < ceildiv(L, BL), d < ceildiv(D, BD)
{
  fragment y: T[BL, BD]
  parallel i < BL, j < BD {
    let c = d*BD + j
    let v = bias[c] + sum[k < 4](X[b, l*BL + i + k - 3, c] * W[c, k])
    y[i, j] = v * rcp(1 + exp(-v))
  }
  Y[b, l*BL +: BL, d*BD +: BD] = y
}
"""


def causal(t, d):
    y = F.conv1d(t.X.transpose(1, 2), t.W[:, None], t.bias, padding=3, groups=d["D"])[..., :d["L"]]
    return F.silu(y).transpose(1, 2)


def causal_shifts(t, d):
    x = F.pad(t.X, (0, 0, 3, 0)).float()
    w = t.W.float()
    y = t.bias.float() + sum(x[:, k:k + d["L"]] * w[:, k] for k in range(4))
    return F.silu(y).to(t.X.dtype)


WAVENET = """tile 1
# A dilated causal convolution with a gate: tanh of one half of the channels times the sigmoid of the other one.
kernel wavenet<T: f16 | bf16>(X: T[B, L, C], F: T[R, 3, C], bias: f32[R], Y: out T[B, L, O], dilation: i32)
where R == 2*O
key bucket(B), bucket(L), C, O
tune BM = 64 | 128, BN = 32 | 64 | 128, BK = 32 | 64, stages = 2 | 3 | 4
grid b < B, l < ceildiv(L, BM), o < ceildiv(O, BN)
{
  shared   x: T[BM, BK], f: T[BN, BK], g: T[BN, BK]
  fragment u: f32[BM, BN] = 0, v: f32[BM, BN] = 0
  let chunks = ceildiv(C, BK)

  pipelined k < 3*chunks, stages {
    let tap = k / chunks, c = k % chunks * BK
    x = X[b, l*BM - (2 - tap) * dilation +: BM, c +: BK]
    f = F[o*BN +: BN, tap, c +: BK]
    g = F[O + o*BN +: BN, tap, c +: BK]
    u += x @ f^T
    v += x @ g^T
  }
  parallel i < BM, j < BN {
    u[i, j] = tanh(u[i, j] + bias[o*BN + j]) * rcp(1 + exp(-(v[i, j] + bias[O + o*BN + j])))
  }
  Y[b, l*BM +: BM, o*BN +: BN] = u
}
"""


def wavenet(t, d):
    x = F.pad(t.X, (0, 0, 2 * d["dil"], 0)).transpose(1, 2)
    y = F.conv1d(x, t.F.permute(0, 2, 1), dilation=d["dil"]).transpose(1, 2) + t.bias
    a, b = y.split(d["O"], -1)
    return (torch.tanh(a) * torch.sigmoid(b)).to(t.X.dtype)


def wavenet_product(t, d):
    x = F.pad(t.X, (0, 0, 2 * d["dil"], 0))
    x = torch.cat([x[:, k * d["dil"]:k * d["dil"] + d["L"]] for k in range(3)], -1)
    y = x @ t.F.reshape(2 * d["O"], -1).T + t.bias
    a, b = y.split(d["O"], -1)
    return (torch.tanh(a) * torch.sigmoid(b)).to(t.X.dtype)


# ---- pixel shuffle --------------------------------------------------------------------------------------------------
SHUFFLE = """tile 1
# Sub-pixel convolution: channel 4c + 2u + v of a 3x3 convolution is pixel (2y + u, 2x + v) of channel c.
kernel subpixel<T: f16 | bf16>(X: T[N, H, W, C], F: T[R, 9, C], Y: out T[N, 2*H, 2*W, O])
where R == 4*O
key bucket(N), H, W, C, O
tune BM = 64 | 128, BN = 64 | 128 | 256, BK = 32 | 64, stages = 2 | 3 | 4
grid bm < ceildiv(N*H*W, BM), bn < ceildiv(4*O, BN)
{
  shared   a: T[BM, BK], f: T[BN, BK]
  fragment acc: f32[BM, BN] = 0
  let chunks = ceildiv(C, BK)

  pipelined k < 9*chunks, stages {
    let tap = k / chunks, c = k % chunks * BK
    parallel i < BM, j < BK {
      let m = bm*BM + i
      a[i, j] = X[m / (H*W), m / W % H + tap / 3 - 1, m % W + tap % 3 - 1, c + j]
    }
    f = F[bn*BN +: BN, tap, c +: BK]
    acc += a @ f^T
  }
  parallel i < BM, j < BN {
    let m = bm*BM + i, o = bn*BN + j
    Y[m / (H*W), m / W % H * 2 + o / 2 % 2, m % W * 2 + o % 2, o / 4] = acc[i, j]
  }
}
"""


def subpixel(t, d):
    y = F.conv2d(cl(t.X), t.F.view(4 * d["O"], 3, 3, d["C"]).permute(0, 3, 1, 2), padding=1)
    return back(F.pixel_shuffle(y, 2))


# ---- pooling, upsampling --------------------------------------------------------------------------------------------
MAXPOOL = """tile 1
# 3x3, stride 2, border 1.
kernel maxpool<T: f16 | bf16>(X: T[N, H, W, C], Y: out T[N, P, Q, C])
where P == (H + 1) / 2, Q == (W + 1) / 2
key bucket(N), H, W, C
tune BW = 2 | 4 | 8 | 16, BC = 32 | 64 | 128, threads = 128 | 256
grid n < N, p < P, w < ceildiv(Q, BW), c < ceildiv(C, BC)
{
  fragment y: T[BW, BC]
  parallel v < BW, j < BC {
    y[v, j] = max[r < 3, s < 3](
      let a = 2*p + r - 1, b = 2*(w*BW + v) + s - 1 in
      a >= 0 && a < H && b >= 0 && b < W ? X[n, a, b, c*BC + j] : -inf)
  }
  Y[n, p, w*BW +: BW, c*BC +: BC] = y
}
"""

MAXPOOL_INDEX = """tile 1
# 2x2, stride 2, of planes, and where in its plane each maximum stands.
kernel maxpool_index<T: f32 | f16>(X: T[R, H, W], Y: out T[R, P, Q], I: out i64[R, P, Q])
where P == H / 2, Q == W / 2
key bucket(R), H, W
tune BP = 1 | 4 | 8, BQ = 32 | 64 | 128, threads = 64 | 128 | 256
grid r < R, p < ceildiv(P, BP), q < ceildiv(Q, BQ)
{
  fragment y: T[BP, BQ], at: i64[BP, BQ]
  parallel u < BP, v < BQ {
    let a = 2*(p*BP + u), b = 2*(q*BQ + v)
    let k = argmax[g < 2, h < 2](X[r, a + g, b + h])
    y[u, v] = X[r, a + k / 2, b + k % 2]
    at[u, v] = (a + k / 2) * W + b + k % 2
  }
  Y[r, p*BP +: BP, q*BQ +: BQ] = y
  I[r, p*BP +: BP, q*BQ +: BQ] = at
}
"""

AVGPOOL = """tile 1
# 3x3, stride 2, border 1 of which nothing counts; planes.
kernel avgpool<T: f32 | f16 | bf16>(X: T[R, H, W], Y: out T[R, P, Q])
where P == (H + 1) / 2, Q == (W + 1) / 2
key bucket(R), H, W
tune BP = 1 | 2 | 4 | 8, BQ = 32 | 64 | 128, threads = 64 | 128 | 256
grid r < R, p < ceildiv(P, BP), q < ceildiv(Q, BQ)
{
  fragment y: T[BP, BQ]
  parallel u < BP, v < BQ {
    let a = 2*(p*BP + u) - 1, b = 2*(q*BQ + v) - 1
    let rows = min(a + 3, H) - max(a, 0), columns = min(b + 3, W) - max(b, 0)
    y[u, v] = sum[g < 3, h < 3](X[r, a + g, b + h]) / f32(rows * columns)
  }
  Y[r, p*BP +: BP, q*BQ +: BQ] = y
}
"""

GLOBALPOOL = """tile 1
kernel globalpool<T: f16 | bf16>(X: T[R, P], Y: out T[R])
key bucket(R), P
tune rows = 1 | 2 | 4 | 8 | 16, threads = 64 | 128 | 256
grid r < ceildiv(R, rows)
{
  fragment x: T[rows, P], y: f32[rows]
  x = X[r*rows +: rows, :]
  parallel i < rows { y[i] = sum[p < P](x[i, p]) / P }
  Y[r*rows +: rows] = y
}
"""

BILINEAR = """tile 1
# Any factor, half-pixel centres; planes.
kernel bilinear<T: f32 | f16 | bf16>(X: T[R, H, W], Y: out T[R, P, Q])
key bucket(R), H, W, P, Q
tune BP = 1 | 2 | 4 | 8, BQ = 64 | 128 | 256, threads = 64 | 128 | 256
grid r < R, p < ceildiv(P, BP), q < ceildiv(Q, BQ)
{
  fragment y: T[BP, BQ]
  parallel u < BP, v < BQ {
    let a = max((f32(p*BP + u) + 0.5) * (f32(H) / f32(P)) - 0.5, 0), b = max((f32(q*BQ + v) + 0.5) * (f32(W) / f32(Q)) - 0.5, 0)
    let i = min(i32(a), H - 1), j = min(i32(b), W - 1)
    let k = min(i + 1, H - 1), l = min(j + 1, W - 1)
    let fa = a - f32(i), fb = b - f32(j)
    y[u, v] = (1 - fa) * ((1 - fb) * X[r, i, j] + fb * X[r, i, l]) + fa * ((1 - fb) * X[r, k, j] + fb * X[r, k, l])
  }
  Y[r, p*BP +: BP, q*BQ +: BQ] = y
}
"""

BILINEAR_NHWC = """tile 1
# Twice as large, with a skip connection added, as decoders of segmentation have it.
kernel bilinear_skip<T: f16 | bf16>(X: T[N, H, W, C], S: T[N, 2*H, 2*W, C], Y: out T[N, 2*H, 2*W, C])
key bucket(N), H, W, C
tune BQ = 2 | 4 | 8 | 16, BC = 32 | 64 | 128, threads = 128 | 256
grid n < N, p < 2*H, q < ceildiv(2*W, BQ), c < ceildiv(C, BC)
{
  fragment y: f32[BQ, BC], s: T[BQ, BC]
  s = S[n, p, q*BQ +: BQ, c*BC +: BC]
  parallel v < BQ, e < BC {
    let at = q*BQ + v
    let i = max(p - 1, 0) / 2, j = max(at - 1, 0) / 2
    let k = min(i + 1, H - 1), l = min(j + 1, W - 1)
    let fa = p == 0 ? 0.0 : (p % 2 == 0 ? 0.75 : 0.25), fb = at == 0 ? 0.0 : (at % 2 == 0 ? 0.75 : 0.25)
    let o = c*BC + e
    y[v, e] = s[v, e] + (1 - fa) * ((1 - fb) * X[n, i, j, o] + fb * X[n, i, l, o]) + fa * ((1 - fb) * X[n, k, j, o] + fb * X[n, k, l, o])
  }
  Y[n, p, q*BQ +: BQ, c*BC +: BC] = y
}
"""

# ---- three dimensions -----------------------------------------------------------------------------------------------
CONV3D = """tile 1
kernel conv3d<T: f16 | bf16>(X: T[N, D, H, W, C], F: T[O, 27, C], Y: out T[N*D*H*W, O])
key bucket(N), D, H, W, C, O
tune BM = 64 | 128 | 256, BN = 64 | 128, BK = 32 | 64, stages = 2 | 3 | 4
grid bm < ceildiv(N*D*H*W, BM), bn < ceildiv(O, BN)
{
  shared   a: T[BM, BK], f: T[BN, BK]
  fragment acc: f32[BM, BN] = 0
  let chunks = ceildiv(C, BK)

  pipelined k < 27*chunks, stages {
    let tap = k / chunks, c = k % chunks * BK
    let q = tap / 9 - 1, r = tap / 3 % 3 - 1, s = tap % 3 - 1
    parallel i < BM, j < BK {
      let m = bm*BM + i
      a[i, j] = X[m / (D*H*W), m / (H*W) % D + q, m / W % H + r, m % W + s, c + j]
    }
    f = F[bn*BN +: BN, tap, c +: BK]
    acc += a @ f^T
  }
  Y[bm*BM +: BM, bn*BN +: BN] = acc
}
"""


def conv3d(t, d):
    w = t.F.view(d["O"], 3, 3, 3, d["C"]).permute(0, 4, 1, 2, 3)
    return F.conv3d(t.X.permute(0, 4, 1, 2, 3), w, padding=1).permute(0, 2, 3, 4, 1).reshape(t.Y.shape)


# ---- batch norm -----------------------------------------------------------------------------------------------------
BN_KERNELS = """tile 1
kernel sums<T: f32 | f16 | bf16>(X: T[N, C, P], part: out f32[S, 2, C])
key bucket(N), C, P, S
tune BP = 512 | 1024 | 2048 | 4096, threads = 128 | 256 | 512
grid s < S, c < C
{
  fragment x: f32[BP], one: f32[1] = 0, two: f32[1] = 0
  let share = ceildiv(N, S)
  for n in s*share .. min(N, (s + 1)*share) {
    for p < ceildiv(P, BP) {
      x = X[n, c, p*BP +: BP]
      parallel i < 1 {
        one[i] += sum[j < BP](x[j])
        two[i] += sum[j < BP](x[j] * x[j])
      }
    }
  }
  part[s, 0, c +: 1] = one
  part[s, 1, c +: 1] = two
}

kernel join(part: f32[S, 2, C], mean: out f32[C], variance: out f32[C], count: i64)
key C, S
tune BC = 32 | 64, threads = 32 | 64
grid c < ceildiv(C, BC)
{
  fragment m: f32[BC], v: f32[BC]
  parallel j < BC {
    m[j] = sum[s < S](part[s, 0, c*BC + j]) / f32(count)
    v[j] = max(sum[s < S](part[s, 1, c*BC + j]) / f32(count) - m[j] * m[j], 0)
  }
  mean[c*BC +: BC] = m
  variance[c*BC +: BC] = v
}

kernel apply<T: f32 | f16 | bf16>(X: T[N, C, P], mean: f32[C], variance: f32[C], G: f32[C], B: f32[C], Y: out T[N, C, P], eps: f32)
key bucket(N), C, P
tune BP = 512 | 1024 | 2048 | 4096, threads = 128 | 256 | 512
grid n < N, c < C, p < ceildiv(P, BP)
{
  fragment x: f32[BP]
  let g = G[c] * rsqrt(variance[c] + eps)
  let b = B[c] - mean[c] * g
  x = X[n, c, p*BP +: BP]
  parallel j < BP { x[j] = max(x[j] * g + b, 0) }
  Y[n, c, p*BP +: BP] = x
}

program stats<T: f32 | f16 | bf16>(X: T[N, C, P], mean: out f32[C], variance: out f32[C])
key bucket(N), C, P
tune parts = 1 | 4 | 8 | 16
{
  temp part: f32[parts, 2, C]
  sums(X, part)
  join(part, mean, variance, N*P)
}

program train<T: f32 | f16 | bf16>(X: T[N, C, P], G: f32[C], B: f32[C], Y: out T[N, C, P], mean: out f32[C], variance: out f32[C], eps: f32)
key bucket(N), C, P
tune parts = 1 | 4 | 8 | 16
{
  temp part: f32[parts, 2, C]
  sums(X, part)
  join(part, mean, variance, N*P)
  apply(X, mean, variance, G, B, Y, eps)
}
"""


def bn_stats(t, d):
    x = t.X if t.X.dtype in (torch.float64, torch.float32) else t.X.float()
    v, m = torch.var_mean(x, dim=(0, 2), correction=0)
    return m, v


def bn_native(t, d):
    y, m, r = torch.ops.aten.native_batch_norm(t.X, t.G, t.B, None, None, True, 0.0, 1e-5)
    return F.relu(y), m, r


def bn_train(t, d):
    x = t.X if t.X.dtype in (torch.float64, torch.float32) else t.X.float()
    v, m = torch.var_mean(x, dim=(0, 2), correction=0)
    y = F.relu(F.batch_norm(t.X, None, None, t.G, t.B, True, 0.0, 1e-5))
    return y, m, v


EPS6 = {"eps": lambda shape, t, d: 1e-6}
BN_SHAPES = {"large": dict(N=64, C=256, P=56 * 56), "odd": dict(N=37, C=131, P=53 * 51), "small": dict(N=3, C=5, P=35)}
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
    Case("deformable", DEFORMABLE,
         {"large": dict(N=8, H=64, W=64, C=256, O=256), "odd": dict(N=3, H=61, W=47, C=200, O=187), "small": dict(N=1, H=5, W=4, C=8, O=6)},
         deformable, types=HF, peers={"torchvision": deformable_vision},
         fills={"offset": lambda shape, t, d: torch.randn(shape, device=t.X.device) * 2,
                "mask": lambda shape, t, d: torch.rand(shape, device=t.X.device)}),
    Case("involution7x7", INVOLUTION,
         {"large": dict(N=8, H=56, W=56, C=256, G=16), "odd": dict(N=5, H=37, W=41, C=285, G=19), "small": dict(N=1, H=3, W=5, C=8, G=2)},
         involution, types=HF),
    Case("causal_conv4_silu", CAUSAL,
         {"large": dict(B=8, L=4096, D=2048), "odd": dict(B=3, L=2999, D=1537), "small": dict(B=2, L=5, D=9)},
         causal, types=BF, peers={"shifts": causal_shifts}),
    Case("wavenet_dilated", WAVENET,
         {"large": dict(B=8, L=16384, C=128, O=128, R=256, dil=16), "odd": dict(B=3, L=7919, C=120, O=101, R=202, dil=27),
          "small": dict(B=2, L=11, C=8, O=5, R=10, dil=3)},
         wavenet, types=HF, fills={"dilation": lambda shape, t, d: d["dil"], "F": scaled(0.05)}, peers={"product": wavenet_product}),
    Case("subpixel_conv", SHUFFLE,
         {"large": dict(N=4, H=180, W=320, C=64, O=64, R=256), "odd": dict(N=3, H=101, W=89, C=72, O=37, R=148),
          "small": dict(N=1, H=3, W=5, C=8, O=3, R=12)},
         subpixel, types=HF),
    Case("maxpool3x3_s2", MAXPOOL,
         {"large": dict(N=64, H=112, W=112, C=64, P=56, Q=56), "odd": dict(N=31, H=101, W=113, C=67, P=51, Q=57), "small": dict(N=1, H=5, W=6, C=7, P=3, Q=3)},
         lambda t, d: back(F.max_pool2d(cl(t.X), 3, 2, 1)), types=BF),
    Case("maxpool2x2_index", MAXPOOL_INDEX,
         {"large": dict(R=4096, H=112, W=112, P=56, Q=56), "odd": dict(R=2003, H=101, W=127, P=50, Q=63), "small": dict(R=3, H=5, W=6, P=2, Q=3)},
         lambda t, d: F.max_pool2d(t.X, 2, 2, return_indices=True), types={"T": "f16"}),
    Case("avgpool3x3_s2", AVGPOOL,
         {"large": dict(R=4096, H=112, W=112, P=56, Q=56), "odd": dict(R=2003, H=101, W=127, P=51, Q=64), "small": dict(R=3, H=5, W=6, P=3, Q=3)},
         lambda t, d: F.avg_pool2d(t.X, 3, 2, 1, count_include_pad=False), types=BF),
    Case("globalpool7x7", GLOBALPOOL,
         {"large": dict(R=256 * 2048, P=49), "odd": dict(R=100003, P=143), "small": dict(R=5, P=9)},
         lambda t, d: t.X.mean(1), types=HF),
    Case("bilinear_planes", BILINEAR,
         {"large": dict(R=512, H=128, W=128, P=256, Q=256), "odd": dict(R=301, H=97, W=131, P=211, Q=257), "small": dict(R=2, H=3, W=5, P=7, Q=11)},
         lambda t, d: F.interpolate(t.X[None], size=(d["P"], d["Q"]), mode="bilinear", align_corners=False)[0], types=HF),
    Case("bilinear_skip_nhwc", BILINEAR_NHWC,
         {"large": dict(N=8, H=64, W=64, C=256), "odd": dict(N=5, H=43, W=51, C=203), "small": dict(N=1, H=3, W=2, C=5)},
         lambda t, d: back(cl(t.S) + F.interpolate(cl(t.X), scale_factor=2, mode="bilinear", align_corners=False)), types=BF),
    Case("conv3d_3x3x3", CONV3D,
         {"large": dict(N=1, D=16, H=64, W=64, C=128, O=128), "odd": dict(N=3, D=11, H=37, W=41, C=72, O=101), "small": dict(N=1, D=2, H=3, W=4, C=8, O=5)},
         conv3d, types=BF),
    Case("bn_stats", BN_KERNELS, BN_SHAPES, bn_stats, kernel="stats", types=HF),
    Case("bn_train_relu", BN_KERNELS, BN_SHAPES, bn_native, kernel="train", types=HF, reference=bn_train,
         fills={"eps": lambda shape, t, d: 1e-5}),
]
