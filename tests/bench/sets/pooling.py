"""Pooling, resampling and statistics of images."""
import torch
import torch.nn.functional as F
from sets.shared.convs import BF, HF, back, cl
from unseen import Case


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


BN_SHAPES = {"large": dict(N=64, C=256, P=56 * 56), "odd": dict(N=37, C=131, P=53 * 51), "small": dict(N=3, C=5, P=35)}

CASES = [
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
    Case("bn_stats", BN_KERNELS, BN_SHAPES, bn_stats, kernel="stats", types=HF),
    Case("bn_train_relu", BN_KERNELS, BN_SHAPES, bn_native, kernel="train", types=HF, reference=bn_train,
         fills={"eps": lambda shape, t, d: 1e-5}),
]
