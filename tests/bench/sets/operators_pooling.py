"""Maximum and average in one, two and three dimensions, with stride, padding and dilation; f32 and bf16."""
import torch.nn.functional as F
from sets.shared.operators import B16, F32, shapes
from unseen import Case

# ---- a maximum's border is not 0: what lies outside must not count
MAX1 = """tile 1
kernel maxpool1d<T: f32 | bf16, const K: i64, const S: i64, const P: i64, const Dil: i64>(
    X: T[N, C, L], Y: out T[N, C, Lo])
where Lo == (L + 2*P - Dil*(K - 1) - 1) / S + 1
key bucket(N), bucket(C), bucket(L)
tune BL = 256 | 512 | 1024 | 2048
grid n < N, c < C, b < ceildiv(Lo, BL)
{
  fragment y: f32[BL]
  parallel i < BL {
    y[i] = max[k < K](let at = (b*BL + i)*S - P + k*Dil in at >= 0 && at < L ? X[n, c, at] : -inf)
  }
  Y[n, c, b*BL +: BL] = y
}
"""

MAX2 = """tile 1
kernel maxpool2d<T: f32 | bf16, const K: i64, const S: i64, const P: i64, const Dil: i64>(
    X: T[N, C, H, W], Y: out T[N, C, Ho, Wo])
where Ho == (H + 2*P - Dil*(K - 1) - 1) / S + 1, Wo == (W + 2*P - Dil*(K - 1) - 1) / S + 1
key bucket(N), bucket(C), H, W
tune BP = 256 | 512 | 1024
grid n < N, c < C, b < ceildiv(Ho*Wo, BP)
{
  parallel i < BP {
    let p = b*BP + i
    let y = p / Wo * S - P, x = p % Wo * S - P
    Y[n, c, p / Wo, p % Wo] = max[r < K, s < K](
      y + r*Dil >= 0 && y + r*Dil < H && x + s*Dil >= 0 && x + s*Dil < W ? X[n, c, y + r*Dil, x + s*Dil] : -inf)
  }
}
"""

MAX3 = """tile 1
kernel maxpool3d<T: f32 | bf16, const K: i64, const S: i64, const P: i64, const Dil: i64>(
    X: T[N, Z, H, W], Y: out T[N, Zo, Ho, Wo])
where Zo == (Z + 2*P - Dil*(K - 1) - 1) / S + 1, Ho == (H + 2*P - Dil*(K - 1) - 1) / S + 1
where Wo == (W + 2*P - Dil*(K - 1) - 1) / S + 1
key bucket(N), Z, H, W
tune BP = 256 | 512 | 1024
grid n < N, z < Zo, b < ceildiv(Ho*Wo, BP)
{
  parallel i < BP {
    let p = b*BP + i
    let y = p / Wo * S - P, x = p % Wo * S - P
    Y[n, z, p / Wo, p % Wo] = max[q < K, r < K, s < K](
      let u = z*S - P + q*Dil, v = y + r*Dil, w = x + s*Dil in
      u >= 0 && u < Z && v >= 0 && v < H && w >= 0 && w < W ? X[n, u, v, w] : -inf)
  }
}
"""

# ---- an average counts the border's zeros, as torch does unless told otherwise
AVG1 = """tile 1
kernel avgpool1d<T: f32 | bf16, const K: i64, const S: i64, const P: i64>(
    X: T[N, C, L], Y: out T[N, C, (L + 2*P - K) / S + 1])
key bucket(N), bucket(C), bucket(L)
tune BL = 256 | 512 | 1024 | 2048
grid n < N, c < C, b < ceildiv((L + 2*P - K) / S + 1, BL)
{
  fragment y: f32[BL]
  parallel i < BL { y[i] = sum[k < K](X[n, c, (b*BL + i)*S - P + k]) / K }
  Y[n, c, b*BL +: BL] = y
}
"""

AVG2 = """tile 1
kernel avgpool2d<T: f32 | bf16, const K: i64, const S: i64, const P: i64>(
    X: T[N, C, H, W], Y: out T[N, C, (H + 2*P - K) / S + 1, (W + 2*P - K) / S + 1])
key bucket(N), bucket(C), H, W
tune BP = 128 | 256 | 512
grid n < N, c < C, b < ceildiv(((H + 2*P - K) / S + 1) * ((W + 2*P - K) / S + 1), BP)
{
  let Wo = (W + 2*P - K) / S + 1
  parallel i < BP {
    let p = b*BP + i
    let y = p / Wo * S - P, x = p % Wo * S - P
    Y[n, c, p / Wo, p % Wo] = sum[r < K, s < K](X[n, c, y + r, x + s]) / (K * K)
  }
}
"""

