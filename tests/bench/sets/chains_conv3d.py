"""Convolutions of volumes with elementwise chains, softmax and reductions over channels behind them."""
import torch
import torch.nn.functional as F
from sets.shared.chains import AUTO_CONV, cases, volumes

torch.backends.cudnn.allow_tf32 = False  # torch's default, of convolutions alone, is true; f32 is f32 on both sides

LIST = "tune BO = 64 | 32 | 128, BP = 64 | 128, BK = 32 | 64, stages = 2 | 3"


# ---- 3 x 3 x 3, stride 1, no border
def conv(name, params, tune, epilogue):
    return f"""tile 1

kernel {name}<T: f32 | f16 | bf16>(X: T[N, C, D, H, W], F: T[O, K], b: T[O], {params}Y: out T[N, O, L, P, Q])
where K == 27 * C, L == D - 2, P == H - 2, Q == W - 2
key  N, C, D, H, W, O
{tune}
grid n < N, bp < ceildiv(L*P*Q, BP), bo < ceildiv(O, BO)
{{
  shared   f: T[BO, BK], x: T[BK, BP]
  fragment acc: f32[BO, BP] = 0

  pipelined k < ceildiv(K, BK), stages {{
    f = F[bo*BO +: BO, k*BK +: BK]
    parallel i < BK, j < BP {{
      let q = k*BK + i, m = bp*BP + j
      x[i, j] = X[n, q / 27, m / (P*Q) + q / 9 % 3, m / Q % P + q / 3 % 3, m % Q + q % 3]
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


# ---- tanh(mish(conv))
MISH_TANH = conv("conv3d_mish_tanh", "", AUTO_CONV, """\
    Y[n, o, m / (P*Q), m / Q % P, m % Q] = tanh(v * tanh(log(1 + exp(v))))""")
# ---- gelu(clamp(leaky_relu(conv) + a, -1, 1))
CLAMP_GELU = conv("conv3d_leakyrelu_sum_clamp_gelu", "a: T[O], ", LIST, """\
    let u = clamp((v > 0 ? v : 0.2 * v) + a[o], -1, 1)
    Y[n, o, m / (P*Q), m / Q % P, m % Q] = 0.5 * u * (1 + erf(u * 0.70710678))""")
# ---- sigmoid(tanh(s * conv) * f)
SCALING = conv("conv3d_scaling_tanh_multiply_sigmoid", "s: T[O], f1: T[O], ", AUTO_CONV, """\
    Y[n, o, m / (P*Q), m / Q % P, m % Q] = rcp(1 + exp(-(tanh(v * s[o]) * f1[o])))""")

# ---- softmax over the channels of conv: a block has all of them
SOFTMAX = """tile 1

kernel conv3d_softmax<T: f32 | f16 | bf16>(X: T[N, C, D, H, W], F: T[O, K], b: T[O], Y: out T[N, O, L, P, Q])
where K == 27 * C, L == D - 2, P == H - 2, Q == W - 2, O <= 128
key  N, C, D, H, W, O
tune BP = 128 | 64 | 256, BK = 32 | 64, stages = 2 | 3
grid n < N, bp < ceildiv(L*P*Q, BP)
{
  shared   x: T[BP, BK], f: T[O, BK]
  fragment acc: f32[BP, O] = 0

  pipelined k < ceildiv(K, BK), stages {
    f = F[:, k*BK +: BK]
    parallel i < BP, j < BK {
      let q = k*BK + j, m = bp*BP + i
      x[i, j] = X[n, q / 27, m / (P*Q) + q / 9 % 3, m / Q % P + q / 3 % 3, m % Q + q % 3]
    }
    acc += x @ f^T
  }
  parallel i < BP, o < O { acc[i, o] += b[o] }
  parallel i < BP, o < O { acc[i, o] = exp(acc[i, o] - max[c < O](acc[i, c])) }
  parallel i < BP, o < O { acc[i, o] /= sum[c < O](acc[i, c]) }
  parallel i < BP, o < O {
    let m = bp*BP + i
    Y[n, o, m / (P*Q), m / Q % P, m % Q] = acc[i, o]
  }
}
"""

# ---- the least over the depth, softmax over the channels: a block walks along the depth
MIN_SOFTMAX = """tile 1

