"""Convolutions as a model has them, NCHW images and OIHW filters, as products whose right operand a region makes; f32
and bf16."""
import torch
import torch.nn.functional as F
from sets.shared.operators import both, image, shapes
from unseen import Case

torch.backends.cudnn.allow_tf32 = False  # torch's default, of convolutions alone, is true; f32 is f32 on both sides

# ---- 3 x 3 filters with stride S, padding P and dilation Dil. The filters [O, C, 3, 3] are passed as [O, 9 C], which
# is the same memory; q counts channels and taps as they lie.
CONV3 = """tile 1
kernel conv3x3<T: f32 | bf16, const S: i64, const P: i64, const Dil: i64>(
    X: T[N, C, H, W], G: T[O, Q], Y: out T[N, O, Ho, Wo])
where Q == 9*C, Ho == (H + 2*P - 2*Dil - 1) / S + 1, Wo == (W + 2*P - 2*Dil - 1) / S + 1
key bucket(N), C, H, W, O
tune BO = 64 | 128, BP = 64 | 128, BK = 32 | 64, stages = 2 | 3 | 4
grid n < N, bp < ceildiv(Ho*Wo, BP), bo < ceildiv(O, BO)
{
  shared   g: T[BO, BK], x: T[BP, BK]
  fragment acc: f32[BO, BP] = 0
  pipelined k < ceildiv(9*C, BK), stages {
    g = G[bo*BO +: BO, k*BK +: BK]
    parallel i < BP, j < BK {
      let p = bp*BP + i, q = k*BK + j
      x[i, j] = X[n, q / 9, p / Wo * S - P + q / 3 % 3 * Dil, p % Wo * S - P + q % 3 * Dil]
    }
    acc += g @ x^T
  }
  parallel i < BO, j < BP {
    let p = bp*BP + j
    Y[n, bo*BO + i, p / Wo, p % Wo] = acc[i, j]
  }
}
"""

# ---- the same with tunables left to the engine, and all images' pixels counted through
CONV3_AUTO = """tile 1
kernel conv3x3_auto<T: f32 | bf16>(X: T[N, C, H, W], G: T[O, C, 3, 3], Y: out T[N, O, H, W])
key bucket(N), C, H, W, O
tune auto BM, BO, BK, stages
grid bm < ceildiv(N*H*W, BM), bo < ceildiv(O, BO)
{
  shared   x: T[BM, BK], g: T[BO, BK]
  fragment acc: f32[BM, BO] = 0
  pipelined k < ceildiv(9*C, BK), stages {
    parallel i < BM, j < BK {
      let m = bm*BM + i, q = k*BK + j
      x[i, j] = X[m / (H*W), q / 9, m / W % H + q / 3 % 3 - 1, m % W + q % 3 - 1]
    }
    parallel i < BO, j < BK {
      let q = k*BK + j
      g[i, j] = G[bo*BO + i, q / 9, q / 3 % 3, q % 3]
    }
    acc += x @ g^T
  }
  parallel i < BM, j < BO {
    let m = bm*BM + i
    Y[m / (H*W), bo*BO + j, m / W % H, m % W] = acc[i, j]
  }
}
"""

# ---- filters of 5 rows and 7 columns, an image that is not square
ASYMMETRIC = """tile 1
kernel conv5x7<T: f32 | bf16>(X: T[N, C, H, W], G: T[O, Q], Y: out T[N, O, Ho, Wo])
where Q == 35*C, Ho == H - 4, Wo == W - 6
key bucket(N), C, H, W, O
tune BO = 64 | 128, BP = 64 | 128, BK = 32 | 64, stages = 2 | 3
grid n < N, bp < ceildiv(Ho*Wo, BP), bo < ceildiv(O, BO)
{
  shared   g: T[BO, BK], x: T[BP, BK]
  fragment acc: f32[BO, BP] = 0
  pipelined k < ceildiv(35*C, BK), stages {
    g = G[bo*BO +: BO, k*BK +: BK]
    parallel i < BP, j < BK {
      let p = bp*BP + i, q = k*BK + j
      x[i, j] = X[n, q / 35, p / Wo + q / 7 % 5, p % Wo + q % 7]
    }
    acc += g @ x^T
  }
  parallel i < BO, j < BP {
    let p = bp*BP + j
    Y[n, bo*BO + i, p / Wo, p % Wo] = acc[i, j]
  }
}
"""

# ---- one dimension: [N, C, L] by [O, C, 3], stride S and dilation Dil, no padding
CONV1D = """tile 1
kernel conv1d<T: f32 | bf16, const S: i64, const Dil: i64>(X: T[N, C, L], G: T[O, Q], Y: out T[N, O, Lo])
where Q == 3*C, Lo == (L - 2*Dil - 1) / S + 1
key bucket(N), C, L, O
tune BO = 64 | 128, BP = 64 | 128 | 256, BK = 32 | 64, stages = 2 | 3 | 4
grid n < N, bp < ceildiv(Lo, BP), bo < ceildiv(O, BO)
{
  shared   g: T[BO, BK], x: T[BK, BP]
  fragment acc: f32[BO, BP] = 0
  pipelined k < ceildiv(3*C, BK), stages {
    g = G[bo*BO +: BO, k*BK +: BK]
    parallel i < BK, j < BP {
      let q = k*BK + i
      x[i, j] = X[n, q / 3, (bp*BP + j) * S + q % 3 * Dil]
    }
    acc += g @ x
  }
  Y[n, bo*BO +: BO, bp*BP +: BP] = acc
}
"""

