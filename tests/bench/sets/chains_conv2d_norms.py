"""Convolutions of images (NCHW) with norms behind them, as programs of three kernels."""
import torch
import torch.nn.functional as F
from sets.shared.chains import cases, filters, images, value

torch.backends.cudnn.allow_tf32 = False  # torch's default, of convolutions alone, is true; f32 is f32 on both sides

# ---- instance norm of conv, / divisor: the convolution adds up what the norm needs
INSTANCE = """tile 1

kernel zero(s: out f32[N, O, 2])
key N, O
grid n < N, b < ceildiv(O, 128)
{
  fragment z: f32[128, 2] = 0
  s[n, b*128 +: 128, :] = z
}

kernel conv_sums<T: f32 | f16 | bf16>(
    X: T[N, C, H, W], F: T[O, K], b: T[O], x: out T[N, O, P, Q], s: inout f32[N, O, 2])
where K == 9 * C, P == H - 2, Q == W - 2
key  N, C, H, W, O
tune BO = 64 | 128, BP = 64 | 128, BK = 32 | 64, stages = 2 | 3 | 4
grid n < N, bp < ceildiv(P*Q, BP), bo < ceildiv(O, BO)
{
  shared   f: T[BO, BK], p: T[BK, BP]
  fragment acc: f32[BO, BP] = 0

  pipelined k < ceildiv(K, BK), stages {
    f = F[bo*BO +: BO, k*BK +: BK]
    parallel i < BK, j < BP {
      let q = k*BK + i, m = bp*BP + j
      p[i, j] = X[n, q / 9, m / Q + q / 3 % 3, m % Q + q % 3]
    }
    acc += f @ p
  }
  parallel i < BO, j < BP {
    let o = bo*BO + i, m = bp*BP + j
    let v = m < P*Q ? acc[i, j] + b[o] : 0.0
    acc[i, j] = v
    x[n, o, m / Q, m % Q] = v
  }
  parallel i < BO {
    atomic s[n, bo*BO + i, 0] += sum[j < BP](acc[i, j])
    atomic s[n, bo*BO + i, 1] += sum[j < BP](acc[i, j] * acc[i, j])
  }
}

kernel normalise<T: f32 | f16 | bf16>(x: T[N, O, P, Q], s: f32[N, O, 2], Y: out T[N, O, P, Q], eps: f32, divisor: f32)
key  N, O, P, Q
tune BE = 1024 | 2048 | 4096
grid n < N, o < O, e < ceildiv(P*Q, BE)
{
  parallel j < BE {
    let m = e*BE + j
    let mean = s[n, o, 0] / (P*Q)
    let var = s[n, o, 1] / (P*Q) - mean*mean
    Y[n, o, m / Q, m % Q] = (x[n, o, m / Q, m % Q] - mean) * rsqrt(var + eps) / divisor
  }
}

program conv2d_instancenorm_divide<T: f32 | f16 | bf16>(
    X: T[N, C, H, W], F: T[O, K], b: T[O], Y: out T[N, O, P, Q], eps: f32, divisor: f32)
where K == 9 * C, P == H - 2, Q == W - 2
{
  temp x: T[N, O, P, Q], s: f32[N, O, 2]
  zero(s)
  conv_sums(X, F, b, x, s)
  normalise(x, s, Y, eps, divisor)
}
"""