kernel conv3d_min_softmax<T: f32 | f16 | bf16>(X: T[N, C, D, H, W], F: T[O, K], b: T[O], Y: out T[N, O, P, Q])
where K == 27 * C, P == H - 2, Q == W - 2, O <= 64
key  N, C, D, H, W, O
tune BP = 64 | 128 | 256, BK = 32 | 64, stages = 2 | 3 | 4
grid n < N, bp < ceildiv(P*Q, BP)
{
  shared   f: T[O, BK], x: T[BK, BP]
  fragment acc: f32[O, BP], least: f32[O, BP] = inf

  for l < D - 2 {
    acc = 0
    pipelined k < ceildiv(K, BK), stages {
      f = F[:, k*BK +: BK]
      parallel i < BK, j < BP {
        let q = k*BK + i, m = bp*BP + j
        x[i, j] = X[n, q / 27, l + q / 9 % 3, m / Q + q / 3 % 3, m % Q + q % 3]
      }
      acc += f @ x
    }
    parallel o < O, j < BP { least[o, j] = min(least[o, j], acc[o, j]) }
  }
  parallel o < O, j < BP { least[o, j] += b[o] }
  parallel o < O, j < BP { least[o, j] = exp(least[o, j] - max[c < O](least[c, j])) }
  parallel o < O, j < BP { least[o, j] /= sum[c < O](least[c, j]) }
  parallel o < O, j < BP {
    let m = bp*BP + j
    Y[n, o, m / Q, m % Q] = least[o, j]
  }
}
"""

# ---- relu(logsumexp over the channels of maxpool 2 x 2 x 2 of conv): eight columns in a row are a window
POOL_LSE = """tile 1

kernel conv3d_maxpool_logsumexp_relu<T: f32 | f16 | bf16>(
    X: T[N, C, D, H, W], F: T[O, K], b: T[O], Y: out T[N, 1, L, P, Q])
where K == 27 * C, L == (D - 2) / 2, P == (H - 2) / 2, Q == (W - 2) / 2, O <= 128
key  N, C, D, H, W, O
where O * BP * 8 <= 32768
tune BP = 16 | 8 | 32, BK = 32 | 64, stages = 2 | 3
grid n < N, bp < ceildiv(L*P*Q, BP)
{
  shared   f: T[O, BK], x: T[BK, 8*BP]
  fragment acc: f32[O, 8*BP] = 0, top: f32[O, BP], y: f32[BP]

  pipelined k < ceildiv(K, BK), stages {
    f = F[:, k*BK +: BK]
    parallel i < BK, j < 8*BP {
      let q = k*BK + i, m = bp*BP + j / 8
      x[i, j] = X[n, q / 27, m / (P*Q) * 2 + j / 4 % 2 + q / 9 % 3, m / Q % P * 2 + j / 2 % 2 + q / 3 % 3,
                  m % Q * 2 + j % 2 + q % 3]
    }
    acc += f @ x
  }
  parallel o < O, j < BP { top[o, j] = max[u < 8](acc[o, 8*j + u]) + b[o] }
  parallel j < BP {
    let most = max[o < O](top[o, j])
    y[j] = max(most + log(sum[o < O](exp(top[o, j] - most))), 0)
  }
  parallel j < BP {
    let m = bp*BP + j
    Y[n, 0, m / (P*Q), m / Q % P, m % Q] = y[j]
  }
}
"""


def conv3d(t, d):
    return F.conv3d(t.X, t.F.view(d["O"], d["C"], 3, 3, 3), t.b)


def scaling(t, d):
    return torch.sigmoid(torch.tanh(conv3d(t, d) * t.s[:, None, None, None]) * t.f1[:, None, None, None])


LARGE, ODD = (16, 32, 32, 64, 64, 64), (3, 13, 11, 21, 19, 37)
LARGE32, ODD32 = (8, 16, 32, 64, 64, 64), (2, 7, 9, 15, 13, 19)

CASES = [
    *cases("conv3d_mish_tanh", MISH_TANH, lambda t, d: torch.tanh(F.mish(conv3d(t, d))), volumes(LARGE, ODD),
           volumes(LARGE32, ODD32)),
    *cases("conv3d_leakyrelu_sum_clamp_gelu", CLAMP_GELU,
           lambda t, d: F.gelu((F.leaky_relu(conv3d(t, d), 0.2) + t.a[:, None, None, None]).clamp(-1.0, 1.0)),
           volumes((32, 8, 16, 64, 64, 64), ODD), t16="f16"),
    *cases("conv3d_scaling_tanh_multiply_sigmoid", SCALING, scaling, volumes((64, 3, 16, 64, 64, 16), ODD)),
    *cases("conv3d_softmax", SOFTMAX, lambda t, d: F.softmax(conv3d(t, d), 1),
           volumes((64, 3, 16, 64, 64, 16), ODD), volumes((16, 16, 16, 64, 64, 32), ODD32)),
    *cases("conv3d_min_softmax", MIN_SOFTMAX, lambda t, d: F.softmax(conv3d(t, d).amin(2), 1),
           volumes((128, 3, 24, 32, 32, 24), (3, 5, 11, 21, 19, 13))),
    *cases("conv3d_maxpool_logsumexp_relu", POOL_LSE,
           lambda t, d: F.relu(torch.logsumexp(F.max_pool3d(conv3d(t, d), 2), 1, keepdim=True)),
           volumes((16, 32, 32, 64, 64, 64), ODD, pool=2), volumes((4, 32, 32, 64, 64, 64), ODD32, pool=2)),
]
