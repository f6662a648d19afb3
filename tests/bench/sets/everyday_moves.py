"""Rotations, gates, sums of columns, transposition, embeddings and a step of an optimiser."""
import torch
import torch.nn.functional as F
from sets.shared.everyday import B16, DEV, const, wide
from unseen import Case

# ---- rotary embeddings: halves, of queries and keys in one kernel, positions given; pairs, angles worked out
ROPE_HALF = """tile 1
kernel rope_half<T: f16 | bf16>(q: T[N, H, D], k: T[N, G, D], pos: i32[N], cs: f32[L, h], sn: f32[L, h], q2: out T[N, H, D], k2: out T[N, G, D])
where D == 2*h
key bucket(N), H, G, D
tune each = 1 | 2 | 4
grid n < ceildiv(N, each)
{
  fragment a: f32[each, H, D], b: f32[each, G, D]
  a = q[n*each +: each, :, :]
  b = k[n*each +: each, :, :]
  parallel i < each, x < H, d < h {
    let p = pos[n*each + i]
    let c = cs[p, d], s = sn[p, d], lo = a[i, x, d], hi = a[i, x, d + h]
    a[i, x, d] = lo * c - hi * s
    a[i, x, d + h] = hi * c + lo * s
  }
  parallel i < each, x < G, d < h {
    let p = pos[n*each + i]
    let c = cs[p, d], s = sn[p, d], lo = b[i, x, d], hi = b[i, x, d + h]
    b[i, x, d] = lo * c - hi * s
    b[i, x, d + h] = hi * c + lo * s
  }
  q2[n*each +: each, :, :] = a
  k2[n*each +: each, :, :] = b
}
"""


def rope_half(t, d):
    p = t.pos.long()
    c, s = (torch.cat((x[p], x[p]), -1)[:, None].to(t.q.dtype) for x in (t.cs, t.sn))

    def turn(x):
        lo, hi = x.chunk(2, -1)
        return x * c + torch.cat((-hi, lo), -1) * s
    return turn(t.q), turn(t.k)


ROPE_PAIRS = """tile 1
kernel rope_pairs<T: f16 | bf16>(X: T[B, S, H, D], freq: f32[half], Y: out T[B, S, H, D])
where D == half * 2
key bucket(S), D
tune R = 4 | 8 | 16 | 32
grid b < B, s < ceildiv(S, R), h < H
{
  fragment x: T[R, D], y: f32[R, D]
  x = X[b, s*R +: R, h, :]
  parallel i < R, d < half {
    let angle = (s*R + i) * freq[d]
    let c = cos(angle), n = sin(angle)
    y[i, 2*d] = x[i, 2*d] * c - x[i, 2*d + 1] * n
    y[i, 2*d + 1] = x[i, 2*d] * n + x[i, 2*d + 1] * c
  }
  Y[b, s*R +: R, h, :] = y
}
"""


def rope_pairs(t, d):
    angle = (torch.arange(d["S"], device=t.X.device, dtype=torch.float32)[:, None] * t.freq.float()).to(torch.promote_types(t.X.dtype, torch.float32))
    turn = torch.polar(torch.ones_like(angle), angle)[:, None]
    x = torch.view_as_complex(wide(t.X).unflatten(-1, (-1, 2)))
    return torch.view_as_real(x * turn).flatten(-2).to(t.X.dtype)


# ---- silu(gate) * up of one matrix with both
GLU = """tile 1
kernel swiglu_rows<T: f16 | bf16>(Z: T[N, F2], Y: out T[N, F])
where F2 == 2*F
key bucket(N), F
tune auto R, BF
grid n < ceildiv(N, R), f < ceildiv(F, BF)
{
  fragment g: T[R, BF], u: T[R, BF]
  g = Z[n*R +: R, f*BF +: BF]
  u = Z[n*R +: R, F + f*BF +: BF]
  parallel i < R, j < BF { u[i, j] = u[i, j] * (g[i, j] / (1 + exp(-g[i, j]))) }
  Y[n*R +: R, f*BF +: BF] = u
}
"""


def swiglu_rows(t, d):
    g, u = t.Z.chunk(2, -1)
    return F.silu(g) * u


# ---- sums of columns, the gradient of a bias: plainly, and in parts
COLUMNS = """tile 1
kernel bias_grad<T: f16 | bf16>(G: T[M, N], db: out f32[N])
key bucket(M), N
tune BM = 16 | 32 | 64, BN = 32 | 64 | 128
grid n < ceildiv(N, BN)
{
  fragment g: f32[BM, BN], s: f32[BN] = 0
  for m < ceildiv(M, BM) {
    g = G[m*BM +: BM, n*BN +: BN]
    parallel j < BN { s[j] += sum[i < BM](g[i, j]) }
  }
  db[n*BN +: BN] = s
}
"""