# ---- logsumexp over the channels of x + hardswish(tanh(groupnorm(x))), x a convolution; O = G D
GROUPNORM = """tile 1

kernel zero(s: out f32[N, G, 2])
key N, G
grid n < N
{
  fragment z: f32[G, 2] = 0
  s[n, :, :] = z
}

kernel conv_sums<T: f32 | f16 | bf16>(
    X: T[N, C, H, W], F: T[O, K], b: T[O], x: out T[N, O, P, Q], s: inout f32[N, G, 2])
where K == 9 * C, P == H - 2, Q == W - 2, O % G == 0
key  N, C, H, W, O
tune BO = 64 | 128, BP = 64 | 128, BK = 32 | 64, stages = 2 | 3 | 4
grid n < N, bp < ceildiv(P*Q, BP), bo < ceildiv(O, BO)
{
  shared   f: T[BO, BK], p: T[BK, BP]
  fragment acc: f32[BO, BP] = 0

  pipelined k < ceildiv(K, BK), stages {
    f = F[bo*BO +: BO, k*BK +: BK]
    parallel i < BK, j < BP {
      let q = k*BK + i, m = bp*BP + j
      p[i, j] = X[n, q / 9, m / Q + q / 3 % 3, m % Q + q % 3]
    }
    acc += f @ p
  }
  parallel i < BO, j < BP {
    let o = bo*BO + i, m = bp*BP + j
    let v = m < P*Q ? acc[i, j] + b[o] : 0.0
    acc[i, j] = v
    x[n, o, m / Q, m % Q] = v
  }
  # channels beyond O belong to groups beyond G, which are not there
  parallel i < BO {
    let g = (bo*BO + i) / (O / G)
    atomic s[n, g, 0] += sum[j < BP](acc[i, j])
    atomic s[n, g, 1] += sum[j < BP](acc[i, j] * acc[i, j])
  }
}

kernel finish<T: f32 | f16 | bf16>(
    x: T[N, O, P, Q], s: f32[N, G, 2], gamma: T[O], beta: T[O], Y: out T[N, 1, P, Q], eps: f32)
where O % G == 0
key  N, O, P, Q
tune BP = 16 | 32 | 64 | 128
grid n < N, bp < ceildiv(P*Q, BP)
{
  fragment v: f32[O, BP], y: f32[BP]
  parallel o < O, j < BP {
    let m = bp*BP + j
    let g = o / (O / G), count = O / G * P * Q
    let mean = s[n, g, 0] / count
    let var = s[n, g, 1] / count - mean*mean
    let u = x[n, o, m / Q, m % Q]
    let h = tanh((u - mean) * rsqrt(var + eps) * gamma[o] + beta[o])
    v[o, j] = u + h * clamp(h + 3, 0, 6) / 6
  }
  parallel j < BP {
    let top = max[o < O](v[o, j])
    y[j] = top + log(sum[o < O](exp(v[o, j] - top)))
  }
  parallel j < BP {
    let m = bp*BP + j
    Y[n, 0, m / Q, m % Q] = y[j]
  }
}

program conv2d_groupnorm_residual_logsumexp<T: f32 | f16 | bf16, const G: i64>(
    X: T[N, C, H, W], F: T[O, K], b: T[O], gamma: T[O], beta: T[O], Y: out T[N, 1, P, Q], eps: f32)
where K == 9 * C, P == H - 2, Q == W - 2, O % G == 0
{
  temp x: T[N, O, P, Q], s: f32[N, G, 2]
  zero(s)
  conv_sums(X, F, b, x, s)
  finish(x, s, gamma, beta, Y, eps)
}
"""


def groupnorm(groups):
    def fn(t, d):
        x = F.conv2d(t.X, filters(t, d), t.b)
        y = F.hardswish(torch.tanh(F.group_norm(x, groups, t.gamma, t.beta, t.eps)))
        return torch.logsumexp(x + y, 1, keepdim=True)
    return fn


CASES = [
    *cases("conv2d_instancenorm_divide", INSTANCE,
           lambda t, d: F.instance_norm(F.conv2d(t.X, filters(t, d), t.b), eps=t.eps) / t.divisor,
           images((64, 64, 128, 128, 128), (5, 13, 45, 51, 37), (2, 3, 10, 11, 6)),
           images((16, 64, 128, 128, 128), (3, 13, 37, 29, 21), (2, 3, 10, 11, 6)),
           kernel="conv2d_instancenorm_divide", fills={"eps": value(1e-5), "divisor": value(2.0)}),
    *cases("conv2d_groupnorm_residual_logsumexp", GROUPNORM, groupnorm(16),
           images((128, 8, 128, 128, 64), (5, 7, 61, 59, 48), (2, 3, 9, 11, 16)),
           images((128, 8, 128, 128, 64), (3, 5, 31, 43, 48), (2, 3, 9, 11, 16)),
           kernel="conv2d_groupnorm_residual_logsumexp", consts={"G": 16}, fills={"eps": value(1e-5)}),
]
