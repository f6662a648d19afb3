"""Deformable, dilated, causal and other convolutions."""
import torch
import torch.nn.functional as F
from sets.shared.convs import BF, HF, back, cl
from unseen import Case


try:
    from torchvision.ops import deform_conv2d
except Exception:  # noqa: BLE001
    deform_conv2d = None


def scaled(factor):
    return lambda shape, t, d: (torch.randn(shape, device=t.X.device) * factor).to(t.X.dtype)


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

CASES = [
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
    Case("conv3d_3x3x3", CONV3D,
         {"large": dict(N=1, D=16, H=64, W=64, C=128, O=128), "odd": dict(N=3, D=11, H=37, W=41, C=72, O=101), "small": dict(N=1, D=2, H=3, W=4, C=8, O=5)},
         conv3d, types=BF),
]
