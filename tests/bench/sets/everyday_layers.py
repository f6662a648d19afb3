"""A state space model, convolutions, experts, pooling."""
import torch
import torch.nn.functional as F
from sets.shared.everyday import B16, BF, DEV, const, positive, wide
from unseen import Case

# ---- a state-space layer by chunks: h = exp(a) h + B x^T, y = C h; decays differ at each step and head
SSD = """tile 1
kernel ssd<T: f16 | bf16>(X: T[B, S, H, P], a: f32[B, S, H], Bm: T[B, S, N], Cm: T[B, S, N], Y: out T[B, S, H, P], last: out f32[B, H, N, P])
key bucket(B*H), bucket(S), P, N
tune stages = 1 | 2, BP = 32 | 64
grid b < B, h < H, w < ceildiv(P, BP)
{
  shared   x: T[64, BP], bm: T[64, N], cm: T[64, N], state16: T[N, BP]
  fragment s: f32[64, 64], p: T[64, 64], y: f32[64, BP], state: f32[N, BP] = 0
  fragment la: f32[64], cum: f32[64], xd: T[64, BP], cd: T[64, N]

  pipelined t < ceildiv(S, 64), stages {
    x  = X[b, t*64 +: 64, h, w*BP +: BP]
    bm = Bm[b, t*64 +: 64, :]
    cm = Cm[b, t*64 +: 64, :]
    la = a[b, t*64 +: 64, h]
    parallel i < 64 { cum[i] = sum[k <= i](la[k]) }
    let total = cum[63]
    s = cm @ bm^T
    parallel i < 64, j < 64 { p[i, j] = j <= i ? s[i, j] * exp(cum[i] - cum[j]) : 0.0 }
    y = p @ x
    state16 = state
    parallel i < 64, n < N { cd[i, n] = cm[i, n] * exp(cum[i]) }
    y += cd @ state16
    Y[b, t*64 +: 64, h, w*BP +: BP] = y
    parallel i < 64, q < BP { xd[i, q] = x[i, q] * exp(total - cum[i]) }
    parallel n < N, q < BP { state[n, q] *= exp(total) }
    state += bm^T @ xd
  }
  last[b, h, :, w*BP +: BP] = state
}
"""


def ssd(t, d, chunk=64):
    pad = -d["S"] % chunk
    x, a, bm, cm = (F.pad(v, (0, 0) * (v.dim() - 2) + (0, pad)) for v in (t.X, t.a, t.Bm, t.Cm))
    x, a, bm, cm = (v.unflatten(1, (-1, chunk)) for v in (x, a, bm, cm))
    cum = a.cumsum(2)                                                                       # b c l h
    decay = (cum[:, :, :, None] - cum[:, :, None]).permute(0, 1, 4, 2, 3)                   # b c h i j
    decay = decay.masked_fill(torch.ones(chunk, chunk, dtype=torch.bool, device=x.device).triu(1), float("-inf")).exp()
    s = (wide(cm @ bm.transpose(2, 3))[:, :, None] * decay).to(x.dtype)
    y = wide(s @ x.transpose(2, 3))                                                         # b c h i p
    total = cum[:, :, -1]                                                                   # b c h
    xd = (x * (total[:, :, None] - cum).exp()[..., None]).to(x.dtype)
    grow = wide(bm.transpose(2, 3)[:, :, None] @ xd.transpose(2, 3))                        # b c h n p
    state, before = torch.zeros_like(grow[:, 0]), []
    for c in range(grow.shape[1]):
        before.append(state)
        state = state * total[:, c].exp()[..., None, None] + grow[:, c]
    y = y + wide(cm[:, :, None] @ torch.stack(before, 1).to(x.dtype)) * cum.exp().transpose(2, 3)[..., None]
    return y.to(x.dtype).transpose(2, 3).flatten(1, 2)[:, :d["S"]], state