MOMENTS = """tile 1
kernel moments_part<T: f16 | bf16>(X: T[M, C], part: out f32[P, 2, C])
key bucket(M), C, P
tune BM = 8 | 16 | 32, BC = 64 | 128 | 256
grid p < P, c < ceildiv(C, BC)
{
  fragment x: f32[BM, BC], s: f32[BC] = 0, q: f32[BC] = 0
  let share = ceildiv(ceildiv(M, P), 32) * 32
  for m < share / BM {
    x = X[p*share + m*BM +: BM, c*BC +: BC]
    parallel j < BC {
      s[j] += sum[i < BM](x[i, j])
      q[j] += sum[i < BM](x[i, j] * x[i, j])
    }
  }
  part[p, 0, c*BC +: BC] = s
  part[p, 1, c*BC +: BC] = q
}

kernel moments_join(part: f32[P, 2, C], mean: out f32[C], var: out f32[C], M: i64)
key C, P
tune BC = 32 | 64 | 128
grid c < ceildiv(C, BC)
{
  fragment a: f32[P, BC], b: f32[P, BC], u: f32[BC], v: f32[BC]
  a = part[:, 0, c*BC +: BC]
  b = part[:, 1, c*BC +: BC]
  parallel j < BC {
    let mu = sum[p < P](a[p, j]) / M
    u[j] = mu
    v[j] = sum[p < P](b[p, j]) / M - mu * mu
  }
  mean[c*BC +: BC] = u
  var[c*BC +: BC] = v
}

program channel_moments<T: f16 | bf16>(X: T[M, C], mean: out f32[C], var: out f32[C])
key bucket(M), C
tune parts = 32 | 64 | 128 | 16
{
  temp part: f32[parts, 2, C]
  moments_part(X, part)
  moments_join(part, mean, var, M)
}
"""


def channel_moments(t, d):
    v, m = torch.var_mean(wide(t.X), 0, correction=0)
    return m, v


# ---- [B, S, H, D] to [B, H, D, S], as keys lie for a product
TRANSPOSE = """tile 1
kernel heads_last<T: f16 | bf16>(X: T[B, S, H, D], Y: out T[B, H, D, S])
key bucket(S), D
tune BS = 32 | 64 | 128, BD = 32 | 64
grid b < B, h < H, s < ceildiv(S, BS), d < ceildiv(D, BD)
{
  shared x: T[BS, BD]
  fragment y: T[BD, BS]
  x = X[b, s*BS +: BS, h, d*BD +: BD]
  parallel i < BD, j < BS { y[i, j] = x[j, i] }
  Y[b, h, d*BD +: BD, s*BS +: BS] = y
}
"""

# ---- token and position embeddings, and the layernorm behind them
EMBED = """tile 1
kernel embed<T: f16 | bf16>(ids: i64[B, S], word: T[V, D], place: T[L, D], g: T[D], b: T[D], Y: out T[B, S, D], eps: f32)
where S <= L
key bucket(B), bucket(S), D
tune R = 1 | 2 | 4 | 8
grid n < B, s < ceildiv(S, R)
{
  fragment w: T[R, D], p: T[R, D], x: f32[R, D]
  w = word[ids[n, s*R +: R], :]
  p = place[s*R +: R, :]
  parallel i < R, d < D { x[i, d] = w[i, d] + p[i, d] }
  parallel i < R, d < D { x[i, d] -= sum[e < D](x[i, e]) / D }
  parallel i < R, d < D {
    let var = sum[e < D](x[i, e] * x[i, e]) / D
    x[i, d] = x[i, d] / sqrt(var + eps) * g[d] + b[d]
  }
  Y[n, s*R +: R, :] = x
}
"""


def embed(t, d):
    return F.layer_norm(F.embedding(t.ids, t.word) + t.place[:d["S"]], (d["D"],), t.g, t.b, t.eps)


# ---- a step of AdamW: gradients in bf16, the state in f32, parameters also in bf16
ADAM = """tile 1
kernel adamw<T: f16 | bf16>(g: T[N], p: inout f32[N], m: inout f32[N], v: inout f32[N], p16: out T[N],
                            lr: f32, b1: f32, b2: f32, eps: f32, decay: f32, c1: f32, c2: f32)
key bucket(N)
tune BN = 512 | 1024 | 2048 | 4096, threads = 128 | 256
grid i < ceildiv(N, BN)
{
  fragment G: T[BN], P: f32[BN], M: f32[BN], W: f32[BN]
  G = g[i*BN +: BN]
  P = p[i*BN +: BN]
  M = m[i*BN +: BN]
  W = v[i*BN +: BN]
  parallel j < BN {
    M[j] = b1 * M[j] + (1 - b1) * G[j]
    W[j] = b2 * W[j] + (1 - b2) * G[j] * G[j]
    P[j] = P[j] * (1 - lr * decay) - lr * (M[j] / c1) / (sqrt(W[j] / c2) + eps)
  }
  p[i*BN +: BN] = P
  m[i*BN +: BN] = M
  v[i*BN +: BN] = W
  p16[i*BN +: BN] = P
}
"""


