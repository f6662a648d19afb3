"""Transposed convolutions of NCHW in one, two and three dimensions; f32 and bf16."""
import torch
import torch.nn.functional as F
from sets.shared.operators import F32, both, image, shapes
from unseen import Case

torch.backends.cudnn.allow_tf32 = False  # torch's default, of convolutions alone, is true; f32 is f32 on both sides

# ---- transposed, 3 x 3: what a pixel of the result sums up. With a stride only some taps meet an element of X.
TRANSPOSED2 = """tile 1
kernel conv_transposed2d<T: f32 | bf16>(X: T[N, C, H, W], G: T[C, O, 3, 3], Y: out T[N, O, H + 2, W + 2])
key bucket(N), C, H, W, O
tune BO = 64 | 128, BP = 64 | 128, BK = 32 | 64, stages = 2 | 3
grid n < N, bp < ceildiv((H + 2)*(W + 2), BP), bo < ceildiv(O, BO)
{
  shared   g: T[BO, BK], x: T[BP, BK]
  fragment acc: f32[BO, BP] = 0
  let Wo = W + 2
  pipelined k < ceildiv(9*C, BK), stages {
    parallel i < BO, j < BK {
      let q = k*BK + j
      g[i, j] = G[q / 9, bo*BO + i, q / 3 % 3, q % 3]
    }
    parallel i < BP, j < BK {
      let p = bp*BP + i, q = k*BK + j
      x[i, j] = X[n, q / 9, p / Wo - q / 3 % 3, p % Wo - q % 3]
    }
    acc += g @ x^T
  }
  parallel i < BO, j < BP {
    let p = bp*BP + j
    Y[n, bo*BO + i, p / Wo, p % Wo] = acc[i, j]
  }
}
"""

# ---- 4 x 4 with stride 2 and padding 1, as generators have it: the four parities of a result's pixel are a dense
# product of 2 x 2 taps each
PHASES = """tile 1
kernel conv_transposed_phases<T: f32 | bf16>(X: T[N, C, H, W], G: T[C, O, 4, 4], Y: out T[N, O, 2*H, 2*W])
key bucket(N), C, H, W, O
tune BO = 64 | 128, BP = 64 | 128, BK = 32 | 64, stages = 2 | 3
grid n < N, a < 2, b < 2, bp < ceildiv(H*W, BP), bo < ceildiv(O, BO)
{
  shared   g: T[BO, BK], x: T[BP, BK]
  fragment acc: f32[BO, BP] = 0
  pipelined k < ceildiv(4*C, BK), stages {
    parallel i < BO, j < BK {
      let q = k*BK + j
      g[i, j] = G[q / 4, bo*BO + i, 1 - a + q / 2 % 2 * 2, 1 - b + q % 2 * 2]
    }
    parallel i < BP, j < BK {
      let p = bp*BP + i, q = k*BK + j
      x[i, j] = X[n, q / 4, p / W + a - q / 2 % 2, p % W + b - q % 2]
    }
    acc += g @ x^T
  }
  parallel i < BO, j < BP {
    let p = bp*BP + j
    Y[n, bo*BO + i, p / W * 2 + a, p % W * 2 + b] = acc[i, j]
  }
}
"""

# ---- one dimension, 3 taps, stride S, padding P, dilation Dil; the taps that meet nothing are multiplied with 0
TRANSPOSED1 = """tile 1
kernel conv_transposed1d<T: f32 | bf16, const S: i64, const P: i64, const Dil: i64>(
    X: T[N, C, L], G: T[C, O, 3], Y: out T[N, O, Lo])
where Lo == (L - 1)*S - 2*P + 2*Dil + 1
key bucket(N), C, L, O
tune BO = 64 | 128, BP = 64 | 128, BK = 32 | 64, stages = 2 | 3
grid n < N, bp < ceildiv(Lo, BP), bo < ceildiv(O, BO)
{
  shared   g: T[BO, BK], x: T[BK, BP]
  fragment acc: f32[BO, BP] = 0
  pipelined k < ceildiv(3*C, BK), stages {
    parallel i < BO, j < BK { g[i, j] = G[(k*BK + j) / 3, bo*BO + i, (k*BK + j) % 3] }
    parallel i < BK, j < BP {
      let q = k*BK + i
      let at = bp*BP + j + P - q % 3 * Dil
      x[i, j] = at % S == 0 ? X[n, q / 3, at / S] : 0
    }
    acc += g @ x
  }
  Y[n, bo*BO +: BO, bp*BP +: BP] = acc
}
"""