# ---- convolutions, channels last: of one pixel; of three by three, row by row of the image; of four steps, each channel alone
CONV1 = """tile 1
kernel conv1x1<T: f16 | bf16>(X: T[N, H, W, C], F: T[O, C], bias: T[O], skip: T[N, H, W, O], Y: out T[N, H, W, O])
key bucket(N), H, W, C, O
tune BM = 64 | 128, BO = 64 | 128, BC = 32 | 64, stages = 2 | 3 | 4
grid p < ceildiv(N*H*W, BM), o < ceildiv(O, BO)
{
  shared   x: T[BM, BC], f: T[BO, BC]
  fragment y: f32[BM, BO] = 0
  pipelined c < ceildiv(C, BC), stages {
    parallel i < BM, j < BC {
      let m = p*BM + i
      x[i, j] = X[m / (H*W), m / W % H, m % W, c*BC + j]
    }
    f = F[o*BO +: BO, c*BC +: BC]
    y += x @ f^T
  }
  parallel i < BM, j < BO {
    let m = p*BM + i, ch = o*BO + j
    let z = y[i, j] + bias[ch] + skip[m / (H*W), m / W % H, m % W, ch]
    Y[m / (H*W), m / W % H, m % W, ch] = max(z, 0)
  }
}
"""


def channels_last(x):
    return x.permute(0, 3, 1, 2)


def conv1x1(t, d):
    y = F.conv2d(channels_last(t.X), t.F[:, :, None, None], t.bias).permute(0, 2, 3, 1)
    return F.relu(y + t.skip)


CONV3 = """tile 1
kernel conv3x3_rows<T: f16 | bf16>(X: T[N, H, W, C], F: T[3, 3, C, O], bias: f32[O], Y: out T[N, H, W, O])
key bucket(N), H, W, C, O
tune BW = 64 | 128 | 32, BO = 64 | 128 | 32, BC = 32 | 64, stages = 2 | 3 | 4
grid n < N, y < H, x0 < ceildiv(W, BW), o < ceildiv(O, BO)
{
  shared   a: T[BW, BC], f: T[BC, BO]
  fragment acc: f32[BW, BO] = 0, b: f32[BO]
  let steps = ceildiv(C, BC)
  pipelined k < 9 * steps, stages {
    let tap = k / steps, c = k % steps * BC
    let dy = tap / 3, dx = tap % 3
    a = X[n, y + dy - 1, x0*BW + dx - 1 +: BW, c +: BC]
    f = F[dy, dx, c +: BC, o*BO +: BO]
    acc += a @ f
  }
  b = bias[o*BO +: BO]
  parallel i < BW, j < BO {
    let z = acc[i, j] + b[j]
    acc[i, j] = z * rcp(1 + exp(-z))
  }
  Y[n, y, x0*BW +: BW, o*BO +: BO] = acc
}
"""


def conv3x3_rows(t, d):
    return F.silu(F.conv2d(channels_last(t.X), t.F.permute(3, 2, 0, 1), t.bias.to(t.X.dtype), padding=1)).permute(0, 2, 3, 1)


DEPTHWISE = """tile 1
kernel causal_conv<T: f16 | bf16>(X: T[B, L, C], w: T[C, 4], bias: T[C], Y: out T[B, L, C])
key bucket(L), C
tune BL = 8 | 16 | 32 | 64, BC = 64 | 128 | 256
grid b < B, l < ceildiv(L, BL), c < ceildiv(C, BC)
{
  shared x: T[BL + 3, BC]
  fragment y: f32[BL, BC]
  x = X[b, l*BL - 3 +: BL + 3, c*BC +: BC]
  parallel i < BL, j < BC {
    let z = bias[c*BC + j] + sum[k < 4](w[c*BC + j, k] * x[i + k, j])
    y[i, j] = z / (1 + exp(-z))
  }
  Y[b, l*BL +: BL, c*BC +: BC] = y
}
"""


def causal_conv(t, d):
    y = F.conv1d(F.pad(t.X.transpose(1, 2), (3, 0)), t.w[:, None], t.bias, groups=d["C"])
    return F.silu(y).transpose(1, 2)


