"""Convolutions of images (NCHW) with sums over all pixels behind them, or a depthwise and a pointwise one; programs."""
import torch
import torch.nn.functional as F
from sets.shared.chains import DEV, cases, filters, images, linear, wide

torch.backends.cudnn.allow_tf32 = False  # torch's default, of convolutions alone, is true; f32 is f32 on both sides

# ---- sum over all of an image of sigmoid(avgpool 4 x 4 of conv): sixteen columns in a row are the pixels of a window
AVGPOOL = """tile 1

kernel zero(y: out f32[N])
key N
grid b < ceildiv(N, 256)
{
  fragment z: f32[256] = 0
  y[b*256 +: 256] = z
}

kernel pooled<T: f32 | f16 | bf16>(X: T[N, C, H, W], F: T[O, K], b: T[O], y: inout f32[N])
where K == 9 * C
key  N, C, H, W, O
tune BO = 64 | 128, BP = 4 | 8 | 16, BK = 32 | 64, stages = 2 | 3 | 4
grid n < N, bp < ceildiv((H - 2) / 4 * ((W - 2) / 4), BP), bo < ceildiv(O, BO)
{
  shared   f: T[BO, BK], x: T[BK, 16*BP]
  fragment acc: f32[BO, 16*BP] = 0, g: f32[BO, BP]
  let P = (H - 2) / 4, Q = (W - 2) / 4

  pipelined k < ceildiv(K, BK), stages {
    f = F[bo*BO +: BO, k*BK +: BK]
    parallel i < BK, j < 16*BP {
      let q = k*BK + i, m = bp*BP + j / 16
      x[i, j] = X[n, q / 9, m / Q * 4 + j / 4 % 4 + q / 3 % 3, m % Q * 4 + j % 4 + q % 3]
    }
    acc += f @ x
  }
  parallel i < BO, j < BP {
    let o = bo*BO + i
    let v = sum[u < 16](acc[i, 16*j + u]) / 16 + b[o]
    g[i, j] = o < O && bp*BP + j < P*Q ? rcp(1 + exp(-v)) : 0.0
  }
  parallel i < 1 { atomic y[n] += sum[o < BO, j < BP](g[o, j]) }
}

program conv2d_avgpool_sigmoid_sum<T: f32 | f16 | bf16>(X: T[N, C, H, W], F: T[O, K], b: T[O], y: out f32[N])
where K == 9 * C
{
  zero(y)
  pooled(X, F, b, y)
}
"""

# ---- mean over the pixels of gelu(conv)
GAP = """tile 1

kernel zero(y: out f32[N, O])
key N, O
grid n < N, b < ceildiv(O, 256)
{
  fragment z: f32[256] = 0
  y[n, b*256 +: 256] = z
}

kernel gelu_sums<T: f32 | f16 | bf16>(X: T[N, C, H, W], F: T[O, K], b: T[O], y: inout f32[N, O])
where K == 9 * C
key  N, C, H, W, O
where BO <= 128
tune auto BO, BP, BK, stages
grid n < N, bp < ceildiv((H - 2)*(W - 2), BP), bo < ceildiv(O, BO)
{
  shared   f: T[BO, BK], x: T[BK, BP]
  fragment acc: f32[BO, BP] = 0, s: f32[BO]
  let P = H - 2, Q = W - 2

  pipelined k < ceildiv(K, BK), stages {
    f = F[bo*BO +: BO, k*BK +: BK]
    parallel i < BK, j < BP {
      let q = k*BK + i, m = bp*BP + j
      x[i, j] = X[n, q / 9, m / Q + q / 3 % 3, m % Q + q % 3]
    }
    acc += f @ x
  }
  parallel i < BO, j < BP {
    let v = acc[i, j] + b[bo*BO + i]
    acc[i, j] = bp*BP + j < P*Q ? 0.5 * v * (1 + erf(v * 0.70710678)) : 0.0
  }
  parallel i < BO { s[i] = sum[j < BP](acc[i, j]) / (P*Q) }
  atomic y[n, bo*BO +: BO] += s
}

program conv2d_gelu_globalavgpool<T: f32 | f16 | bf16>(X: T[N, C, H, W], F: T[O, K], b: T[O], y: out f32[N, O])
where K == 9 * C
{
  zero(y)
  gelu_sums(X, F, b, y)
}
"""

