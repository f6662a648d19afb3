"""Convolutions of images (NCHW) with elementwise chains, minima over channels and maxima of windows behind them."""
import torch
import torch.nn.functional as F
from sets.shared.chains import AUTO_CONV, DEV, cases, filters, images, linear, value

torch.backends.cudnn.allow_tf32 = False  # torch's default, of convolutions alone, is true; f32 is f32 on both sides

LIST = "tune BO = 64 | 128, BP = 64 | 128, BK = 32 | 64, stages = 2 | 3 | 4"


# ---- 3 x 3, stride 1, no border: rows of the product are channels, columns are pixels of one image
def conv(name, params, tune, epilogue):
    return f"""tile 1

kernel {name}<T: f32 | f16 | bf16>(X: T[N, C, H, W], F: T[O, K], b: T[O], {params}Y: out T[N, O, P, Q])
where K == 9 * C, P == H - 2, Q == W - 2
key  N, C, H, W, O
{tune}
grid n < N, bp < ceildiv(P*Q, BP), bo < ceildiv(O, BO)
{{
  shared   f: T[BO, BK], x: T[BK, BP]
  fragment acc: f32[BO, BP] = 0

  pipelined k < ceildiv(K, BK), stages {{
    f = F[bo*BO +: BO, k*BK +: BK]
    parallel i < BK, j < BP {{
      let q = k*BK + i, m = bp*BP + j
      x[i, j] = X[n, q / 9, m / Q + q / 3 % 3, m % Q + q % 3]
    }}
    acc += f @ x
  }}
  parallel i < BO, j < BP {{
    let o = bo*BO + i, m = bp*BP + j
    let v = acc[i, j] + b[o]
{epilogue}
  }}
}}
"""


# ---- relu(conv) + bias
RELU_BIAS = conv("conv2d_relu_bias", "bias: T[O], ", AUTO_CONV, "    Y[n, o, m / Q, m % Q] = max(v, 0) + bias[o]")
# ---- leaky_relu(conv / 2)
DIVIDE = conv("conv2d_divide_leakyrelu", "divisor: f32, ", LIST, """\
    let u = v / divisor
    Y[n, o, m / Q, m % Q] = u > 0 ? u : 0.01 * u""")
# ---- mish(conv - p - r)
SUBTRACT = conv("conv2d_subtract_subtract_mish", "p: f32, r: f32, ", AUTO_CONV, """\
    let u = v - p - r
    Y[n, o, m / Q, m % Q] = u * tanh(log(1 + exp(u)))""")
# ---- relu(hardswish(conv))
HARDSWISH = conv("conv2d_hardswish_relu", "", LIST, """\
    Y[n, o, m / Q, m % Q] = max(v * clamp(v + 3, 0, 6) / 6, 0)""")
# ---- batchnorm(x tanh(softplus(x))), with its factors
BATCHNORM = conv("conv2d_activation_batchnorm", "mean: T[O], var: T[O], gamma: T[O], beta: T[O], eps: f32, ",
                 AUTO_CONV, """\
    let u = v * tanh(log(1 + exp(v)))
    Y[n, o, m / Q, m % Q] = (u - mean[o]) * rsqrt(var[o] + eps) * gamma[o] + beta[o]""")

# ---- stride 2 and a border: relu, then a residual of the result's size
STRIDED = """tile 1

kernel conv2d_s2_relu_add<T: f32 | f16 | bf16>(
    X: T[N, C, H, W], F: T[O, K], b: T[O], R: T[N, O, P, Q], Y: out T[N, O, P, Q])
where K == 9 * C, P == (H + 1) / 2, Q == (W + 1) / 2
key  N, C, H, W, O
where BO <= 128
tune auto BO, BP, BK, stages
grid n < N, bp < ceildiv(P*Q, BP), bo < ceildiv(O, BO)
{
  shared   f: T[BO, BK], x: T[BK, BP]
  fragment acc: f32[BO, BP] = 0

  pipelined k < ceildiv(K, BK), stages {
    f = F[bo*BO +: BO, k*BK +: BK]
    parallel i < BK, j < BP {
      let q = k*BK + i, m = bp*BP + j
      x[i, j] = X[n, q / 9, m / Q * 2 + q / 3 % 3 - 1, m % Q * 2 + q % 3 - 1]
    }
    acc += f @ x
  }
  parallel i < BO, j < BP {
    let o = bo*BO + i, m = bp*BP + j
    Y[n, o, m / Q, m % Q] = max(acc[i, j] + b[o], 0) + R[n, o, m / Q, m % Q]
  }
}
"""

