"""Transposed convolutions of images and volumes with chains behind them."""
import torch
import torch.nn.functional as F
from sets.shared.chains import AUTO_CONV, DEV, cases, dims, value, volumes, wide

torch.backends.cudnn.allow_tf32 = False  # torch's default, of convolutions alone, is true; f32 is f32 on both sides

LIST = "tune BO = 64 | 128, BP = 64 | 128, BK = 32 | 64, stages = 2 | 3"


# ---- transposed convolutions with a 4 x 4 filter, stride 2, padding 1: pixels (2 y + u, 2 x + v) read taps 2 t + 1 - u
def transposed(name, params, tune, epilogue):
    return f"""tile 1

kernel {name}<T: f32 | f16 | bf16>(X: T[N, C, H, W], F: T[C, O, 4, 4], b: T[O], {params}Y: out T[N, O, P, Q])
where P == 2 * H, Q == 2 * W
key  N, C, H, W, O
{tune}
grid n < N, kind < 4, bp < ceildiv(H*W, BP), bo < ceildiv(O, BO)
{{
  shared   f: T[BK, BO], x: T[BK, BP]
  fragment acc: f32[BO, BP] = 0
  let u = kind / 2, v = kind % 2, chunks = ceildiv(C, BK)

  pipelined k < 4 * chunks, stages {{
    let tr = k / chunks / 2, ts = k / chunks % 2, c = k % chunks * BK
    f = F[c +: BK, bo*BO +: BO, 2*tr + 1 - u, 2*ts + 1 - v]
    parallel i < BK, j < BP {{
      let m = bp*BP + j
      x[i, j] = X[n, c + i, m / W + u - tr, m % W + v - ts]
    }}
    acc += f^T @ x
  }}
  parallel i < BO, j < BP {{
    let o = bo*BO + i, m = bp*BP + j
    let y = acc[i, j] + b[o]
{epilogue}
  }}
}}
"""


MISH = transposed("convt2d_mish_add_hardtanh_scale", "add: f32, scale: f32, ", AUTO_CONV, """\
    let z = clamp(y * tanh(log(1 + exp(y))) + add, -1, 1)
    Y[n, o, m / W * 2 + u, m % W * 2 + v] = z * scale""")
SUBTRACT = transposed("convt2d_subtract_tanh", "bias: T[O], ", LIST, """\
    Y[n, o, m / W * 2 + u, m % W * 2 + v] = tanh(y - bias[o])""")
ADD_MIN = transposed("convt2d_add_min_gelu_multiply", "add: f32, scale: f32, ", AUTO_CONV, """\
    let z = min(y + add, 0)
    Y[n, o, m / W * 2 + u, m % W * 2 + v] = 0.5 * z * (1 + erf(z * 0.70710678)) * scale""")

# ---- the same taps; softmax over the channels, then sigmoid
TSOFTMAX = """tile 1

kernel convt2d_softmax<T: f32 | f16 | bf16>(
    X: T[N, C, H, W], F: T[C, O, 4, 4], b: T[O], bias: T[O], Y: out T[N, O, P, Q], scale: f32)
where P == 2 * H, Q == 2 * W, O <= 256
key  N, C, H, W, O
where BP * O <= 32768
tune BP = 128 | 64, BK = 32 | 64, stages = 2 | 3 | 4
grid n < N, kind < 4, bp < ceildiv(H*W, BP)
{
  shared   f: T[BK, O], x: T[BP, BK]
  fragment acc: f32[BP, O] = 0
  let u = kind / 2, v = kind % 2, chunks = ceildiv(C, BK)

  pipelined k < 4 * chunks, stages {
    let tr = k / chunks / 2, ts = k / chunks % 2, c = k % chunks * BK
    f = F[c +: BK, :, 2*tr + 1 - u, 2*ts + 1 - v]
    parallel i < BP, j < BK {
      let m = bp*BP + i
      x[i, j] = X[n, c + j, m / W + u - tr, m % W + v - ts]
    }
    acc += x @ f
  }
  parallel i < BP, o < O { acc[i, o] += b[o] }
  parallel i < BP, o < O { acc[i, o] = exp(acc[i, o] - max[c < O](acc[i, c])) }
  parallel i < BP, o < O { acc[i, o] /= sum[c < O](acc[i, c]) }
  parallel i < BP, o < O {
    let m = bp*BP + i
    Y[n, o, m / W * 2 + u, m % W * 2 + v] = rcp(1 + exp(-(acc[i, o] + bias[o]) * scale))
  }
}
"""