# ---- experts: tokens sorted by expert, offsets; the first layer with swiglu, the second one, as a program
MOE = """tile 1
kernel expert_up<T: f16 | bf16>(X: T[N, K], W: T[E, F2, K], off: i32[E1], H: out T[N, F], most: i32)
where F2 == 2*F && E1 == E + 1
key bucket(N), F, K, E
tune BM = 64 | 128, BF = 64 | 128, BK = 64, stages = 2 | 3 | 4
grid e < E, f < ceildiv(F, BF), m < ceildiv(most, BM)
{
  shared   x: T[BM, BK], g: T[BF, BK], u: T[BF, BK]
  fragment a: f32[BM, BF] = 0, b: f32[BM, BF] = 0
  let lo = off[e], n = off[e + 1] - off[e]
  if m*BM < n {
    pipelined k < ceildiv(K, BK), stages {
      x = X[lo + m*BM +: BM, k*BK +: BK]
      g = W[e, f*BF +: BF, k*BK +: BK]
      u = W[e, F + f*BF +: BF, k*BK +: BK]
      a += x @ g^T
      b += x @ u^T
    }
    parallel i < BM, j < BF { a[i, j] = a[i, j] * rcp(1 + exp(-a[i, j])) * b[i, j] }
    H[lo + m*BM +: BM, f*BF +: BF] within lo +: n = a
  }
}

kernel expert_down<T: f16 | bf16>(H: T[N, F], W: T[E, K, F], off: i32[E1], w: f32[N], Y: out T[N, K], most: i32)
where E1 == E + 1
key bucket(N), F, K, E
tune BM = 64 | 128, BN = 64 | 128, BF = 64, stages = 3 | 4
grid e < E, c < ceildiv(K, BN), m < ceildiv(most, BM)
{
  shared   h: T[BM, BF], v: T[BN, BF]
  fragment y: f32[BM, BN] = 0
  let lo = off[e], hi = off[e + 1]
  if lo + m*BM < hi {
    pipelined f < ceildiv(F, BF), stages {
      h = H[lo + m*BM +: BM, f*BF +: BF]
      v = W[e, c*BN +: BN, f*BF +: BF]
      y += h @ v^T
    }
    parallel i < BM, j < BN { y[i, j] *= w[lo + m*BM + i] }
    Y[lo + m*BM +: BM, c*BN +: BN] within lo +: hi - lo = y
  }
}

program experts<T: f16 | bf16>(X: T[N, K], W1: T[E, F2, K], W2: T[E, K, F], off: i32[E1], w: f32[N], Y: out T[N, K], most: i32)
key bucket(N), F, K, E
{
  temp H: T[N, F]
  expert_up(X, W1, off, H, most)
  expert_down(H, W2, off, w, Y, most)
}
"""


def offsets(shape, t, d):
    t.host = [0, *torch.randint(0, d["N"] + 1, (shape[0] - 2,)).sort().values.tolist(), d["N"]]
    if shape[0] > 40:  # many experts: about the same for all, as a trained router does
        counts = torch.bincount(torch.randint(0, d["E"], (d["N"],)), minlength=d["E"])
        t.host = [0, *counts.cumsum(0).tolist()]
    return torch.tensor(t.host, dtype=torch.int32, device=DEV)


def experts(t, d):
    y = torch.empty_like(t.X)
    for e, (lo, hi) in enumerate(zip(t.host, t.host[1:])):
        g, u = F.linear(t.X[lo:hi], t.W1[e]).chunk(2, -1)
        y[lo:hi] = F.linear(F.silu(g) * u, t.W2[e]) * t.w[lo:hi, None].to(y.dtype)
    return y


def experts_grouped(t, d):
    z = torch._grouped_mm(t.X, t.W1.transpose(1, 2), offs=t.off[1:])
    g, u = z.chunk(2, -1)
    return torch._grouped_mm(F.silu(g) * u, t.W2.transpose(1, 2), offs=t.off[1:]) * t.w[:, None].to(BF)


# ---- average pool, three by three, step two, edges not counted, channels last
POOL = """tile 1
kernel avg_pool<T: f16 | bf16>(X: T[N, H, W, C], Y: out T[N, Ho, Wo, C])
where Ho == (H + 1) / 2, Wo == (W + 1) / 2
key bucket(N), H, W, C
tune BX = 4 | 8 | 16, BC = 32 | 64 | 128
grid n < N, y < Ho, x < ceildiv(Wo, BX), c < ceildiv(C, BC)
{
  fragment r: f32[BX, BC]
  parallel i < BX, j < BC {
    let xo = x*BX + i
    let rows = min(2*y + 2, H) - max(2*y - 1, 0)
    let cols = min(2*xo + 2, W) - max(2*xo - 1, 0)
    r[i, j] = sum[u < 3, v < 3](X[n, 2*y - 1 + u, 2*xo - 1 + v, c*BC + j]) / (rows * cols)
  }
  Y[n, y, x*BX +: BX, c*BC +: BC] = r
}
"""