# ---- stride 2, tanh(tanh(min over the channels)): pixels are rows, and a block has all channels
MIN_TANH = """tile 1

kernel conv2d_min_tanh_tanh<T: f32 | f16 | bf16>(X: T[N, C, H, W], F: T[O, K], b: T[O], Y: out T[N, 1, P, Q])
where K == 9 * C, P == (H + 1) / 2, Q == (W + 1) / 2, O <= 256
key  N, C, H, W, O
where BP * O <= 32768
tune BP = 128 | 64 | 256, BK = 32 | 64, stages = 2 | 3 | 4
grid n < N, bp < ceildiv(P*Q, BP)
{
  shared   x: T[BP, BK], f: T[O, BK]
  fragment acc: f32[BP, O] = 0

  pipelined k < ceildiv(K, BK), stages {
    parallel i < BP, j < BK {
      let q = k*BK + j, m = bp*BP + i
      x[i, j] = X[n, q / 9, m / Q * 2 + q / 3 % 3 - 1, m % Q * 2 + q % 3 - 1]
    }
    f = F[:, k*BK +: BK]
    acc += x @ f^T
  }
  parallel i < BP {
    let m = bp*BP + i
    Y[n, 0, m / Q, m % Q] = tanh(tanh(min[o < O](acc[i, o] + b[o])))
  }
}
"""

# ---- min over the channels of scale * conv
SCALE_MIN = """tile 1

kernel conv2d_scale_min<T: f32 | f16 | bf16>(X: T[N, C, H, W], F: T[O, K], b: T[O], Y: out T[N, 1, P, Q], scale: f32)
where K == 9 * C, P == H - 2, Q == W - 2, O <= 256
key  N, C, H, W, O
where BP * O <= 32768
tune auto BP, BK, stages
grid n < N, bp < ceildiv(P*Q, BP)
{
  shared   x: T[BK, BP], f: T[O, BK]
  fragment acc: f32[O, BP] = 0

  pipelined k < ceildiv(K, BK), stages {
    parallel i < BK, j < BP {
      let q = k*BK + i, m = bp*BP + j
      x[i, j] = X[n, q / 9, m / Q + q / 3 % 3, m % Q + q % 3]
    }
    f = F[:, k*BK +: BK]
    acc += f @ x
  }
  parallel j < BP {
    let m = bp*BP + j
    Y[n, 0, m / Q, m % Q] = min[o < O]((acc[o, j] + b[o]) * scale)
  }
}
"""

# ---- mish(maxpool 2 x 2 of hardswish(conv - s)): four columns in a row are the pixels of a window
MAXPOOL = """tile 1

kernel conv2d_subtract_hardswish_maxpool_mish<T: f32 | f16 | bf16>(
    X: T[N, C, H, W], F: T[O, K], b: T[O], Y: out T[N, O, P, Q], s: f32)
where K == 9 * C, P == (H - 2) / 2, Q == (W - 2) / 2
key  N, C, H, W, O
tune BO = 64 | 128, BP = 16 | 32, BK = 32 | 64, stages = 2 | 3 | 4
grid n < N, bp < ceildiv(P*Q, BP), bo < ceildiv(O, BO)
{
  shared   f: T[BO, BK], x: T[BK, 4*BP]
  fragment acc: f32[BO, 4*BP] = 0

  pipelined k < ceildiv(K, BK), stages {
    f = F[bo*BO +: BO, k*BK +: BK]
    parallel i < BK, j < 4*BP {
      let q = k*BK + i, m = bp*BP + j / 4
      x[i, j] = X[n, q / 9, m / Q * 2 + j / 2 % 2 + q / 3 % 3, m % Q * 2 + j % 2 + q % 3]
    }
    acc += f @ x
  }
  parallel i < BO, j < 4*BP {
    let v = acc[i, j] + b[bo*BO + i] - s
    acc[i, j] = v * clamp(v + 3, 0, 6) / 6
  }
  parallel i < BO, j < BP {
    let o = bo*BO + i, m = bp*BP + j
    let v = max[u < 4](acc[i, 4*j + u])
    Y[n, o, m / Q, m % Q] = v * tanh(log(1 + exp(v)))
  }
}
"""