# ---- three dimensions, 3 x 3 x 3, stride 2, padding 1, one more row of output: everything is doubled
TRANSPOSED3 = """tile 1
kernel conv_transposed3d<T: f32 | bf16>(X: T[N, C, Z, H, W], G: T[C, O, 3, 3, 3], Y: out T[N, O, 2*Z, 2*H, 2*W])
key bucket(N), C, Z, H, W, O
tune BO = 32 | 64, BP = 64 | 128, BK = 32 | 64, stages = 2 | 3
grid n < N, z < 2*Z, bp < ceildiv(4*H*W, BP), bo < ceildiv(O, BO)
{
  shared   g: T[BO, BK], x: T[BP, BK]
  fragment acc: f32[BO, BP] = 0
  pipelined k < ceildiv(27*C, BK), stages {
    parallel i < BO, j < BK {
      let q = k*BK + j
      g[i, j] = G[q / 27, bo*BO + i, q / 9 % 3, q / 3 % 3, q % 3]
    }
    parallel i < BP, j < BK {
      let p = bp*BP + i, q = k*BK + j
      let u = z + 1 - q / 9 % 3, v = p / (2*W) + 1 - q / 3 % 3, w = p % (2*W) + 1 - q % 3
      x[i, j] = u % 2 == 0 && v % 2 == 0 && w % 2 == 0 ? X[n, q / 27, u / 2, v / 2, w / 2] : 0
    }
    acc += g @ x^T
  }
  parallel i < BO, j < BP {
    let p = bp*BP + j
    Y[n, bo*BO + i, z, p / (2*W), p % (2*W)] = acc[i, j]
  }
}
"""


def line(s, p, dilation):
    def dims(n, c, length, o):
        return {"N": n, "C": c, "L": length, "O": o, "Lo": (length - 1)*s - 2*p + 2*dilation + 1}
    return dims


def volume(n, c, z, h, w, o):
    return {"N": n, "C": c, "Z": z, "H": h, "W": w, "O": o}


CASES = [
    *both("transposed_2d", TRANSPOSED2, shapes(image, (16, 64, 128, 128, 64), (3, 37, 57, 61, 43), (2, 5, 9, 11, 7)),
          lambda t, d: F.conv_transpose2d(t.X, t.G)),
    *both("transposed_2d_phases", PHASES, shapes(image, (16, 128, 64, 64, 64), (3, 37, 29, 31, 43), (2, 5, 7, 9, 7)),
          lambda t, d: F.conv_transpose2d(t.X, t.G, stride=2, padding=1)),
    Case("transposed_1d_f32", TRANSPOSED1, shapes(line(2, 1, 2), (32, 32, 32768, 64), (3, 37, 2051, 43), (2, 5, 67, 7)),
         lambda t, d: F.conv_transpose1d(t.X, t.G, stride=2, padding=1, dilation=2), consts={"S": 2, "P": 1, "Dil": 2},
         types=F32),
    Case("transposed_3d_f32", TRANSPOSED3,
         shapes(volume, (4, 32, 16, 32, 32, 32), (2, 11, 7, 13, 15, 19), (2, 3, 3, 4, 5, 5)),
         lambda t, d: F.conv_transpose3d(t.X, t.G, stride=2, padding=1, output_padding=1), types=F32),
]