# ---- three dimensions: [N, C, Z, H, W] by [O, C, 3, 3, 3], padding of 1
CONV3D = """tile 1
kernel conv3d<T: f32 | bf16>(X: T[N, C, Z, H, W], G: T[O, Q], Y: out T[N, O, Z, H, W])
where Q == 27*C
key bucket(N), C, Z, H, W, O
tune BO = 64 | 128, BP = 64 | 128, BK = 32 | 64, stages = 2 | 3
grid n < N, z < Z, bp < ceildiv(H*W, BP), bo < ceildiv(O, BO)
{
  shared   g: T[BO, BK], x: T[BP, BK]
  fragment acc: f32[BO, BP] = 0
  pipelined k < ceildiv(27*C, BK), stages {
    g = G[bo*BO +: BO, k*BK +: BK]
    parallel i < BP, j < BK {
      let p = bp*BP + i, q = k*BK + j
      x[i, j] = X[n, q / 27, z + q / 9 % 3 - 1, p / W + q / 3 % 3 - 1, p % W + q % 3 - 1]
    }
    acc += g @ x^T
  }
  parallel i < BO, j < BP {
    let p = bp*BP + j
    Y[n, bo*BO + i, z, p / W, p % W] = acc[i, j]
  }
}
"""


def conv3(s, p, dilation):
    def dims(n, c, h, w, o):
        return {"N": n, "C": c, "H": h, "W": w, "O": o, "Q": 9*c, "Ho": (h + 2*p - 2*dilation - 1) // s + 1,
                "Wo": (w + 2*p - 2*dilation - 1) // s + 1}
    return dims


def conv2d(**how):
    return lambda t, d: F.conv2d(t.X, t.G.view(d["O"], d["C"], 3, 3), **how)


def dims5x7(n, c, h, w, o):
    return {"N": n, "C": c, "H": h, "W": w, "O": o, "Q": 35*c, "Ho": h - 4, "Wo": w - 6}


def line(s, dilation):
    def dims(n, c, length, o):
        return {"N": n, "C": c, "L": length, "O": o, "Q": 3*c, "Lo": (length - 2*dilation - 1) // s + 1}
    return dims


def volume(n, c, z, h, w, o):
    return {"N": n, "C": c, "Z": z, "H": h, "W": w, "O": o, "Q": 27*c}


CASES = [
    *both("conv2d", CONV3, shapes(conv3(1, 1, 1), (16, 64, 128, 128, 64), (3, 37, 57, 61, 43), (2, 5, 9, 11, 7)),
          conv2d(padding=1), consts={"S": 1, "P": 1, "Dil": 1}),
    *both("conv2d_auto", CONV3_AUTO, shapes(image, (16, 64, 128, 128, 64), (3, 37, 57, 61, 43), (2, 5, 9, 11, 7)),
          lambda t, d: F.conv2d(t.X, t.G, padding=1)),
    *both("conv2d_5x7", ASYMMETRIC, shapes(dims5x7, (8, 32, 128, 256, 64), (3, 19, 45, 67, 37), (2, 3, 11, 13, 5)),
          lambda t, d: F.conv2d(t.X, t.G.view(d["O"], d["C"], 5, 7))),
    *both("conv1d", CONV1D, shapes(line(1, 1), (32, 64, 32768, 128), (3, 37, 4099, 43), (2, 5, 131, 7)),
          lambda t, d: F.conv1d(t.X, t.G.view(d["O"], d["C"], 3)), consts={"S": 1, "Dil": 1}),
    *both("conv3d", CONV3D, shapes(volume, (4, 32, 32, 64, 64, 64), (2, 11, 13, 29, 31, 19), (2, 3, 5, 7, 9, 5)),
          lambda t, d: F.conv3d(t.X, t.G.view(d["O"], d["C"], 3, 3, 3), padding=1)),
    Case("conv2d_strided_dilated_padded_f32", CONV3,
         shapes(conv3(2, 2, 3), (16, 64, 256, 256, 64), (3, 37, 57, 61, 43), (2, 5, 19, 21, 7)),
         conv2d(stride=2, padding=2, dilation=3), consts={"S": 2, "P": 2, "Dil": 3}, types={"T": "f32"}),
    Case("conv1d_strided_dilated_bf16", CONV1D,
         shapes(line(3, 4), (32, 64, 65537, 128), (3, 37, 4099, 43), (2, 5, 131, 7)),
         lambda t, d: F.conv1d(t.X, t.G.view(d["O"], d["C"], 3), stride=3, dilation=4), consts={"S": 3, "Dil": 4},
         types={"T": "bf16"}),
]