def conv2d(t, d, **how):
    return F.conv2d(t.X, filters(t, d), t.b, **how)


def activation_batchnorm(t, d):
    x = conv2d(t, d)
    return F.batch_norm(torch.tanh(F.softplus(x)) * x, t.mean, t.var, t.gamma, t.beta, False, 0.0, t.eps)


def half(size):
    return (size + 1) // 2


LARGE, ODD = (64, 64, 128, 128, 128), (5, 13, 45, 51, 37)
LARGE32, ODD32 = (16, 64, 128, 128, 128), (3, 13, 37, 29, 21)

CASES = [
    *cases("conv2d_relu_bias", RELU_BIAS, lambda t, d: F.relu(conv2d(t, d)) + t.bias[:, None, None],
           images(LARGE, ODD), images(LARGE32, ODD32)),
    *cases("conv2d_divide_leakyrelu", DIVIDE, lambda t, d: F.leaky_relu(conv2d(t, d) / t.divisor, 0.01),
           images(LARGE, ODD), t16="f16", fills={"divisor": value(2.0)}),
    *cases("conv2d_subtract_subtract_mish", SUBTRACT, lambda t, d: F.mish(conv2d(t, d) - t.p - t.r),
           images((128, 8, 256, 256, 64), (5, 7, 61, 59, 33)), fills={"p": value(0.5), "r": value(0.2)}),
    *cases("conv2d_hardswish_relu", HARDSWISH, lambda t, d: F.relu(F.hardswish(conv2d(t, d))),
           images((128, 8, 128, 128, 64), (5, 7, 61, 59, 33)), images((64, 8, 128, 128, 64), (3, 5, 31, 43, 19))),
    *cases("conv2d_activation_batchnorm", BATCHNORM, activation_batchnorm, images(LARGE, ODD),
           fills={"eps": value(1e-5), "var": lambda s, d: torch.rand(s, device=DEV) + 0.5}),
    *cases("conv2d_s2_relu_add", STRIDED, lambda t, d: F.relu(conv2d(t, d, stride=2, padding=1)) + t.R,
           images((64, 128, 112, 112, 256), (5, 13, 45, 51, 37), size=half),
           images((16, 128, 112, 112, 128), (3, 13, 37, 29, 21), size=half)),
    *cases("conv2d_min_tanh_tanh", MIN_TANH,
           lambda t, d: torch.tanh(torch.tanh(conv2d(t, d, stride=2, padding=1).amin(1, keepdim=True))),
           images((128, 16, 256, 256, 64), (5, 13, 45, 51, 37), size=half),
           images((64, 16, 256, 256, 64), (3, 13, 37, 29, 21), size=half),
           # minima of normal numbers lie near tanh(-1), where errors are small
           fills={"F": lambda s, d: linear(s, d) * 0.3, "b": lambda s, d: torch.randn(s, device=DEV) * 0.2}),
    *cases("conv2d_scale_min", SCALE_MIN, lambda t, d: (conv2d(t, d) * t.scale).amin(1, keepdim=True),
           images(LARGE, ODD), images(LARGE32, ODD32), fills={"scale": value(2.0)}),
    *cases("conv2d_subtract_hardswish_maxpool_mish", MAXPOOL,
           lambda t, d: F.mish(F.max_pool2d(F.hardswish(conv2d(t, d) - t.s), 2)),
           images(LARGE, ODD, pool=2), images(LARGE32, ODD32, pool=2), fills={"s": value(0.5)}),
]
