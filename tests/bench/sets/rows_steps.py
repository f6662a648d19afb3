"""More rows: quantisers, bags, scans over time, distillation, batch statistics, rotary embeddings."""
import sys

import torch
import torch.nn.functional as F
from unseen import Case

DEV = "cpu" if "--check" in sys.argv or not torch.cuda.is_available() else "cuda"

def wide(x):
    """As torch's own kernels compute: in f32, or in float64 where that is what there is."""
    return x if x.dtype == torch.float64 else x.float()


# ---- silu(a) * b to 8-bit floats, with a scale for each 128
QUANT = """tile 1
kernel silu_mul_quant<T: f16 | bf16>(X: T[N, D2], Y: out f8e4m3[N, D], scale: out f32[N, Dg])
where D2 == 2 * D && D % 128 == 0 && Dg == D / 128
key  bucket(N), D
tune rows = 4 | 1 | 2 | 8 | 16, groups = 2 | 1 | 4 | 8
where rows * groups <= 32
grid r < ceildiv(N, rows), g < ceildiv(Dg, groups)
{
  fragment a: f32[rows, groups * 128], b: f32[rows, groups * 128], s: f32[rows, groups]
  let first = g * groups * 128
  a = X[r*rows +: rows, first +: groups * 128]
  b = X[r*rows +: rows, D + first +: groups * 128]
  parallel i < rows, d < groups * 128 { a[i, d] = a[i, d] / (1 + exp(-a[i, d])) * b[i, d] }
  parallel i < rows, q < groups { s[i, q] = max(max[k < 128](abs(a[i, q*128 + k])), 1e-10) / 448 }
  parallel i < rows, d < groups * 128 { a[i, d] = a[i, d] / s[i, d / 128] }
  Y[r*rows +: rows, first +: groups * 128] = a
  scale[r*rows +: rows, g*groups +: groups] = s
}
"""


def silu_mul_quant(t, d):
    a, b = wide(t.X).chunk(2, -1)
    y = (F.silu(a) * b).unflatten(1, (-1, 128))
    s = y.abs().amax(-1, keepdim=True).clamp(min=1e-10) / 448
    return (y / s).flatten(1).to(torch.float8_e4m3fn), s[..., 0]


# ---- an embedding bag with weights
BAG = """tile 1
kernel embedding_bag<T: f16 | bf16 | f32>(table: T[V, D], index: i32[L], weight: T[L], start: i32[B], Y: out T[B, D])
key  bucket(V), D, bucket(L), bucket(B)
tune BL = 16 | 8 | 32, threads = 128 | 64 | 256
grid b < B
{
  fragment x: T[BL, D], w: f32[BL], y: f32[D] = 0
  let first = start[b], count = (b + 1 < B ? i64(start[b + 1]) : L) - first
  for l < ceildiv(count, BL) {
    x = table[index[first + l*BL +: BL] within first +: count pad -1, :]
    w = weight[first + l*BL +: BL] within first +: count
    parallel d < D { y[d] += sum[i < BL](w[i] * x[i, d]) }
  }
  Y[b, :] = y
}
"""


def starts(shape, t, d):
    cuts = torch.randint(0, d["L"] + 1, (shape[0] - 1,), device=DEV).sort().values
    return F.pad(cuts, (1, 0)).to(torch.int32)


def embedding_bag(t, d):
    return F.embedding_bag(t.index, t.table, t.start, mode="sum", per_sample_weights=t.weight)


# ---- generalised advantage estimation: backwards through time, one lane an environment
GAE = """tile 1
kernel gae(R: f32[S, N], V: f32[S1, N], done: u8[S, N], A: out f32[S, N], target: out f32[S, N], gamma: f32, decay: f32)
where S1 == S + 1
key  bucket(S), bucket(N)
tune BN = 128 | 64 | 32 | 256, stages = 4 | 2 | 8
grid n < ceildiv(N, BN)
{
  fragment a: f32[BN] = 0, y: f32[BN]
  pipelined k < S, stages {
    let s = S - 1 - k
    parallel i < BN {
      let at = n*BN + i, v = V[s, at], on = done[s, at] == 0 ? gamma : 0.0
      a[i] = R[s, at] + on * V[s + 1, at] - v + on * decay * a[i]
      y[i] = a[i] + v
    }
    A[s, n*BN +: BN] = a
    target[s, n*BN +: BN] = y
  }
}
"""


def gae(t, d):
    on = t.gamma * (t.done == 0).to(t.R.dtype)
    delta, fade = t.R + on * t.V[1:] - t.V[:-1], on * t.decay
    rows, a = [], torch.zeros_like(t.R[0])
    for s in reversed(range(d["S"])):
        a = torch.addcmul(delta[s], fade[s], a)
        rows.append(a)
    a = torch.stack(rows[::-1])
    return a, a + t.V[:-1]