AVG3 = """tile 1
kernel avgpool3d<T: f32 | bf16, const K: i64, const S: i64, const P: i64>(X: T[N, Z, H, W], Y: out T[N, Zo, Ho, Wo])
where Zo == (Z + 2*P - K) / S + 1, Ho == (H + 2*P - K) / S + 1, Wo == (W + 2*P - K) / S + 1
key bucket(N), Z, H, W
tune BP = 256 | 512 | 1024
grid n < N, b < ceildiv(Zo*Ho*Wo, BP)
{
  parallel i < BP {
    let p = b*BP + i
    let z = p / (Ho*Wo), y = p / Wo % Ho, x = p % Wo
    Y[n, z, y, x] = sum[q < K, r < K, s < K](X[n, z*S - P + q, y*S - P + r, x*S - P + s]) / (K * K * K)
  }
}
"""


def to(dims, k, s, p, dilation=1, **outputs):
    return {**dims, **{out: (dims[of] + 2*p - dilation*(k - 1) - 1) // s + 1 for out, of in outputs.items()}}


def max1(n, c, length):
    return to({"N": n, "C": c, "L": length}, 8, 1, 4, 3, Lo="L")


def max2(n, c, h, w):
    return to({"N": n, "C": c, "H": h, "W": w}, 4, 1, 1, 1, Ho="H", Wo="W")


def max2s(n, c, h, w):
    return to({"N": n, "C": c, "H": h, "W": w}, 3, 2, 1, 1, Ho="H", Wo="W")


def max3(n, z, h, w):
    return to({"N": n, "Z": z, "H": h, "W": w}, 3, 2, 1, 3, Zo="Z", Ho="H", Wo="W")


def avg3(n, z, h, w):
    return to({"N": n, "Z": z, "H": h, "W": w}, 3, 2, 1, 1, Zo="Z", Ho="H", Wo="W")


def ncl(n, c, length):
    return {"N": n, "C": c, "L": length}


def nchw(n, c, h, w):
    return {"N": n, "C": c, "H": h, "W": w}


IMAGE = (16, 64, 256, 256), (3, 5, 61, 67), (2, 3, 17, 13)
VOLUME = (256, 64, 64, 64), (7, 29, 31, 37), (2, 9, 13, 11)

CASES = [
    Case("max_1d_f32", MAX1, shapes(max1, (64, 192, 8192), (3, 7, 4099), (2, 3, 301)),
         lambda t, d: F.max_pool1d(t.X, 8, 1, 4, 3), consts={"K": 8, "S": 1, "P": 4, "Dil": 3}, types=F32),
    Case("max_2d_f32", MAX2, shapes(max2, *IMAGE), lambda t, d: F.max_pool2d(t.X, 4, 1, 1, 1),
         consts={"K": 4, "S": 1, "P": 1, "Dil": 1}, types=F32),
    Case("max_2d_stride_bf16", MAX2, shapes(max2s, *IMAGE), lambda t, d: F.max_pool2d(t.X, 3, 2, 1, 1),
         consts={"K": 3, "S": 2, "P": 1, "Dil": 1}, types=B16),
    Case("max_3d_f32", MAX3, shapes(max3, *VOLUME), lambda t, d: F.max_pool3d(t.X, 3, 2, 1, 3),
         consts={"K": 3, "S": 2, "P": 1, "Dil": 3}, types=F32),
    Case("avg_1d_f32", AVG1, shapes(ncl, (64, 128, 8192), (3, 7, 4099), (2, 3, 301)),
         lambda t, d: F.avg_pool1d(t.X, 8, 1, 4), consts={"K": 8, "S": 1, "P": 4}, types=F32),
    Case("avg_2d_f32", AVG2, shapes(nchw, *IMAGE), lambda t, d: F.avg_pool2d(t.X, 11, 11, 0),
         consts={"K": 11, "S": 11, "P": 0}, types=F32),
    Case("avg_2d_bf16", AVG2, shapes(nchw, *IMAGE), lambda t, d: F.avg_pool2d(t.X, 3, 2, 1),
         consts={"K": 3, "S": 2, "P": 1}, types=B16),
    Case("avg_3d_f32", AVG3, shapes(avg3, *VOLUME), lambda t, d: F.avg_pool3d(t.X, 3, 2, 1),
         consts={"K": 3, "S": 2, "P": 1}, types=F32),
]