def avg_pool(t, d):
    return F.avg_pool2d(channels_last(t.X), 3, 2, 1, count_include_pad=False).permute(0, 2, 3, 1)


# ---- batchnorm with known statistics, and relu; NCHW
BATCHNORM = """tile 1
kernel batchnorm_relu<T: f16 | bf16>(X: T[N, C, P], mean: f32[C], var: f32[C], w: f32[C], b: f32[C], Y: out T[N, C, P], eps: f32)
key bucket(N), C, P
tune auto BC, BP
grid n < N, c < ceildiv(C, BC), p < ceildiv(P, BP)
{
  fragment x: T[BC, BP], k: f32[BC], z: f32[BC]
  x = X[n, c*BC +: BC, p*BP +: BP]
  parallel i < BC {
    let ch = c*BC + i
    k[i] = w[ch] * rsqrt(var[ch] + eps)
    z[i] = b[ch] - mean[ch] * k[i]
  }
  parallel i < BC, j < BP { x[i, j] = max(x[i, j] * k[i] + z[i], 0) }
  Y[n, c*BC +: BC, p*BP +: BP] = x
}
"""


def batchnorm_relu(t, d):
    return F.relu(F.batch_norm(t.X, t.mean, t.var, t.w, t.b, False, 0.0, t.eps))


def batchnorm_reference(t, d):
    return F.relu((t.X - t.mean[:, None]) / (t.var[:, None] + t.eps).sqrt() * t.w[:, None] + t.b[:, None])


CASES = [
    Case("ssd", SSD, {"large": dict(B=4, S=4096, H=32, P=64, N=128), "odd": dict(B=3, S=1777, H=11, P=48, N=72),
                      "small": dict(B=1, S=150, H=2, P=20, N=24)}, ssd, types=B16, tolerance=1e-2,
         fills={"a": lambda s, t, d: -torch.rand(s, device=DEV) * 0.2}),
    Case("conv1x1", CONV1, {"large": dict(N=32, H=56, W=56, C=256, O=256), "odd": dict(N=5, H=37, W=41, C=99, O=75),
                            "small": dict(N=2, H=5, W=7, C=20, O=13)}, conv1x1, types=B16),
    Case("conv3x3_rows", CONV3, {"large": dict(N=16, H=64, W=64, C=128, O=128), "odd": dict(N=3, H=47, W=53, C=67, O=91),
                                 "small": dict(N=1, H=6, W=7, C=12, O=9)}, conv3x3_rows, types=B16),
    Case("causal_conv", DEPTHWISE, {"large": dict(B=8, L=4096, C=4096), "odd": dict(B=3, L=2011, C=1537), "small": dict(B=2, L=21, C=35)},
         causal_conv, types=B16),
    Case("experts", MOE, {"large": dict(N=16384, K=2048, E=64, E1=65, F=1024, F2=2048), "odd": dict(N=3001, K=1000, E=11, E1=12, F=717, F2=1434),
                          "small": dict(N=70, K=40, E=3, E1=4, F=33, F2=66)}, experts, kernel="experts", types=B16, compiled=False, tolerance=1e-2,
         fills={"off": offsets, "w": positive(0.1, 1), "most": lambda s, t, d: max(b - a for a, b in zip(t.host, t.host[1:])) if t else d["N"] // d["E"],
                "W1": lambda s, t, d: (torch.randn(s, device=DEV) * d["K"] ** -0.5).to(BF)}, peers={"grouped": experts_grouped}),
    Case("avg_pool", POOL, {"large": dict(N=32, H=112, W=112, C=128, Ho=56, Wo=56), "odd": dict(N=7, H=67, W=71, C=75, Ho=34, Wo=36),
                            "small": dict(N=2, H=9, W=8, C=7, Ho=5, Wo=4)}, avg_pool, types=B16),
    Case("batchnorm_relu", BATCHNORM, {"large": dict(N=64, C=256, P=3136), "odd": dict(N=17, C=131, P=2209), "small": dict(N=2, C=7, P=51)},
         batchnorm_relu, types=B16, reference=batchnorm_reference, fills={
             "eps": const(1e-5), "var": positive(0.5, 2)}),
]