def adamw(t, d):
    g = t.g.to(t.p.dtype)
    m = t.b1 * t.m + (1 - t.b1) * g
    v = t.b2 * t.v + (1 - t.b2) * g * g
    p = t.p * (1 - t.lr * t.decay) - t.lr * (m / t.c1) / ((v / t.c2).sqrt() + t.eps)
    return p, m, v, p.to(t.g.dtype)


def adamw_fused(t, d):
    if not hasattr(t, "g32"):
        t.g32, t.step = t.g.float(), torch.tensor(10.0, device=t.g.device)
    torch._fused_adamw_([t.p], [t.g32], [t.m], [t.v], [], [t.step], lr=t.lr, beta1=t.b1, beta2=t.b2, weight_decay=t.decay,
                        eps=t.eps, amsgrad=False, maximize=False)


def below(dimension):
    return lambda s, t, d: torch.randint(0, d[dimension], s, device=DEV)


def inverse_frequencies(s, t, d):
    return 10000.0 ** -(torch.arange(s[0], device=DEV) / s[0])


def cosines(function):
    return lambda s, t, d: function(torch.arange(s[0], device=DEV)[:, None] * inverse_frequencies(s[1:], t, d))


CASES = [
    Case("rope_half", ROPE_HALF, {"large": dict(N=8192, H=32, G=8, D=128, h=64, L=8192), "odd": dict(N=3001, H=14, G=2, D=96, h=48, L=5000),
                                  "small": dict(N=9, H=3, G=1, D=20, h=10, L=50)}, rope_half, types=B16,
         fills={"pos": lambda s, t, d: below("L")(s, t, d).to(torch.int32), "cs": cosines(torch.cos), "sn": cosines(torch.sin)}),
    Case("rope_pairs", ROPE_PAIRS, {"large": dict(B=4, S=4096, H=16, D=128, half=64), "odd": dict(B=3, S=1777, H=11, D=72, half=36),
                                    "small": dict(B=2, S=11, H=3, D=12, half=6)}, rope_pairs, types=B16, fills={"freq": inverse_frequencies}),
    Case("swiglu_rows", GLU, {"large": dict(N=8192, F=11008, F2=22016), "odd": dict(N=3003, F=5461, F2=10922), "small": dict(N=7, F=51, F2=102)},
         swiglu_rows, types=B16),
    Case("bias_grad", COLUMNS, {"large": dict(M=16384, N=8192), "odd": dict(M=10007, N=1531), "small": dict(M=130, N=43)},
         lambda t, d: t.G.sum(0, dtype=torch.promote_types(t.G.dtype, torch.float32)), types=B16),
    Case("channel_moments", MOMENTS, {"large": dict(M=200704, C=256), "odd": dict(M=50003, C=171), "small": dict(M=301, C=37)},
         channel_moments, kernel="channel_moments", types=B16),
    Case("heads_last", TRANSPOSE, {"large": dict(B=4, S=4096, H=32, D=128), "odd": dict(B=3, S=2011, H=9, D=72), "small": dict(B=2, S=37, H=2, D=20)},
         lambda t, d: t.X.permute(0, 2, 3, 1).contiguous(), types=B16),
    Case("embed", EMBED, {"large": dict(B=32, S=512, V=50304, L=2048, D=1024), "odd": dict(B=21, S=333, V=30522, L=512, D=770),
                          "small": dict(B=2, S=9, V=40, L=12, D=50)}, embed, types=B16, fills={"ids": below("V"), "eps": const(1e-5)}),
    Case("adamw", ADAM, {"large": dict(N=50_000_000), "odd": dict(N=7_000_003), "small": dict(N=1003)}, adamw, types=B16,
         fills={"lr": const(1e-3), "b1": const(0.9), "b2": const(0.95), "eps": const(1e-8), "decay": const(0.1), "c1": const(1 - 0.9 ** 10),
                "c2": const(1 - 0.95 ** 10), "v": lambda s, t, d: torch.rand(s, device=DEV)}, peers={"fused": adamw_fused}),
]