# ---- stride 2 with a 3 x 3 filter, padding 1 and output padding 1: each kind of pixel has taps of its own, row 2 y
# reads tap 1, row 2 y + 1 taps 0 and 2
CLAMPS = """tile 1

kernel convt2d_clamps<T: f32 | f16 | bf16>(
    X: T[N, C, H, W], F: T[C, O, 3, 3], b: T[O], bias: T[O], Y: out T[N, O, P, Q], scale: f32)
where P == 2 * H, Q == 2 * W
key  N, C, H, W, O
tune BO = 64 | 128, BP = 64 | 128, BK = 32 | 64, stages = 2 | 3
grid n < N, kind < 4, bp < ceildiv(H*W, BP), bo < ceildiv(O, BO)
{
  shared   f: T[BK, BO], x: T[BK, BP]
  fragment acc: f32[BO, BP] = 0
  let u = kind / 2, v = kind % 2, chunks = ceildiv(C, BK)

  pipelined k < (1 + u) * (1 + v) * chunks, stages {
    let tap = k / chunks, c = k % chunks * BK
    let tr = tap / (1 + v), ts = tap % (1 + v)   # the first and the second tap of this kind
    let r = u == 0 ? 1 : 2*tr, s = v == 0 ? 1 : 2*ts
    f = F[c +: BK, bo*BO +: BO, r, s]
    parallel i < BK, j < BP {
      let m = bp*BP + j
      x[i, j] = X[n, c + i, m / W + (u == 1 && tr == 0 ? 1 : 0), m % W + (v == 1 && ts == 0 ? 1 : 0)]
    }
    acc += f^T @ x
  }
  parallel i < BO, j < BP {
    let o = bo*BO + i, m = bp*BP + j
    let y = clamp(acc[i, j] + b[o] + bias[o], 0, 1)
    Y[n, o, m / W * 2 + u, m % W * 2 + v] = clamp(y * scale, 0, 1) / scale
  }
}
"""

# ---- transposed with stride 1: a convolution of the whole overlap with the filter turned round; scale, batchnorm, mean
T3D = """tile 1

kernel zero(y: out f32[N, O])
key N, O
grid n < N, b < ceildiv(O, 128)
{
  fragment z: f32[128] = 0
  y[n, b*128 +: 128] = z
}

kernel convt3d_means<T: f32 | f16 | bf16>(
    X: T[N, C, D, H, W], F: T[C, O, 27], b: T[O], mean: T[O], var: T[O], gamma: T[O], beta: T[O], y: inout f32[N, O],
    scale: f32, eps: f32)
key  N, C, D, H, W, O
tune BO = 64 | 128, BP = 64 | 128, BK = 32 | 64, stages = 2 | 3
grid n < N, bp < ceildiv((D + 2)*(H + 2)*(W + 2), BP), bo < ceildiv(O, BO)
{
  shared   f: T[BO, BK], x: T[BK, BP]
  fragment acc: f32[BO, BP] = 0, s: f32[BO]
  let L = D + 2, P = H + 2, Q = W + 2

  pipelined k < ceildiv(27*C, BK), stages {
    parallel i < BO, j < BK {
      let q = k*BK + j
      f[i, j] = F[q / 27, bo*BO + i, q % 27]
    }
    parallel i < BK, j < BP {
      let q = k*BK + i, m = bp*BP + j
      x[i, j] = X[n, q / 27, m / (P*Q) - q / 9 % 3, m / Q % P - q / 3 % 3, m % Q - q % 3]
    }
    acc += f @ x
  }
  parallel i < BO, j < BP {
    let o = bo*BO + i
    let v = (acc[i, j] + b[o]) * scale
    acc[i, j] = bp*BP + j < L*P*Q ? (v - mean[o]) * rsqrt(var[o] + eps) * gamma[o] + beta[o] : 0.0
  }
  parallel i < BO { s[i] = sum[j < BP](acc[i, j]) / (L*P*Q) }
  atomic y[n, bo*BO +: BO] += s
}

program convt3d_scale_batchnorm_mean<T: f32 | f16 | bf16>(
    X: T[N, C, D, H, W], F: T[C, O, 27], b: T[O], mean: T[O], var: T[O], gamma: T[O], beta: T[O], y: out f32[N, O],
    scale: f32, eps: f32)
{
  zero(y)
  convt3d_means(X, F, b, mean, var, gamma, beta, y, scale, eps)
}
"""


