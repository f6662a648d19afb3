"""Normalisations of images: batch, instance and group norm, RMS over channels; f32 and bf16. An image [N, C, H, W] is
passed as [N, C, H*W], in one piece."""
import torch
import torch.nn.functional as F
from sets.shared.operators import B16, F32
from unseen import Case

EPS = {"eps": lambda s, t, d: 1e-5}

# ---- batchnorm with the batch's own statistics: sums of each image and channel, then what normalises
BATCHNORM = """tile 1
kernel channel_sums<T: f32 | bf16>(X: T[N, C, L], s1: out f32[C, N], s2: out f32[C, N])
key bucket(N), C, bucket(L)
tune BL = 1024 | 2048 | 4096
grid n < N, c < C
{
  fragment x: f32[BL], a: f32[1] = 0, b: f32[1] = 0
  for k < ceildiv(L, BL) {
    x = X[n, c, k*BL +: BL]
    parallel i < 1 {
      a[i] += sum[j < BL](x[j])
      b[i] += sum[j < BL](x[j] * x[j])
    }
  }
  s1[c, n +: 1] = a
  s2[c, n +: 1] = b
}

kernel normalise<T: f32 | bf16>(
    X: T[N, C, L], s1: f32[C, N], s2: f32[C, N], G: f32[C], B: f32[C], Y: out T[N, C, L], eps: f32)
key N, C, bucket(L)
tune BL = 1024 | 2048 | 4096
grid n < N, c < C, k < ceildiv(L, BL)
{
  fragment x: f32[BL]
  let mean = sum[m < N](s1[c, m]) / (N * L)
  let var = sum[m < N](s2[c, m]) / (N * L) - mean * mean
  let factor = rsqrt(var + eps) * G[c]
  x = X[n, c, k*BL +: BL]
  parallel j < BL { x[j] = (x[j] - mean) * factor + B[c] }
  Y[n, c, k*BL +: BL] = x
}

program batchnorm<T: f32 | bf16>(X: T[N, C, L], G: f32[C], B: f32[C], Y: out T[N, C, L], eps: f32)
key bucket(N), C, bucket(L)
{
  temp s1: f32[C, N], s2: f32[C, N]
  channel_sums(X, s1, s2)
  normalise(X, s1, s2, G, B, Y, eps)
}
"""

# ---- a plane is walked twice
INSTANCENORM = """tile 1
kernel instancenorm<T: f32 | bf16>(X: T[N, C, L], Y: out T[N, C, L], eps: f32)
key bucket(N), C, bucket(L)
tune BL = 1024 | 2048 | 4096 | 8192
grid n < N, c < C
{
  fragment x: f32[BL], a: f32[1] = 0, b: f32[1] = 0
  for k < ceildiv(L, BL) {
    x = X[n, c, k*BL +: BL]
    parallel i < 1 {
      a[i] += sum[j < BL](x[j])
      b[i] += sum[j < BL](x[j] * x[j])
    }
  }
  let mean = a[0] / L
  let factor = rsqrt(b[0] / L - mean * mean + eps)
  for k < ceildiv(L, BL) {
    x = X[n, c, k*BL +: BL]
    parallel j < BL { x[j] = (x[j] - mean) * factor }
    Y[n, c, k*BL +: BL] = x
  }
}
"""

# ---- the channels of a group follow each other, so a group is one long row; factors are the channels'
GROUPNORM = """tile 1
kernel groupnorm<T: f32 | bf16, const groups: i64>(X: T[N, C, L], W: f32[C], B: f32[C], Y: out T[N, C, L], eps: f32)
where C % groups == 0
key bucket(N), C, bucket(L)
tune BL = 1024 | 2048 | 4096
grid n < N, g < groups
{
  fragment x: f32[BL], a: f32[1] = 0, b: f32[1] = 0
  let each = C / groups
  for c in g*each .. (g + 1)*each {
    for k < ceildiv(L, BL) {
      x = X[n, c, k*BL +: BL]
      parallel i < 1 {
        a[i] += sum[j < BL](x[j])
        b[i] += sum[j < BL](x[j] * x[j])
      }
    }
  }
  let mean = a[0] / (each * L)
  let factor = rsqrt(b[0] / (each * L) - mean * mean + eps)
  for c in g*each .. (g + 1)*each {
    for k < ceildiv(L, BL) {
      x = X[n, c, k*BL +: BL]
      parallel j < BL { x[j] = (x[j] - mean) * factor * W[c] + B[c] }
      Y[n, c, k*BL +: BL] = x
    }
  }
}
"""

# ---- x / rms over the channels of each pixel
RMS_CHANNELS = """tile 1
kernel rms_channels<T: f32 | bf16>(X: T[N, C, L], Y: out T[N, C, L], eps: f32)
key bucket(N), C, bucket(L)
tune BL = 32 | 64 | 128 | 256
grid n < N, l < ceildiv(L, BL)
{
  fragment x: f32[C, BL], factor: f32[BL]
  x = X[n, :, l*BL +: BL]
  parallel j < BL { factor[j] = rsqrt(sum[c < C](x[c, j] * x[c, j]) / C + eps) }
  parallel c < C, j < BL { x[c, j] *= factor[j] }
  Y[n, :, l*BL +: BL] = x
}
"""


def planes(n, c, h, w):
    return {"N": n, "C": c, "L": h * w, "H": h, "W": w}


IMAGES = {"large": planes(16, 64, 256, 256), "odd": planes(3, 13, 61, 67), "small": planes(2, 3, 17, 19)}
GROUPS = {"large": planes(32, 64, 128, 128), "odd": planes(3, 24, 61, 67), "small": planes(2, 16, 7, 9)}


def image(t, d):
    return t.X.view(d["N"], d["C"], d["H"], d["W"])


def batchnorm(t, d):
    return F.batch_norm(image(t, d), None, None, t.G, t.B, True, 0.1, 1e-5)


def rms_channels(t, d):
    return t.X / torch.sqrt(torch.mean(t.X ** 2, dim=1, keepdim=True) + 1e-5)


CASES = [
    Case("batchnorm_f32", BATCHNORM, IMAGES, batchnorm, kernel="batchnorm", types=F32, fills=EPS),
    Case("batchnorm_bf16", BATCHNORM, IMAGES, batchnorm, kernel="batchnorm", types=B16, fills=EPS),
    Case("instancenorm_f32", INSTANCENORM, IMAGES, lambda t, d: F.instance_norm(image(t, d), eps=1e-5), types=F32,
         fills=EPS),
    Case("groupnorm_f32", GROUPNORM, GROUPS, lambda t, d: F.group_norm(image(t, d), 8, t.W, t.B, 1e-5),
         consts={"groups": 8}, types=F32, fills=EPS),
    Case("rms_channels_f32", RMS_CHANNELS, IMAGES, rms_channels, types=F32, fills=EPS),
    Case("rms_channels_bf16", RMS_CHANNELS, IMAGES, rms_channels, types=B16, fills=EPS),
]