# ---- distillation: the divergence of a student's distribution from a teacher's, softened
DISTILL = """tile 1
kernel distill_kl<T: f16 | bf16 | f32>(S: T[N, V], R: T[N, V], loss: out f32[N], heat: f32)
key  bucket(N), V
tune auto BV, threads
grid n < N
{
  fragment x: f32[BV], y: f32[BV]
  fragment m: f32[1] = -1e30, s: f32[1] = 0, mr: f32[1] = -1e30, sr: f32[1] = 0, gap: f32[1] = 0
  for v < ceildiv(V, BV) {
    x = S[n, v*BV +: BV] pad -1e30
    y = R[n, v*BV +: BV] pad -1e30
    parallel i < 1 {
      let most = max(m[i], max[j < BV](x[j])), more = max(mr[i], max[j < BV](y[j]))
      let old = exp((mr[i] - more) / heat)
      s[i] = s[i] * exp((m[i] - most) / heat) + sum[j < BV](exp((x[j] - most) / heat))
      sr[i] = sr[i] * old + sum[j < BV](exp((y[j] - more) / heat))
      gap[i] = gap[i] * old + sum[j < BV](exp((y[j] - more) / heat) * (y[j] - x[j]))
      m[i] = most
      mr[i] = more
    }
  }
  parallel i < 1 {
    let kl = gap[i] / (sr[i] * heat) - mr[i] / heat - log(sr[i]) + m[i] / heat + log(s[i])
    loss[n] = heat * heat * kl
  }
}
"""


def distill_kl(t, d):
    s, r = (torch.log_softmax(wide(x) / t.heat, -1) for x in (t.S, t.R))
    return t.heat ** 2 * F.kl_div(s, r, reduction="none", log_target=True).sum(-1)


# ---- batch norm in training, channels last, and relu
BN = """tile 1
kernel sums<T: f16 | bf16 | f32>(X: T[N, C], s: out f32[P, C], q: out f32[P, C])
key  bucket(N), C, bucket(P)
tune BM = 32 | 16 | 64, BC = 64 | 32 | 128
grid p < P, c < ceildiv(C, BC)
{
  fragment x: f32[BM, BC], a: f32[BC] = 0, b: f32[BC] = 0
  let share = ceildiv(N, P)
  for m < ceildiv(share, BM) {
    x = X[p*share + m*BM +: BM, c*BC +: BC] within p*share +: share
    parallel j < BC {
      a[j] += sum[i < BM](x[i, j])
      b[j] += sum[i < BM](x[i, j] * x[i, j])
    }
  }
  s[p, c*BC +: BC] = a
  q[p, c*BC +: BC] = b
}

kernel moments(s: f32[P, C], q: f32[P, C], mean: out f32[C], rstd: out f32[C], rows: i64)
key  bucket(P), C
tune BC = 8 | 4 | 16 | 32
grid c < ceildiv(C, BC)
{
  fragment x: f32[64, BC], y: f32[64, BC], a: f32[BC] = 0, b: f32[BC] = 0
  for p < ceildiv(P, 64) {
    x = s[p*64 +: 64, c*BC +: BC]
    y = q[p*64 +: 64, c*BC +: BC]
    parallel j < BC {
      a[j] += sum[i < 64](x[i, j])
      b[j] += sum[i < 64](y[i, j])
    }
  }
  parallel j < BC {
    let mu = a[j] / rows
    b[j] = rsqrt(b[j] / rows - mu * mu + 1e-5)
    a[j] = mu
  }
  mean[c*BC +: BC] = a
  rstd[c*BC +: BC] = b
}

kernel normalise<T: f16 | bf16 | f32>(X: T[N, C], W: f32[C], bias: f32[C], mean: f32[C], rstd: f32[C], Y: out T[N, C])
key  bucket(N), C
tune BM = 16 | 8 | 32, BC = 64 | 128 | 256
grid m < ceildiv(N, BM), c < ceildiv(C, BC)
{
  fragment x: f32[BM, BC], a: f32[BC], b: f32[BC]
  x = X[m*BM +: BM, c*BC +: BC]
  parallel j < BC {
    let at = c*BC + j
    a[j] = W[at] * rstd[at]
    b[j] = bias[at] - mean[at] * rstd[at] * W[at]
  }
  parallel i < BM, j < BC { x[i, j] = max(x[i, j] * a[j] + b[j], 0) }
  Y[m*BM +: BM, c*BC +: BC] = x
}

program bn_train<T: f16 | bf16 | f32>(X: T[N, C], W: f32[C], bias: f32[C], Y: out T[N, C], mean: out f32[C], rstd: out f32[C])
key  bucket(N), C
tune parts = 256 | 64 | 128 | 512
{
  temp s: f32[parts, C], q: f32[parts, C]
  sums(X, s, q)
  moments(s, q, mean, rstd, N)
  normalise(X, W, bias, mean, rstd, Y)
}
"""