def convt(t, **how):
    return F.conv_transpose2d(t.X, t.F, t.b, stride=2, padding=1, **how)


def clamps(t, d):
    x = convt(t, output_padding=1) + t.bias[:, None, None]
    return (x.clamp(0.0, 1.0) * t.scale).clamp(0.0, 1.0) / t.scale


def softmax(t, d):
    return torch.sigmoid((F.softmax(convt(t), 1) + t.bias[:, None, None]) * t.scale)


def t3d(t, d):
    x = F.conv_transpose3d(t.X, t.F.view(d["C"], d["O"], 3, 3, 3), t.b) * t.scale
    x = F.batch_norm(x, t.mean, t.var, t.gamma, t.beta, False, 0.0, t.eps)
    return wide(x).mean((2, 3, 4))


def twice(large, odd, small=(2, 3, 5, 7, 6)):
    made = dims("N C H W O", large, odd, small)
    return {label: {**of, "P": 2 * of["H"], "Q": 2 * of["W"]} for label, of in made.items()}


def filters(taps):
    """Filters of which a pixel of the result meets so many taps."""
    return lambda s, d: torch.randn(s, device=DEV) * (d["C"] * taps) ** -0.5


ODD, ODD32 = (3, 13, 31, 29, 37), (3, 13, 21, 19, 27)

CASES = [
    *cases("convt2d_mish_add_hardtanh_scale", MISH,
           lambda t, d: F.hardtanh(F.mish(convt(t)) + t.add, -1.0, 1.0) * t.scale,
           twice((64, 64, 64, 64, 64), ODD), twice((32, 64, 64, 64, 64), ODD32),
           fills={"F": filters(4), "add": value(0.5), "scale": value(2.0)}),
    *cases("convt2d_subtract_tanh", SUBTRACT, lambda t, d: torch.tanh(convt(t) - t.bias[:, None, None]),
           twice((32, 64, 128, 128, 64), ODD), t16="f16", fills={"F": filters(4)}),
    *cases("convt2d_add_min_gelu_multiply", ADD_MIN, lambda t, d: F.gelu((convt(t) + t.add).clamp(max=0.0)) * t.scale,
           twice((128, 64, 64, 64, 128), ODD), fills={"F": filters(4), "add": value(0.5), "scale": value(2.0)}),
    *cases("convt2d_softmax_bias_scale_sigmoid", TSOFTMAX, softmax, twice((64, 64, 64, 64, 128), ODD),
           twice((16, 64, 64, 64, 128), ODD32), fills={"F": filters(4), "scale": value(2.0)}),
    *cases("convt2d_bias_clamp_scale_clamp_divide", CLAMPS, clamps, twice((32, 64, 128, 128, 64), ODD),
           twice((16, 64, 128, 128, 64), ODD32), fills={"F": filters(9 / 4), "scale": value(2.0)}),
    *cases("convt3d_scale_batchnorm_mean", T3D, t3d,
           volumes((16, 64, 16, 32, 32, 128), (3, 13, 11, 21, 19, 37), grow=2),
           volumes((8, 32, 16, 32, 32, 64), (2, 7, 9, 15, 13, 19), grow=2), kernel="convt3d_scale_batchnorm_mean",
           fills={"F": filters(27), "scale": value(2.0), "eps": value(1e-5),
                  "var": lambda s, d: torch.rand(s, device=DEV) + 0.5}, tolerance=1e-4),
]
