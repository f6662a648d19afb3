"""Depthwise, pointwise, separable and grouped convolutions of NCHW; f32 and bf16."""
import torch
import torch.nn.functional as F
from sets.shared.operators import F32, both, image, shapes
from unseen import Case

torch.backends.cudnn.allow_tf32 = False  # torch's default, of convolutions alone, is true; f32 is f32 on both sides

# ---- depthwise: a filter each channel; the filters [C, 1, 3, 3] are passed as [C, 3, 3]
DEPTHWISE = """tile 1
kernel depthwise<T: f32 | bf16, const S: i64>(X: T[N, C, H, W], G: T[C, 3, 3], Y: out T[N, C, Ho, Wo])
where Ho == (H - 1) / S + 1, Wo == (W - 1) / S + 1
key bucket(N), bucket(C), H, W
tune BP = 256 | 512 | 1024 | 2048
grid n < N, c < C, b < ceildiv(Ho*Wo, BP)
{
  parallel i < BP {
    let p = b*BP + i
    let y = p / Wo * S - 1, x = p % Wo * S - 1
    Y[n, c, p / Wo, p % Wo] = sum[r < 3, s < 3](X[n, c, y + r, x + s] * G[c, r, s])
  }
}
"""

# ---- depthwise with a filter of one column
COLUMN = """tile 1
kernel depthwise_column<T: f32 | bf16>(X: T[N, C, H, W], G: T[C, R], Y: out T[N, C, H - R + 1, W])
key bucket(N), bucket(C), H, W, R
tune BH = 1 | 2 | 4 | 8, BW = 64 | 128 | 256
where BH * BW <= 1024
grid n < N, c < C, y < ceildiv(H - R + 1, BH), x < ceildiv(W, BW)
{
  fragment acc: f32[BH, BW]
  parallel i < BH, j < BW { acc[i, j] = sum[r < R](X[n, c, y*BH + i + r, x*BW + j] * G[c, r]) }
  Y[n, c, y*BH +: BH, x*BW +: BW] = acc
}
"""

# ---- pointwise: a product of matrices for each image
POINTWISE = """tile 1
kernel pointwise<T: f32 | bf16>(X: T[N, C, L], G: T[O, C], Y: out T[N, O, L])
key bucket(N), C, L, O
tune auto BO, BL, BK, stages
grid n < N, bo < ceildiv(O, BO), bl < ceildiv(L, BL)
{
  shared   g: T[BO, BK], x: T[BK, BL]
  fragment acc: f32[BO, BL] = 0
  pipelined k < ceildiv(C, BK), stages {
    g = G[bo*BO +: BO, k*BK +: BK]
    x = X[n, k*BK +: BK, bl*BL +: BL]
    acc += g @ x
  }
  Y[n, bo*BO +: BO, bl*BL +: BL] = acc
}
"""

# ---- depthwise and pointwise as a program; between them a pixel is a number
SEPARABLE = """tile 1
kernel depthwise<T: f32 | bf16>(X: T[N, C, H, W], D: T[C, 3, 3], M: out T[N, C, L])
where L == H*W
key bucket(N), bucket(C), H, W
tune BP = 256 | 512 | 1024
grid n < N, c < C, b < ceildiv(H*W, BP)
{
  fragment y: f32[BP]
  parallel i < BP {
    let p = b*BP + i
    y[i] = sum[r < 3, s < 3](X[n, c, p / W + r - 1, p % W + s - 1] * D[c, r, s])
  }
  M[n, c, b*BP +: BP] = y
}

kernel pointwise<T: f32 | bf16>(X: T[N, C, L], G: T[O, C], Y: out T[N, O, L])
key bucket(N), C, L, O
tune auto BO, BL, BK, stages
grid n < N, bo < ceildiv(O, BO), bl < ceildiv(L, BL)
{
  shared   g: T[BO, BK], x: T[BK, BL]
  fragment acc: f32[BO, BL] = 0
  pipelined k < ceildiv(C, BK), stages {
    g = G[bo*BO +: BO, k*BK +: BK]
    x = X[n, k*BK +: BK, bl*BL +: BL]
    acc += g @ x
  }
  Y[n, bo*BO +: BO, bl*BL +: BL] = acc
}

program separable<T: f32 | bf16>(X: T[N, C, H, W], D: T[C, 3, 3], G: T[O, C], Y: out T[N, O, H*W])
key bucket(N), C, H, W, O
{
  temp M: T[N, C, H*W]
  depthwise(X, D, M)
  pointwise(M, G, Y)
}
"""