# ---- relu(conv 3 x 3), depthwise 3 x 3 with a border, relu, pointwise to Z channels
SEPARABLE = """tile 1

kernel conv_relu<T: f32 | f16 | bf16>(X: T[N, C, H, W], F: T[O, K], b: T[O], Y: out T[N, O, H, W])
where K == 9 * C
key  N, C, H, W, O
where BO <= 128
tune auto BO, BP, BK, stages
grid n < N, bp < ceildiv(H*W, BP), bo < ceildiv(O, BO)
{
  shared   f: T[BO, BK], x: T[BK, BP]
  fragment acc: f32[BO, BP] = 0

  pipelined k < ceildiv(K, BK), stages {
    f = F[bo*BO +: BO, k*BK +: BK]
    parallel i < BK, j < BP {
      let q = k*BK + i, m = bp*BP + j
      x[i, j] = X[n, q / 9, m / W + q / 3 % 3 - 1, m % W + q % 3 - 1]
    }
    acc += f @ x
  }
  parallel i < BO, j < BP {
    let o = bo*BO + i, m = bp*BP + j
    Y[n, o, m / W, m % W] = max(acc[i, j] + b[o], 0)
  }
}

# what the pointwise product reads is made where it is used
kernel depthwise_pointwise<T: f32 | f16 | bf16>(
    X: T[N, O, H, W], D: T[O, 3, 3], V: T[Z, O], c: T[Z], Y: out T[N, Z, H, W])
key  N, O, H, W, Z
tune BZ = 64 | 128 | 256, BP = 64 | 128, BK = 16 | 32 | 64, stages = 2 | 3
grid n < N, bp < ceildiv(H*W, BP), bz < ceildiv(Z, BZ)
{
  shared   v: T[BZ, BK], x: T[BK, BP]
  fragment acc: f32[BZ, BP] = 0

  pipelined k < ceildiv(O, BK), stages {
    v = V[bz*BZ +: BZ, k*BK +: BK]
    parallel i < BK, j < BP {
      let o = k*BK + i, m = bp*BP + j
      x[i, j] = max(sum[r < 3, s < 3](X[n, o, m / W + r - 1, m % W + s - 1] * D[o, r, s]), 0)
    }
    acc += v @ x
  }
  parallel i < BZ, j < BP {
    let z = bz*BZ + i, m = bp*BP + j
    Y[n, z, m / W, m % W] = acc[i, j] + c[z]
  }
}

program conv_depthwise_pointwise<T: f32 | f16 | bf16>(
    X: T[N, C, H, W], F: T[O, K], b: T[O], D: T[O, 3, 3], V: T[Z, O], c: T[Z], Y: out T[N, Z, H, W])
where K == 9 * C
{
  temp x: T[N, O, H, W]
  conv_relu(X, F, b, x)
  depthwise_pointwise(x, D, V, c, Y)
}
"""


def separable(t, d):
    x = F.relu(F.conv2d(t.X, filters(t, d), t.b, padding=1))
    x = F.relu(F.conv2d(x, t.D[:, None], padding=1, groups=d["O"]))
    return F.conv2d(x, t.V[:, :, None, None], t.c)


SMALL = (2, 3, 10, 11, 6)
WIDE, WIDE32 = (128, 8, 256, 256, 64), (64, 8, 256, 256, 64)

CASES = [
    *cases("conv2d_avgpool_sigmoid_sum", AVGPOOL,
           lambda t, d: torch.sigmoid(wide(F.avg_pool2d(F.conv2d(t.X, filters(t, d), t.b), 4))).sum((1, 2, 3)),
           images(WIDE, (5, 7, 61, 59, 33), SMALL), images(WIDE32, (3, 5, 31, 43, 19), SMALL),
           kernel="conv2d_avgpool_sigmoid_sum", tolerance=2e-5),
    *cases("conv2d_gelu_globalavgpool", GAP,
           lambda t, d: wide(F.gelu(F.conv2d(t.X, filters(t, d), t.b))).mean((2, 3)),
           images(WIDE, (5, 7, 61, 59, 33), SMALL), images(WIDE32, (3, 5, 31, 43, 19), SMALL),
           kernel="conv2d_gelu_globalavgpool", tolerance=2e-5),
    *cases("conv_depthwise_pointwise", SEPARABLE, separable,
           images((64, 16, 112, 112, 128), (5, 7, 41, 43, 33), SMALL, Z=lambda d: d["O"] + 128 * (d["O"] == 128)),
           images((16, 16, 112, 112, 128), (3, 5, 31, 43, 19), SMALL, Z=lambda d: d["O"] + 2),
           kernel="conv_depthwise_pointwise",
           fills={"D": lambda s, d: torch.randn(s, device=DEV) / 3, "V": linear}),
]