def bn_train(t, d):
    y, mean, rstd = torch.native_batch_norm(t.X, t.W, t.bias, None, None, True, 0.1, 1e-5)
    return F.relu(y), mean, rstd


# ---- queries and keys: a norm of each head, then a turn by position
QKNORM = """tile 1
kernel qk_norm_rope<T: f16 | bf16 | f32>(X: T[N, C, D], WQ: T[D], WK: T[D], cosine: f32[L, half], sine: f32[L, half],
                                         position: i32[N], Q: out T[N, H, D], K: out T[N, G, D], eps: f32)
where D == 2 * half && C == H + 2 * G
key  bucket(N), H, G, D
tune threads = 128 | 256 | 64
grid n < N
{
  fragment x: f32[H + G, D]
  let at = position[n]
  x = X[n, 0 +: H + G, :]
  parallel h < H + G, d < D {
    x[h, d] = x[h, d] * rsqrt(sum[e < D](x[h, e] * x[h, e]) / D + eps) * (h < H ? WQ[d] : WK[d])
  }
  parallel h < H + G, d < half {
    let low = x[h, d], high = x[h, d + half], c = cosine[at, d], s = sine[at, d]
    x[h, d]        = low * c - high * s
    x[h, d + half] = high * c + low * s
  }
  Q[n, :, :] = x[0 +: H, :]
  K[n, :, :] = x[H +: G, :]
}
"""


def qk_norm_rope(t, d):
    c, s = t.cosine[t.position.long(), None], t.sine[t.position.long(), None]

    def side(x, w):
        x = wide(x)
        x = x * (x.square().mean(-1, keepdim=True) + t.eps).rsqrt() * w
        low, high = x.chunk(2, -1)
        return torch.cat((low * c - high * s, high * c + low * s), -1).to(t.X.dtype)
    return side(t.X[:, :d["H"]], t.WQ), side(t.X[:, d["H"]:d["H"] + d["G"]], t.WK)


def turns(function):
    def fill(shape, t, d):
        at = torch.arange(shape[0], device=DEV, dtype=torch.float64)[:, None]
        return function(at * 10000.0 ** (-torch.arange(shape[1], device=DEV) / shape[1])).float()
    return fill


B16 = {"T": "bf16"}
CASES = [
    Case("silu_mul_quant", QUANT,
         {"large": dict(N=8192, D=7168, D2=14336, Dg=56), "odd": dict(N=3001, D=2432, D2=4864, Dg=19),
          "small": dict(N=9, D=384, D2=768, Dg=3)}, silu_mul_quant, types=B16),
    Case("embedding_bag", BAG,
         {"large": dict(V=1000000, D=128, L=819200, B=16384), "odd": dict(V=200003, D=92, L=200017, B=5003),
          "small": dict(V=50, D=36, L=60, B=7)}, embedding_bag, types={"T": "f16"},
         fills={"index": lambda s, t, d: torch.randint(0, d["V"], s, device=DEV).to(torch.int32), "start": starts}),
    Case("gae", GAE, {"large": dict(S=128, S1=129, N=65536), "odd": dict(S=101, S1=102, N=20011),
                      "small": dict(S=9, S1=10, N=70)}, gae, compiled=False,
         fills={"done": lambda s, t, d: (torch.rand(s, device=DEV) < 0.02).to(torch.uint8),
                "gamma": lambda s, t, d: 0.99, "decay": lambda s, t, d: 0.95}),
    Case("distill_kl", DISTILL, {"large": dict(N=2048, V=128256), "odd": dict(N=1021, V=50257), "small": dict(N=7, V=301)},
         distill_kl, types=B16, fills={"heat": lambda s, t, d: 2.0}),
    Case("bn_train", BN, {"large": dict(N=64 * 56 * 56, C=256), "odd": dict(N=41 * 37 * 37, C=179), "small": dict(N=300, C=20)},
         bn_train, types=B16),
    Case("qk_norm_rope", QKNORM,
         {"large": dict(N=16384, C=48, D=128, H=32, G=8, L=32768, half=64),
          "odd": dict(N=5003, C=33, D=80, H=19, G=7, L=9001, half=40),
          "small": dict(N=7, C=8, D=32, H=4, G=2, L=50, half=16)}, qk_norm_rope, types=B16,
         fills={"cosine": turns(torch.cos), "sine": turns(torch.sin), "eps": lambda s, t, d: 1e-6,
                "position": lambda s, t, d: torch.randint(0, d["L"], s, device=DEV).to(torch.int32)}),
]