# ---- grouped, 3 x 3: channels behind a group's are met by zeros of the filter
GROUPED = """tile 1
kernel grouped<T: f32 | bf16, const groups: i64>(X: T[N, C, H, W], G: T[O, Q], Y: out T[N, O, H, W])
where C % groups == 0, O % groups == 0, Q == 9 * (C / groups)
key bucket(N), C, H, W, O
tune BO = 32 | 64, BP = 64 | 128, BK = 32 | 64, stages = 2 | 3
grid n < N, group < groups, bp < ceildiv(H*W, BP), bo < ceildiv(O / groups, BO)
{
  shared   g: T[BO, BK], x: T[BP, BK]
  fragment acc: f32[BO, BP] = 0
  let each = C / groups, first = group * (O / groups)
  pipelined k < ceildiv(9*each, BK), stages {
    g = G[first + bo*BO +: BO, k*BK +: BK]
    parallel i < BP, j < BK {
      let p = bp*BP + i, q = k*BK + j
      x[i, j] = X[n, group*each + q / 9, p / W + q / 3 % 3 - 1, p % W + q % 3 - 1]
    }
    acc += g @ x^T
  }
  parallel i < BO, j < BP {
    let p = bp*BP + j
    if bo*BO + i < O / groups { Y[n, first + bo*BO + i, p / W, p % W] = acc[i, j] }
  }
}
"""


def depthwise(s):
    def dims(n, c, h, w):
        return {"N": n, "C": c, "H": h, "W": w, "Ho": (h - 1) // s + 1, "Wo": (w - 1) // s + 1}
    return dims


def column(n, c, h, w):
    return {"N": n, "C": c, "H": h, "W": w, "R": 7}


def points(n, c, h, w, o):
    return {"N": n, "C": c, "L": h * w, "O": o, "H": h, "W": w}


def groups8(n, c, h, w, o):
    return {"N": n, "C": c, "H": h, "W": w, "O": o, "Q": 9 * (c // 8)}


def pointwise(t, d):
    return F.conv2d(t.X.view(d["N"], d["C"], d["H"], d["W"]), t.G[:, :, None, None])


def separable(t, d):
    return F.conv2d(F.conv2d(t.X, t.D[:, None], padding=1, groups=d["C"]), t.G[:, :, None, None])


ODD, SMALL = (3, 37, 57, 61), (2, 5, 9, 11)

CASES = [
    *both("depthwise", DEPTHWISE, shapes(depthwise(1), (16, 64, 256, 256), ODD, SMALL),
          lambda t, d: F.conv2d(t.X, t.G[:, None], padding=1, groups=d["C"]), consts={"S": 1}),
    Case("depthwise_stride_2_f32", DEPTHWISE, shapes(depthwise(2), (16, 64, 256, 256), ODD, SMALL),
         lambda t, d: F.conv2d(t.X, t.G[:, None], padding=1, stride=2, groups=d["C"]), consts={"S": 2}, types=F32),
    Case("depthwise_column_f32", COLUMN, shapes(column, (16, 64, 256, 256), ODD, SMALL),
         lambda t, d: F.conv2d(t.X, t.G[:, None, :, None], groups=d["C"]), types=F32),
    *both("pointwise", POINTWISE, shapes(points, (16, 64, 256, 256, 128), (*ODD, 43), (*SMALL, 7)), pointwise),
    *both("separable", SEPARABLE, shapes(image, (16, 64, 128, 128, 128), (*ODD, 43), (*SMALL, 7)), separable,
          kernel="separable"),
    *both("grouped", GROUPED, shapes(groups8, (16, 128, 128, 128, 128), (3, 40, 57, 61, 56), (2, 16, 9, 11, 24)),
          lambda t, d: F.conv2d(t.X, t.G.view(d["O"], d["C"] // 8, 3, 3), padding=1, groups=8), consts={"groups": 8}),
]
