"""Parts of transformers that are not in the examples."""
import math

import torch
import torch.nn.functional as F
from unseen import Case

HF = {"T": "f16"}
BF = {"T": "bf16"}


def up(x):
    return x if x.dtype in (torch.float32, torch.float64) else x.float()


def number(value):
    return lambda shape, t, d: value


def device():
    return "cuda" if torch.cuda.is_available() else "cpu"


def sizes(large, odd, small):
    return {"large": large, "odd": odd, "small": small}


def like(name, factor=1.0):
    return lambda shape, t, d: (torch.randn(shape, device=getattr(t, name).device) * factor).to(getattr(t, name).dtype)


def weight(name):
    return lambda shape, t, d: (torch.randn(shape, device=getattr(t, name).device) / math.sqrt(shape[-1])).to(getattr(t, name).dtype)


def randn(factor=1.0, shift=0.0):
    return lambda shape, t, d: torch.randn(shape, device=device()) * factor + shift


def heads(x):
    return x.transpose(1, 2)


def root(name="D"):
    return lambda shape, t, d: d[name] ** -0.5


FLEX = {}


def flex(*args, **kwargs):
    from torch.nn.attention.flex_attention import flex_attention
    if "f" not in FLEX:
        FLEX["f"] = torch.compile(flex_attention, dynamic=False)
    return FLEX["f"](*args, **kwargs)


# ---- attention with a bias and padding ------------------------------------------------------------------------------
ONLINE = """    parallel i < BM {
      let most = max(m[i], max[j < BN](S[i, j]))
      alpha[i] = exp2((m[i] - most) * log2e)
      m[i] = most
    }
    parallel i < BM, j < BN { S[i, j] = exp2((S[i, j] - m[i]) * log2e) }
    parallel i < BM { l[i] = l[i] * alpha[i] + sum[j < BN](S[i, j]) }
    P = S
"""

BIASED = """tile 1
# A bias for each pair of places of a head, and keys that a mask leaves out.
kernel biased<T: f16 | bf16>(Q: T[B, N, H, D], K: T[B, M, H, D], V: T[B, M, H, D], bias: T[H, N, M], mask: bool[B, M], O: out T[B, N, H, D], scale: f32)
key bucket(N), bucket(M), H, D
tune BM = 128 | 64, BN = 64 | 128 | 32, stages = 2 | 3
grid h < H, s < ceildiv(N, BM), b < B
{
  shared   q: T[BM, D], k: T[BN, D], v: T[BN, D], t: T[BM, BN]
  fragment S: f32[BM, BN], P: T[BM, BN], acc: f32[BM, D] = 0, m: f32[BM] = -1e30, l: f32[BM] = 0, alpha: f32[BM]
  q = Q[b, s*BM +: BM, h, :]
  pipelined n < ceildiv(M, BN), stages {
    k = K[b, n*BN +: BN, h, :]
    v = V[b, n*BN +: BN, h, :]
    t = bias[h, s*BM +: BM, n*BN +: BN]
    S = q @ k^T
    parallel i < BM, j < BN { S[i, j] = mask[b, n*BN + j] ? S[i, j] * scale + t[i, j] : -inf }
""" + ONLINE + """    parallel i < BM, d < D { acc[i, d] *= alpha[i] }
    acc += P @ v
  }
  parallel i < BM, d < D { acc[i, d] *= l[i] > 0 ? rcp(l[i]) : 0 }
  O[b, s*BM +: BM, h, :] = acc
}
"""


def biased(t, d):
    mask = t.bias[None].masked_fill(~t.mask[:, None, None], float("-inf"))
    return heads(F.scaled_dot_product_attention(heads(t.Q), heads(t.K), heads(t.V), attn_mask=mask))


def biased_flex(t, d):
    def score(s, b, h, i, j):
        return torch.where(t.mask[b, j], s + t.bias[h, i, j], float("-inf"))
    return heads(flex(heads(t.Q), heads(t.K), heads(t.V), score_mod=score))


def padding(shape, t, d):
    lengths = torch.randint(shape[1] // 2, shape[1] + 1, (shape[0], 1), device=device())
    return torch.arange(shape[1], device=device())[None] < lengths


SWIN = """tile 1
# Windows of N tokens, a bias by place, a mask of the kind of window (which tokens a cyclic shift has brought together).
kernel swin<T: f16 | bf16>(X: T[W, N, 3, H, D], bias: T[H, N, N], mask: T[G, N, N], O: out T[W, N, H, D], scale: f32)
where W % G == 0
key bucket(W), N, H, D
tune threads = 64 | 128 | 256
grid w < W, h < H
{
  shared   q: T[N, D], k: T[N, D], v: T[N, D]
  fragment s: f32[N, N], p: T[N, N], acc: f32[N, D]
  q = X[w, :, 0, h, :]
  k = X[w, :, 1, h, :]
  v = X[w, :, 2, h, :]
  s = q @ k^T
  parallel i < N, j < N { s[i, j] = s[i, j] * scale + bias[h, i, j] + mask[w % G, i, j] }
  parallel i < N, j < N { s[i, j] = exp(s[i, j] - max[e < N](s[i, e])) }
  parallel i < N, j < N { s[i, j] = s[i, j] / sum[e < N](s[i, e]) }
  p = s
  acc = p @ v
  O[w, :, h, :] = acc
}
"""


def swin(t, d):
    q, k, v = t.X.permute(2, 0, 3, 1, 4)
    mask = (t.bias[None, None] + t.mask[None, :, None]).expand(d["W"] // d["G"], -1, -1, -1, -1).reshape(d["W"], d["H"], d["N"], d["N"])
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2)


def swin_plain(t, d):
    q, k, v = t.X.permute(2, 0, 3, 1, 4)
    s = (q * d["D"] ** -0.5) @ k.transpose(-1, -2)
    s = s.view(-1, d["G"], d["H"], d["N"], d["N"]) + t.bias + t.mask[:, None]
    return (torch.softmax(up(s), -1).to(q.dtype).view(d["W"], d["H"], d["N"], d["N"]) @ v).transpose(1, 2)


def window_mask(shape, t, d):
    return torch.where(torch.rand(shape, device=device()) < 0.2, -100.0, 0.0).to(t.X.dtype)


MONARCH = """tile 1
# Two products with matrices of blocks on their diagonals and a transposition between them; the last permutation is left to
# the layer that follows.
kernel monarch<T: f16 | bf16>(X: T[N, K, Q], U: T[K, P, Q], V: T[P, S, K], Y: out T[N, P, S])
key bucket(N), K, Q, P, S
tune BN = 32 | 64 | 16 | 128, stages = 2 | 3, threads = 128 | 256
grid n < ceildiv(N, BN)
{
  shared   x: T[BN, Q], u: T[P, Q], v: T[S, K], h: T[P, BN, K]
  fragment a: f32[BN, P], o: f32[BN, S]
  pipelined k < K, stages {
    x = X[n*BN +: BN, k, :]
    u = U[k, :, :]
    a = x @ u^T
    parallel i < BN, p < P { h[p, i, k] = a[i, p] }
  }
  pipelined p < P, stages {
    v = V[p, :, :]
    o = h[p, :, :] @ v^T
    Y[n*BN +: BN, p, :] = o
  }
}
"""


def monarch(t, d):
    a = torch.bmm(t.X.transpose(0, 1), t.U.transpose(1, 2))               # k n p
    return torch.bmm(a.permute(2, 1, 0), t.V.transpose(1, 2)).transpose(0, 1)


# ---- diffusion transformers -----------------------------------------------------------------------------------------
ADALN = """tile 1
# The modulation of a block is one product of the condition; its first half is used here: the residual takes the gated
# result of the attention, and what goes on is normalised, scaled and shifted. The gates are kept for the rest of the block.
kernel modulation<T: f16 | bf16>(C: T[B, K], W: T[E, K], bias: T[E], G: out T[B, E])
key bucket(B), E, K
tune BM = 16 | 32 | 64, BN = 32 | 64 | 128, BK = 64 | 128, stages = 3 | 4
grid m < ceildiv(B, BM), n < ceildiv(E, BN)
{
  shared   c: T[BM, BK], w: T[BN, BK]
  fragment a: T[BM, BK], acc: f32[BM, BN] = 0
  pipelined k < ceildiv(K, BK), stages {
    c = C[m*BM +: BM, k*BK +: BK]
    w = W[n*BN +: BN, k*BK +: BK]
    parallel i < BM, j < BK { a[i, j] = c[i, j] * rcp(1 + exp(-c[i, j])) }
    acc += a @ w^T
  }
  parallel i < BM, j < BN { acc[i, j] += bias[n*BN + j] }
  G[m*BM +: BM, n*BN +: BN] = acc
}

kernel modulate<T: f16 | bf16>(X: T[B, N, D], A: T[B, N, D], G: T[B, E], R: out T[B, N, D], Y: out T[B, N, D], eps: f32)
where E == 6 * D
key bucket(B), bucket(N), D
tune rows = 1 | 2 | 4, threads = 128 | 256 | 512
grid b < B, n < ceildiv(N, rows)
{
  fragment x: f32[rows, D], a: f32[rows, D]
  x = X[b, n*rows +: rows, :]
  a = A[b, n*rows +: rows, :]
  parallel i < rows, d < D { x[i, d] += a[i, d] * G[b, 2*D + d] }
  R[b, n*rows +: rows, :] = x
  parallel i < rows, d < D { x[i, d] -= sum[e < D](x[i, e]) / D }
  parallel i < rows, d < D {
    x[i, d] = x[i, d] * rsqrt(sum[e < D](x[i, e] * x[i, e]) / D + eps) * (1 + G[b, 4*D + d]) + G[b, 3*D + d]
  }
  Y[b, n*rows +: rows, :] = x
}

program adaln<T: f16 | bf16>(C: T[B, K], W: T[E, K], bias: T[E], X: T[B, N, D], A: T[B, N, D], G: out T[B, E], R: out T[B, N, D], Y: out T[B, N, D], eps: f32)
where E == 6 * D
key bucket(B), bucket(N), D, K
{
  modulation(C, W, bias, G)
  modulate(X, A, G, R, Y, eps)
}
"""


def adaln(t, d):
    g = F.silu(t.C) @ t.W.T + t.bias
    _, _, gate, shift, scale, _ = g[:, None].chunk(6, -1)
    r = t.X + t.A * gate
    return g, r, F.layer_norm(r, (d["D"],), eps=1e-6) * (1 + scale) + shift


# ---- mixture of depths ----------------------------------------------------------------------------------------------
DEPTHS = """tile 1
# The tokens that a router has chosen go through the layer, the others past it.
kernel past<T: f16 | bf16>(X: T[B, N, D], Y: out T[B, N, D])
key bucket(B), bucket(N), D
tune rows = 2 | 4 | 8, BD = 512 | 1024, threads = 128 | 256
grid b < B, n < ceildiv(N, rows), d < ceildiv(D, BD)
{
  fragment x: T[rows, BD]
  x = X[b, n*rows +: rows, d*BD +: BD]
  Y[b, n*rows +: rows, d*BD +: BD] = x
}

kernel hidden<T: f16 | bf16>(X: T[B, N, D], at: i32[B, K], W: T[E, D], Z: out T[B, K, E])
key bucket(B), bucket(K), D, E
tune BM = 64 | 128, BN = 128 | 256, BK = 64, stages = 3 | 4
grid b < B, m < ceildiv(K, BM), n < ceildiv(E, BN)
{
  shared   x: T[BM, BK], w: T[BN, BK]
  fragment acc: f32[BM, BN] = 0
  pipelined k < ceildiv(D, BK), stages {
    x = X[b, at[b, m*BM +: BM], k*BK +: BK]
    w = W[n*BN +: BN, k*BK +: BK]
    acc += x @ w^T
  }
  parallel i < BM, j < BN { acc[i, j] = 0.5 * acc[i, j] * (1 + erf(acc[i, j] * 0.70710678)) }
  Z[b, m*BM +: BM, n*BN +: BN] = acc
}

kernel through<T: f16 | bf16>(Z: T[B, K, E], W: T[D, E], X: T[B, N, D], at: i32[B, K], route: f32[B, K], Y: inout T[B, N, D])
key bucket(B), bucket(K), D, E
tune BM = 64 | 128, BN = 128 | 256, BK = 64, stages = 3 | 4
grid b < B, m < ceildiv(K, BM), n < ceildiv(D, BN)
{
  shared   z: T[BM, BK], w: T[BN, BK]
  fragment acc: f32[BM, BN] = 0, x: T[BM, BN]
  pipelined k < ceildiv(E, BK), stages {
    z = Z[b, m*BM +: BM, k*BK +: BK]
    w = W[n*BN +: BN, k*BK +: BK]
    acc += z @ w^T
  }
  x = X[b, at[b, m*BM +: BM], n*BN +: BN]
  parallel i < BM, j < BN { acc[i, j] = x[i, j] + acc[i, j] * route[b, m*BM + i] }
  Y[b, at[b, m*BM +: BM], n*BN +: BN] = acc
}

program depths<T: f16 | bf16>(X: T[B, N, D], at: i32[B, K], route: f32[B, K], W: T[E, D], V: T[D, E], Y: out T[B, N, D])
key bucket(B), bucket(N), bucket(K), D, E
{
  temp Z: T[B, K, E]
  past(X, Y)
  hidden(X, at, W, Z)
  through(Z, V, X, at, route, Y)
}
"""


def depths(t, d):
    at = t.at.long()[..., None].expand(-1, -1, d["D"])
    x = t.X.gather(1, at)
    z = F.gelu(x @ t.W.T) @ t.V.T
    return t.X.scatter(1, at, (x + z * t.route[..., None]).to(t.X.dtype))


def chosen(shape, t, d):
    return torch.stack([torch.randperm(d["N"], device=device())[:shape[1]].sort().values for _ in range(shape[0])]).int()


# ---- other attentions -----------------------------------------------------------------------------------------------
DIFFERENTIAL = """tile 1
# Two causal maps of attention over the same values, the second one taken off by lambda, and a norm of each head's result.
kernel differential<T: f16 | bf16>(Q: T[B, N, H, 2, D], K: T[B, N, H, 2, D], V: T[B, N, H, E], lambda: f32[H], W: f32[E], O: out T[B, N, H, E], scale: f32, eps: f32)
key bucket(N), H, D, E
tune BM = 64 | 128, BN = 32 | 64 | 128, stages = 2 | 3
grid s < ceildiv(N, BM), h < H, b < B
{
  shared   q: T[BM, D], r: T[BM, D], k: T[BN, D], u: T[BN, D], v: T[BN, E]
  fragment S: f32[BM, BN], P: T[BM, BN], m: f32[BM] = -1e30, l: f32[BM] = 0, alpha: f32[BM], acc: f32[BM, E] = 0
  fragment S2: f32[BM, BN], P2: T[BM, BN], m2: f32[BM] = -1e30, l2: f32[BM] = 0, alpha2: f32[BM], acc2: f32[BM, E] = 0
  let c = scale * log2e
  q = Q[b, s*BM +: BM, h, 0, :]
  r = Q[b, s*BM +: BM, h, 1, :]
  pipelined n < ceildiv(min(N, (s + 1)*BM), BN), stages {
    k = K[b, n*BN +: BN, h, 0, :]
    u = K[b, n*BN +: BN, h, 1, :]
    v = V[b, n*BN +: BN, h, :]
    S = q @ k^T
    S2 = r @ u^T
    parallel i < BM, j < BN {
      let seen = n*BN + j <= s*BM + i
      S[i, j] = seen ? S[i, j] : -inf
      S2[i, j] = seen ? S2[i, j] : -inf
    }
    parallel i < BM {
      let most = max(m[i], max[j < BN](S[i, j])), most2 = max(m2[i], max[j < BN](S2[i, j]))
      alpha[i] = exp2((m[i] - most) * c)
      alpha2[i] = exp2((m2[i] - most2) * c)
      m[i] = most
      m2[i] = most2
    }
    parallel i < BM, j < BN {
      S[i, j] = exp2(S[i, j] * c - m[i] * c)
      S2[i, j] = exp2(S2[i, j] * c - m2[i] * c)
    }
    parallel i < BM {
      l[i] = l[i] * alpha[i] + sum[j < BN](S[i, j])
      l2[i] = l2[i] * alpha2[i] + sum[j < BN](S2[i, j])
    }
    P = S
    P2 = S2
    parallel i < BM, e < E {
      acc[i, e] *= alpha[i]
      acc2[i, e] *= alpha2[i]
    }
    acc += P @ v
    acc2 += P2 @ v
  }
  parallel i < BM, e < E { acc[i, e] = acc[i, e] / l[i] - lambda[h] * acc2[i, e] / l2[i] }
  parallel i < BM, e < E { acc[i, e] *= rsqrt(sum[x < E](acc[i, x] * acc[i, x]) / E + eps) * W[e] }
  O[b, s*BM +: BM, h, :] = acc
}
"""


def differential(t, d):
    b, n, h, e = (d[k] for k in "BNHE")
    q, k = (x.permute(3, 0, 2, 1, 4).flatten(0, 1) for x in (t.Q, t.K))
    v = heads(t.V).repeat(2, 1, 1, 1)
    o = up(F.scaled_dot_product_attention(q, k, v, is_causal=True)).view(2, b, h, n, e)
    o = o[0] - t.__dict__["lambda"][:, None, None] * o[1]
    o = o * torch.rsqrt(o.square().mean(-1, keepdim=True) + 1e-5) * t.W
    return heads(o).to(t.Q.dtype)


def differential_halves(t, d):
    """values in two halves, as wide as keys: what flash attention takes"""
    b, n, h, e = (d[k] for k in "BNHE")
    q, k = (x.permute(3, 0, 2, 1, 4).repeat_interleave(2, 0).flatten(0, 1) for x in (t.Q, t.K))
    v = torch.cat([x.transpose(1, 2) for x in t.V.chunk(2, -1)] * 2)
    o = up(F.scaled_dot_product_attention(q, k, v, is_causal=True)).view(2, 2, b, h, n, e // 2)
    o = torch.cat((o[0, 0] - t.__dict__["lambda"][:, None, None] * o[1, 0], o[0, 1] - t.__dict__["lambda"][:, None, None] * o[1, 1]), -1)
    o = o * torch.rsqrt(o.square().mean(-1, keepdim=True) + 1e-5) * t.W
    return heads(o).to(t.Q.dtype)


GLA = """tile 1
# Gated linear attention by chunks of 64: the state is D by BV, gates are logarithms of decays, one for each key channel.
kernel gla<T: f16 | bf16>(Q: T[B, N, H, D], K: T[B, N, H, D], V: T[B, N, H, E], G: f32[B, N, H, D], O: out T[B, N, H, E], scale: f32)
key bucket(B), bucket(N), H, D, E
tune BV = 32 | 64 | 128, stages = 1 | 2, threads = 128 | 256
grid e < ceildiv(E, BV), h < H, b < B
{
  shared   q: T[64, D], k: T[64, D], v: T[64, BV], g: f32[64, D]
  fragment c: f32[64, D], last: f32[D], u: T[64, D], w: T[64, D], z: T[64, D], s: f32[64, 64], p: T[64, 64]
  fragment state: f32[D, BV] = 0, held: T[D, BV], o: f32[64, BV]
  pipelined n < ceildiv(N, 64), stages {
    q = Q[b, n*64 +: 64, h, :]
    k = K[b, n*64 +: 64, h, :]
    v = V[b, n*64 +: 64, h, e*BV +: BV]
    g = G[b, n*64 +: 64, h, :]
    parallel i < 64, d < D { c[i, d] = sum[j <= i](g[j, d]) }
    parallel d < D { last[d] = sum[j < 64](g[j, d]) }
    parallel i < 64, d < D {
      u[i, d] = q[i, d] * scale * exp(c[i, d])
      w[i, d] = k[i, d] * exp(-c[i, d])
      z[i, d] = k[i, d] * exp(last[d] - c[i, d])
    }
    s = u @ w^T
    parallel i < 64, j < 64 { p[i, j] = j <= i ? s[i, j] : 0 }
    held = state
    o = u @ held
    o += p @ v
    O[b, n*64 +: 64, h, e*BV +: BV] = o
    parallel d < D, j < BV { state[d, j] *= exp(last[d]) }
    state += z^T @ v
  }
}
"""


def gla(t, d):
    b, n, h, dd, e = (d[k] for k in "BNHDE")
    full = -(-n // 64) * 64

    def chunks(x):
        return F.pad(x, (0, 0, 0, 0, 0, full - n)).view(b, full // 64, 64, h, -1).permute(0, 3, 1, 2, 4)
    q, k, v, g = chunks(t.Q), chunks(t.K), chunks(t.V), chunks(t.G)
    c = g.cumsum(-2)
    last = c[..., -1:, :]
    u = (up(q) * dd ** -0.5 * c.exp()).to(q.dtype)
    w = (up(k) * (-c).exp()).to(q.dtype)
    z = (up(k) * (last - c).exp()).to(q.dtype)
    o = (u @ w.transpose(-1, -2)).tril() @ v
    add, decay = up(z.transpose(-1, -2) @ v), last.exp().transpose(-1, -2)
    state, states = torch.zeros_like(add[:, :, 0]), []
    for i in range(full // 64):
        states.append(state)
        state = state * decay[:, :, i] + add[:, :, i]
    o = o + u @ torch.stack(states, 2).to(q.dtype)
    return o.permute(0, 2, 3, 1, 4).reshape(b, full, h, e)[:, :n]


MLA = """tile 1
# One query a sequence, all heads share a latent row of 576: keys are all of it, values the first 512.
kernel mla_part<T: f16 | bf16>(Q: T[B, H, 576], C: T[B, S, 576], length: i32[B], part: out f32[B, H, splits, 512], lse: out f32[B, H, splits], scale: f32)
key bucket(B), bucket(S), bucket(splits), H
tune BH = 64 | 16 | 32, BN = 32 | 64 | 16, stages = 1 | 2 | 3
grid p < splits, x < ceildiv(H, BH), b < B
{
  shared   q: T[BH, 576], k: T[BN, 576]
  fragment s: f32[BH, BN], e: T[BH, BN], acc: f32[BH, 512] = 0, m: f32[BH] = -1e30, l: f32[BH] = 0, alpha: f32[BH]
  let all = min(length[b], S)
  let share = ceildiv(ceildiv(all, 64), splits) * (64 / BN)
  let c = scale * log2e
  q = Q[b, x*BH +: BH, :]
  pipelined n in p*share .. min(ceildiv(all, BN), (p + 1)*share), stages {
    k = C[b, n*BN +: BN, :]
    s = q @ k^T
    parallel i < BH, j < BN { s[i, j] = n*BN + j < all ? s[i, j] : -inf }
    parallel i < BH {
      let most = max(m[i], max[j < BN](s[i, j]))
      alpha[i] = exp2((m[i] - most) * c)
      m[i] = most
    }
    parallel i < BH, j < BN { s[i, j] = exp2(s[i, j] * c - m[i] * c) }
    parallel i < BH { l[i] = l[i] * alpha[i] + sum[j < BN](s[i, j]) }
    parallel i < BH, d < 512 { acc[i, d] *= alpha[i] }
    e = s
    acc += e @ k[:, 0 +: 512]
  }
  parallel i < BH {
    m[i] = l[i] > 0 ? m[i] * c + log2(l[i]) : -inf
    l[i] = l[i] > 0 ? rcp(l[i]) : 0
  }
  parallel i < BH, d < 512 { acc[i, d] *= l[i] }
  part[b, x*BH +: BH, p, :] = acc
  lse[b, x*BH +: BH, p] = m
}

kernel mla_join<T: f16 | bf16>(part: f32[B, H, splits, 512], lse: f32[B, H, splits], O: out T[B, H, 512])
key bucket(B), bucket(splits), H
tune threads = 128 | 256
grid h < H, b < B
{
  fragment acc: f32[512] = 0, w: f32[splits]
  w = lse[b, h, :]
  let most = max(max[p < splits](w[p]), -1e30)
  parallel p < splits { w[p] = exp2(w[p] - most) }
  let total = sum[p < splits](w[p])
  parallel d < 512 { acc[d] = total > 0 ? sum[p < splits](w[p] * part[b, h, p, d]) / total : 0 }
  O[b, h, :] = acc
}

program mla<T: f16 | bf16>(Q: T[B, H, 576], C: T[B, S, 576], length: i32[B], O: out T[B, H, 512], scale: f32)
key bucket(B), bucket(S), H
tune splits = 4 | 1 | 2 | 8 | 16
{
  temp part: f32[B, H, splits, 512], lse: f32[B, H, splits]
  mla_part(Q, C, length, part, lse, scale)
  mla_join(part, lse, O)
}
"""


def mla(t, d):
    s = up(torch.bmm(t.Q, t.C.transpose(1, 2))) * 576 ** -0.5
    s = s.masked_fill(torch.arange(d["S"], device=s.device) >= t.length[:, None, None], float("-inf"))
    return torch.bmm(torch.softmax(s, -1).to(t.Q.dtype), t.C[..., :512])


def mla_sdpa(t, d):
    mask = (torch.arange(d["S"], device=t.Q.device) < t.length[:, None])[:, None, None]
    return F.scaled_dot_product_attention(t.Q[:, None], t.C[:, None], t.C[:, None, :, :512], attn_mask=mask, scale=576 ** -0.5)


def lengths(shape, t, d):
    return torch.randint(d["S"] // 2, d["S"] + 1, shape, device=device(), dtype=torch.int32)


# ---- decoding -------------------------------------------------------------------------------------------------------
SPECULATE = """tile 1
# Speculative sampling: of G drafted tokens the first ones are kept whose chance under the model, over that under the draft,
# exceeds a random number; the token behind them is drawn from what the model has beyond the draft.
kernel normalisers<T: f16 | bf16 | f32>(X: T[B, P, V], L: out f32[B, P])
key bucket(B), P, V
tune BV = 2048 | 4096 | 8192, threads = 256 | 512
grid b < B, p < P
{
  fragment x: f32[BV], m: f32[1] = -1e30, l: f32[1] = 0
  for v < ceildiv(V, BV) {
    x = X[b, p, v*BV +: BV] pad -inf
    parallel i < 1 {
      let most = max(m[i], max[j < BV](x[j]))
      l[i] = l[i] * exp(m[i] - most) + sum[j < BV](exp(x[j] - most))
      m[i] = most
    }
  }
  parallel i < 1 { m[i] += log(l[i]) }
  L[b, p +: 1] = m
}

kernel verify<T: f16 | bf16 | f32>(X: T[B, P, V], Z: T[B, G, V], L: f32[B, P], M: f32[B, G], draft: i32[B, G], chance: f32[B, G], kept: out i32[B])
key bucket(B), G
tune BB = 1 | 32, threads = 32
grid b < ceildiv(B, BB)
{
  fragment n: i32[BB] = 0
  for g < G {
    parallel i < BB {
      let r = b*BB + i
      let x = draft[r, g]
      let p = exp(X[r, g, x] - L[r, g]), q = exp(Z[r, g, x] - M[r, g])
      n[i] += n[i] == g && chance[r, g] * q < p ? 1 : 0
    }
  }
  kept[b*BB +: BB] = n
}

kernel draw<T: f16 | bf16 | f32>(X: T[B, P, V], Z: T[B, G, V], L: f32[B, P], M: f32[B, G], kept: i32[B], dice: f32[B], token: out i32[B])
key bucket(B), V
tune BV = 2048 | 4096, threads = 256 | 512 | 1024
grid b < B
{
  fragment x: f32[BV], z: f32[BV], total: f32[1] = 0, before: f32[1] = 0, at: i32[1] = 0
  let g = kept[b]
  for v < ceildiv(V, BV) {
    x = X[b, g, v*BV +: BV] pad -inf
    z = Z[b, g, v*BV +: BV] pad -inf
    parallel j < BV { x[j] = max(exp(x[j] - L[b, g]) - (g < G ? exp(z[j] - M[b, g]) : 0.0), 0) }
    parallel i < 1 { total[i] += sum[j < BV](x[j]) }
  }
  let least = dice[b] * total[0]
  for v < ceildiv(V, BV) {
    x = X[b, g, v*BV +: BV] pad -inf
    z = Z[b, g, v*BV +: BV] pad -inf
    parallel j < BV { x[j] = max(exp(x[j] - L[b, g]) - (g < G ? exp(z[j] - M[b, g]) : 0.0), 0) }
    parallel j < BV { z[j] = before[0] + sum[k <= j](x[k]) }
    parallel i < 1 {
      at[i] += sum[j < BV](v*BV + j < V && z[j] <= least ? i32(1) : i32(0))
      before[i] += sum[j < BV](x[j])
    }
  }
  parallel i < 1 { at[i] = min(at[i], V - 1) }
  token[b +: 1] = at
}

program speculate<T: f16 | bf16 | f32>(X: T[B, P, V], Z: T[B, G, V], draft: i32[B, G], chance: f32[B, G], dice: f32[B], kept: out i32[B], token: out i32[B])
where P == G + 1
key bucket(B), G, V
{
  temp L: f32[B, P], M: f32[B, G]
  normalisers(X, L)
  normalisers(Z, M)
  verify(X, Z, L, M, draft, chance, kept)
  draw(X, Z, L, M, kept, dice, token)
}
"""


def speculate(t, d):
    b, g, v = (d[k] for k in "BGV")
    p, q = torch.softmax(up(t.X), -1), torch.softmax(up(t.Z), -1)
    at = t.draft.long()[..., None]
    good = t.chance * q.gather(2, at)[..., 0] < p[:, :g].gather(2, at)[..., 0]
    kept = good.long().cumprod(1).sum(1)
    q = torch.cat((q, torch.zeros_like(q[:, :1])), 1)
    row = kept[:, None, None].expand(-1, 1, v)
    rest = (p.gather(1, row) - q.gather(1, row))[:, 0].clamp_min(0)
    total = rest.cumsum(-1)
    token = (total <= t.dice[:, None] * total[:, -1:]).sum(-1).clamp_max(v - 1)
    return kept.int(), token.int()


def drafted(shape, t, d):
    """what the draft's model would draw"""
    p = torch.softmax(t.Z.float().flatten(0, 1), -1)
    return torch.multinomial(p, 1).view(shape).int()


def sure(shape, t, d):
    """logits like the model's own"""
    return (t.X[:, :-1].float() + 0.3 * torch.randn(shape, device=device())).to(t.X.dtype)


PROJECT = """tile 1
# Queries, keys and values of a layer: product, norm over each head of queries and keys, rotation, in one.
kernel project<T: f16 | bf16>(X: T[M, K], W: T[R, D, K], A: f32[D], C: f32[D], at: i32[M], cosine: f32[L, half], sine: f32[L, half], Y: out T[M, R, D], queries: i32, keys: i32, eps: f32)
where D == 2 * half
key bucket(M), K, R, D
tune BM = 64 | 128, BK = 32 | 64 | 128, stages = 2 | 3 | 4
grid m < ceildiv(M, BM), h < R
{
  shared   x: T[BM, BK], w: T[D, BK]
  fragment acc: f32[BM, D] = 0
  pipelined k < ceildiv(K, BK), stages {
    x = X[m*BM +: BM, k*BK +: BK]
    w = W[h, :, k*BK +: BK]
    acc += x @ w^T
  }
  if h < queries + keys {
    parallel i < BM, d < D {
      acc[i, d] *= rsqrt(sum[e < D](acc[i, e] * acc[i, e]) / D + eps) * (h < queries ? A[d] : C[d])
    }
    parallel i < BM, d < half {
      let p = at[m*BM + i]
      let c = cosine[p, d], s = sine[p, d], low = acc[i, d], high = acc[i, d + half]
      acc[i, d] = low * c - high * s
      acc[i, d + half] = high * c + low * s
    }
  }
  Y[m*BM +: BM, h, :] = acc
}
"""


def project(t, d):
    m, r, dd, half = d["M"], d["R"], d["D"], d["half"]
    n = d["q"] + d["k"]
    y = t.X @ t.W.view(r * dd, -1).T
    y = y.view(m, r, dd)
    x = up(y[:, :n])
    x = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)
    x = torch.cat((x[:, :d["q"]] * t.A, x[:, d["q"]:] * t.C), 1)
    at = t.at.long()
    c, s = t.cosine[at][:, None], t.sine[at][:, None]
    low, high = x[..., :half], x[..., half:]
    x = torch.cat((low * c - high * s, high * c + low * s), -1).to(t.X.dtype)
    return torch.cat((x, y[:, n:]), 1)


def angles(function):
    def fill(shape, t, d):
        w = 10000.0 ** (-torch.arange(shape[1], dtype=torch.float64) / shape[1])
        return function(torch.arange(shape[0], dtype=torch.float64)[:, None] * w).float().to(device())
    return fill


RAGGED = """tile 1
# Cross attention over packed sequences: those of queries begin at cq[b], those of keys at ck[b].
kernel ragged<T: f16 | bf16>(Q: T[NQ, H, D], K: T[NK, G, D], V: T[NK, G, D], cq: i32[C], ck: i32[C], O: out T[NQ, H, D], scale: f32, longest: i32)
where H % G == 0
key bucket(NQ), bucket(NK), H, D
tune BM = 128 | 64, BN = 128 | 64 | 96, stages = 2 | 3
grid b < C - 1, s < ceildiv(longest, BM), h < H
{
  shared   q: T[BM, D], k: T[BN, D], v: T[BN, D]
  fragment S: f32[BM, BN], P: T[BM, BN], acc: f32[BM, D] = 0, m: f32[BM] = -1e30, l: f32[BM] = 0, alpha: f32[BM]
  let g = h / (H / G)
  let first = cq[b], start = ck[b]
  let count = cq[b + 1] - first, width = ck[b + 1] - start
  let c = scale * log2e
  if s*BM < count {
    q = Q[first + s*BM +: BM, h, :]
    pipelined n < ceildiv(width, BN), stages {
      k = K[start + n*BN +: BN, g, :]
      v = V[start + n*BN +: BN, g, :]
      S = q @ k^T
      parallel i < BM, j < BN { S[i, j] = n*BN + j < width ? S[i, j] : -inf }
      parallel i < BM {
        let most = max(m[i], max[j < BN](S[i, j]))
        let next = (most - m[i]) * c > 8 ? most : m[i]
        alpha[i] = exp2((m[i] - next) * c)
        m[i] = next
      }
      parallel i < BM, j < BN { S[i, j] = exp2(S[i, j] * c - m[i] * c) }
      parallel i < BM { l[i] = l[i] * alpha[i] + sum[j < BN](S[i, j]) }
      P = S
      parallel i < BM, d < D { acc[i, d] *= alpha[i] }
      acc += P @ v
    }
    parallel i < BM, d < D { acc[i, d] *= l[i] > 0 ? rcp(l[i]) : 0 }
    O[first + s*BM +: BM, h, :] within first +: count = acc
  }
}
"""


def borders(total):
    def fill(shape, t, d):
        n = shape[0] - 1
        cut = torch.linspace(0.6, 1.4, n, dtype=torch.float64).cumsum(0)
        cut = (cut / cut[-1] * d[total]).round().int()
        return torch.cat((torch.zeros(1, dtype=torch.int32), cut)).to(device())
    return fill


def longest(shape, t, d):
    return int((t.cq[1:] - t.cq[:-1]).max())


def ragged(t, d):
    if not hasattr(t, "spans"):
        t.spans = list(zip(t.cq.tolist()[:-1], t.cq.tolist()[1:], t.ck.tolist()[:-1], t.ck.tolist()[1:]))
    rep = d["H"] // d["G"]
    parts = []
    for a, b, c, e in t.spans:
        q, k, v = (x.transpose(0, 1)[None] for x in (t.Q[a:b], t.K[c:e], t.V[c:e]))
        k, v = k.repeat_interleave(rep, 1), v.repeat_interleave(rep, 1)
        parts.append(F.scaled_dot_product_attention(q, k, v)[0].transpose(0, 1))
    return torch.cat(parts)


def ragged_flash(t, d):
    if not hasattr(t, "widest"):
        t.most, t.widest = int((t.cq[1:] - t.cq[:-1]).max()), int((t.ck[1:] - t.ck[:-1]).max())
    return torch.ops.aten._flash_attention_forward(t.Q, t.K, t.V, t.cq, t.ck, t.most, t.widest, 0.0, False, False, scale=d["D"] ** -0.5)[0]


TALKING = """tile 1
# Heads are mixed before the softmax and behind it.
kernel scores<T: f16 | bf16>(Q: T[B, N, H, D], K: T[B, N, H, D], S: out T[B, H, N, N], scale: f32)
key bucket(B), N, H, D
tune BM = 64 | 128, BN = 64 | 128, threads = 128 | 256
grid b < B, h < H, m < ceildiv(N, BM), n < ceildiv(N, BN)
{
  shared   q: T[BM, D], k: T[BN, D]
  fragment s: f32[BM, BN]
  q = Q[b, m*BM +: BM, h, :]
  k = K[b, n*BN +: BN, h, :]
  s = q @ k^T
  parallel i < BM, j < BN { s[i, j] *= scale }
  S[b, h, m*BM +: BM, n*BN +: BN] = s
}

kernel mix<T: f16 | bf16>(S: T[B, H, N, N], W: f32[H, H], U: f32[H, H], P: out T[B, H, N, N])
key bucket(B), N, H
tune threads = 128 | 256 | 512
grid b < B, n < N
{
  fragment s: f32[H, N], x: f32[H, N]
  s = S[b, :, n, :]
  parallel h < H, j < N { x[h, j] = sum[g < H](W[h, g] * s[g, j]) }
  parallel h < H, j < N { x[h, j] = exp(x[h, j] - max[k < N](x[h, k])) }
  parallel h < H, j < N { x[h, j] /= sum[k < N](x[h, k]) }
  parallel h < H, j < N { s[h, j] = sum[g < H](U[h, g] * x[g, j]) }
  P[b, :, n, :] = s
}

kernel values<T: f16 | bf16>(P: T[B, H, N, N], V: T[B, N, H, D], O: out T[B, N, H, D])
key bucket(B), N, H, D
tune BM = 64 | 128, BK = 32 | 64, stages = 2 | 3
grid b < B, h < H, m < ceildiv(N, BM)
{
  shared   p: T[BM, BK], v: T[BK, D]
  fragment acc: f32[BM, D] = 0
  pipelined k < ceildiv(N, BK), stages {
    p = P[b, h, m*BM +: BM, k*BK +: BK]
    v = V[b, k*BK +: BK, h, :]
    acc += p @ v
  }
  O[b, m*BM +: BM, h, :] = acc
}

program talking<T: f16 | bf16>(Q: T[B, N, H, D], K: T[B, N, H, D], V: T[B, N, H, D], W: f32[H, H], U: f32[H, H], O: out T[B, N, H, D], scale: f32)
key bucket(B), N, H, D
{
  temp S: T[B, H, N, N], P: T[B, H, N, N]
  scores(Q, K, S, scale)
  mix(S, W, U, P)
  values(P, V, O)
}
"""


def talking(t, d):
    s = torch.einsum("bnhd,bmhd->bhnm", t.Q, t.K) * d["D"] ** -0.5
    w, u = t.W.to(s.dtype), t.U.to(s.dtype)
    s = torch.einsum("gh,bhnm->bgnm", w, s)
    p = torch.softmax(up(s), -1).to(s.dtype)
    p = torch.einsum("gh,bhnm->bgnm", u, p)
    return torch.einsum("bhnm,bmhd->bnhd", p, t.V)


LINEAR = """tile 1
# Linear attention with the feature map elu(x) + 1.
kernel memory<T: f16 | bf16>(K: T[B, N, H, D], V: T[B, N, H, E], S: out f32[B, H, D, E], Z: out f32[B, H, D])
key bucket(B), bucket(N), H, D, E
tune BN = 32 | 64 | 128, stages = 2 | 3 | 4
grid h < H, b < B
{
  shared   k: T[BN, D], v: T[BN, E]
  fragment f: T[BN, D], s: f32[D, E] = 0, z: f32[D] = 0
  pipelined n < ceildiv(N, BN), stages {
    k = K[b, n*BN +: BN, h, :]
    v = V[b, n*BN +: BN, h, :]
    parallel i < BN, d < D { f[i, d] = n*BN + i < N ? (k[i, d] > 0 ? k[i, d] + 1 : exp(k[i, d])) : 0 }
    s += f^T @ v
    parallel d < D { z[d] += sum[i < BN](f[i, d]) }
  }
  S[b, h, :, :] = s
  Z[b, h, :] = z
}

kernel answers<T: f16 | bf16>(Q: T[B, N, H, D], S: f32[B, H, D, E], Z: f32[B, H, D], O: out T[B, N, H, E])
key bucket(B), bucket(N), H, D, E
tune BM = 64 | 128, threads = 128 | 256
grid n < ceildiv(N, BM), h < H, b < B
{
  fragment q: f32[BM, D], f: T[BM, D], s: T[D, E], o: f32[BM, E], l: f32[BM]
  q = Q[b, n*BM +: BM, h, :]
  s = S[b, h, :, :]
  parallel i < BM, d < D { q[i, d] = q[i, d] > 0 ? q[i, d] + 1 : exp(q[i, d]) }
  parallel i < BM { l[i] = rcp(sum[d < D](q[i, d] * Z[b, h, d])) }
  f = q
  o = f @ s
  parallel i < BM, e < E { o[i, e] *= l[i] }
  O[b, n*BM +: BM, h, :] = o
}

program linear<T: f16 | bf16>(Q: T[B, N, H, D], K: T[B, N, H, D], V: T[B, N, H, E], O: out T[B, N, H, E])
key bucket(B), bucket(N), H, D, E
{
  temp S: f32[B, H, D, E], Z: f32[B, H, D]
  memory(K, V, S, Z)
  answers(Q, S, Z, O)
}
"""


def linear(t, d):
    q, k = F.elu(t.Q) + 1, F.elu(t.K) + 1
    s = torch.einsum("bnhd,bnhe->bhde", k, t.V)
    z = up(k).sum(1)
    o = up(torch.einsum("bnhd,bhde->bnhe", q, s))
    return (o / torch.einsum("bnhd,bhd->bnh", up(q), z)[..., None]).to(t.Q.dtype)


PERCEIVER = """tile 1
# Few latents read many inputs: the keys are dealt out to several blocks.
kernel reads<T: f16 | bf16>(Q: T[B, N, H, D], K: T[B, M, H, D], V: T[B, M, H, D], part: out f32[B, H, splits, N, D], lse: out f32[B, H, splits, N], scale: f32)
key bucket(N), bucket(M), bucket(splits), H, D
tune BM = 128 | 64, BN = 128 | 64, stages = 2 | 3
grid p < splits, s < ceildiv(N, BM), x < B*H
{
  shared   q: T[BM, D], k: T[BN, D], v: T[BN, D]
  fragment S: f32[BM, BN], P: T[BM, BN], acc: f32[BM, D] = 0, m: f32[BM] = -1e30, l: f32[BM] = 0, alpha: f32[BM]
  let b = x / H, h = x % H
  let share = ceildiv(ceildiv(M, 128), splits) * (128 / BN)
  let c = scale * log2e
  q = Q[b, s*BM +: BM, h, :]
  pipelined n in p*share .. min(ceildiv(M, BN), (p + 1)*share), stages {
    k = K[b, n*BN +: BN, h, :]
    v = V[b, n*BN +: BN, h, :]
    S = q @ k^T
    parallel i < BM, j < BN { S[i, j] = n*BN + j < M ? S[i, j] : -inf }
    parallel i < BM {
      let most = max(m[i], max[j < BN](S[i, j]))
      let next = (most - m[i]) * c > 8 ? most : m[i]
      alpha[i] = exp2((m[i] - next) * c)
      m[i] = next
    }
    parallel i < BM, j < BN { S[i, j] = exp2(S[i, j] * c - m[i] * c) }
    parallel i < BM { l[i] = l[i] * alpha[i] + sum[j < BN](S[i, j]) }
    P = S
    parallel i < BM, d < D { acc[i, d] *= alpha[i] }
    acc += P @ v
  }
  parallel i < BM {
    m[i] = l[i] > 0 ? m[i] * c + log2(l[i]) : -inf
    l[i] = l[i] > 0 ? rcp(l[i]) : 0
  }
  parallel i < BM, d < D { acc[i, d] *= l[i] }
  part[b, h, p, s*BM +: BM, :] = acc
  lse[b, h, p, s*BM +: BM] = m
}

kernel joined<T: f16 | bf16>(part: f32[B, H, splits, N, D], lse: f32[B, H, splits, N], O: out T[B, N, H, D])
key bucket(N), bucket(splits), H, D
tune rows = 4 | 8 | 16, threads = 128 | 256
grid n < ceildiv(N, rows), x < B*H
{
  fragment o: f32[rows, D] = 0, w: f32[rows, splits], t: f32[rows]
  let b = x / H, h = x % H
  parallel i < rows, p < splits { w[i, p] = lse[b, h, p, n*rows + i] }
  parallel i < rows, p < splits { w[i, p] = exp2(w[i, p] - max(max[e < splits](w[i, e]), -1e30)) }
  parallel i < rows { t[i] = rcp(sum[p < splits](w[i, p])) }
  for p < splits {
    parallel i < rows, d < D { o[i, d] += w[i, p] * t[i] * part[b, h, p, n*rows + i, d] }
  }
  O[b, n*rows +: rows, h, :] = o
}

program perceiver<T: f16 | bf16>(Q: T[B, N, H, D], K: T[B, M, H, D], V: T[B, M, H, D], O: out T[B, N, H, D], scale: f32)
key bucket(N), bucket(M), B, H, D
tune splits = 4 | 2 | 8 | 16
{
  temp part: f32[B, H, splits, N, D], lse: f32[B, H, splits, N]
  reads(Q, K, V, part, lse, scale)
  joined(part, lse, O)
}
"""


def perceiver(t, d):
    return heads(F.scaled_dot_product_attention(heads(t.Q), heads(t.K), heads(t.V)))


ALIBI = """tile 1
# Causal attention with a slope for each head; heads of any width.
kernel alibi<T: f16 | bf16>(Q: T[B, N, H, D], K: T[B, N, H, D], V: T[B, N, H, D], slope: f32[H], O: out T[B, N, H, D], scale: f32)
key bucket(N), H, D
tune BM = 128 | 64 | 192, BN = 64 | 128 | 96 | 32, stages = 2 | 3
grid s < ceildiv(N, BM), h < H, b < B
{
  shared   q: T[BM, D], k: T[BN, D], v: T[BN, D]
  fragment S: f32[BM, BN], P: T[BM, BN], acc: f32[BM, D] = 0, m: f32[BM] = -1e30, l: f32[BM] = 0, alpha: f32[BM]
  let c = scale * log2e, a = slope[h] * log2e
  q = Q[b, s*BM +: BM, h, :]
  pipelined n < ceildiv(min(N, (s + 1)*BM), BN), stages {
    k = K[b, n*BN +: BN, h, :]
    v = V[b, n*BN +: BN, h, :]
    S = q @ k^T
    parallel i < BM, j < BN {
      let row = s*BM + i, column = n*BN + j
      S[i, j] = column <= row ? S[i, j] * c - a * f32(row - column) : -inf
    }
    parallel i < BM {
      let most = max(m[i], max[j < BN](S[i, j]))
      let next = most - m[i] > 8 ? most : m[i]
      alpha[i] = exp2(m[i] - next)
      m[i] = next
    }
    parallel i < BM, j < BN { S[i, j] = exp2(S[i, j] - m[i]) }
    parallel i < BM { l[i] = l[i] * alpha[i] + sum[j < BN](S[i, j]) }
    P = S
    parallel i < BM, d < D { acc[i, d] *= alpha[i] }
    acc += P @ v
  }
  parallel i < BM, d < D { acc[i, d] *= rcp(l[i]) }
  O[b, s*BM +: BM, h, :] = acc
}
"""


def alibi(t, d):
    if not hasattr(t, "bias"):
        i = torch.arange(d["N"], device=t.Q.device)
        x = (i[None, :] - i[:, None]).to(t.slope.dtype)
        t.bias = (t.slope[:, None, None] * x).masked_fill(x > 0, float("-inf")).to(t.Q.dtype)[None]
    return heads(F.scaled_dot_product_attention(heads(t.Q), heads(t.K), heads(t.V), attn_mask=t.bias))


def alibi_flex(t, d):
    from torch.nn.attention.flex_attention import create_block_mask
    if not hasattr(t, "seen"):
        t.seen = create_block_mask(lambda b, h, q, k: q >= k, None, None, d["N"], d["N"], device=t.Q.device)
    slope = t.slope
    return heads(flex(heads(t.Q), heads(t.K), heads(t.V), score_mod=lambda s, b, h, i, j: s + slope[h] * (j - i), block_mask=t.seen))


def alibi_without(t, d):
    """flash attention without slopes"""
    return heads(F.scaled_dot_product_attention(heads(t.Q), heads(t.K), heads(t.V), is_causal=True))


PERPLEXITY = """tile 1
# The loss of each token without logits in memory: parts of the vocabulary, then their sum.
kernel losses<T: f16 | bf16>(X: T[M, K], W: T[V, K], target: i32[M], most: out f32[parts, M], total: out f32[parts, M], own: out f32[parts, M])
key bucket(M), K, V, parts
tune BM = 64 | 128, BN = 64 | 128 | 256, BK = 32 | 64, stages = 3 | 4
grid m < ceildiv(M, BM), p < parts
{
  shared   x: T[BM, BK], w: T[BN, BK]
  fragment acc: f32[BM, BN], a: f32[BM] = -1e30, l: f32[BM] = 0, o: f32[BM] = 0
  let share = ceildiv(ceildiv(V, 256), parts) * (256 / BN)
  for v in p*share .. min(ceildiv(V, BN), (p + 1)*share) {
    acc = 0
    pipelined k < ceildiv(K, BK), stages {
      x = X[m*BM +: BM, k*BK +: BK]
      w = W[v*BN +: BN, k*BK +: BK]
      acc += x @ w^T
    }
    parallel i < BM, j < BN { acc[i, j] = v*BN + j < V ? acc[i, j] : -inf }
    parallel i < BM {
      let next = max(a[i], max[j < BN](acc[i, j]))
      l[i] = l[i] * exp(a[i] - next) + sum[j < BN](exp(acc[i, j] - next))
      o[i] += sum[j < BN](v*BN + j == target[m*BM + i] ? acc[i, j] : 0)
      a[i] = next
    }
  }
  most[p, m*BM +: BM] = a
  total[p, m*BM +: BM] = l
  own[p, m*BM +: BM] = o
}

kernel join(most: f32[parts, M], total: f32[parts, M], own: f32[parts, M], loss: out f32[M])
key bucket(M), parts
tune BM = 32 | 128, threads = 32 | 128
grid m < ceildiv(M, BM)
{
  fragment l: f32[BM]
  parallel i < BM {
    let r = m*BM + i
    let a = max[p < parts](most[p, r])
    l[i] = a + log(sum[p < parts](total[p, r] * exp(most[p, r] - a))) - sum[p < parts](own[p, r])
  }
  loss[m*BM +: BM] = l
}

program perplexity<T: f16 | bf16>(X: T[M, K], W: T[V, K], target: i32[M], loss: out f32[M])
key bucket(M), K, V
tune parts = 4 | 8 | 16 | 32
{
  temp most: f32[parts, M], total: f32[parts, M], own: f32[parts, M]
  losses(X, W, target, most, total, own)
  join(most, total, own, loss)
}
"""


def perplexity(t, d):
    return F.cross_entropy(up(t.X @ t.W.T), t.target.long(), reduction="none")


def perplexity_product(t, d):
    """the product alone"""
    return t.X @ t.W.T


QKNORM = {"queries": lambda shape, t, d: d["q"], "keys": lambda shape, t, d: d["k"], "eps": number(1e-6), "A": randn(0.1, 1.0), "C": randn(0.1, 1.0),
          "W": weight("X"), "at": lambda shape, t, d: torch.randint(0, d["L"], shape, device=device(), dtype=torch.int32),
          "cosine": angles(torch.cos), "sine": angles(torch.sin)}

CASES = [
    Case("attention_bias_padding", BIASED,
         sizes(dict(B=4, N=2048, M=2048, H=16, D=64), dict(B=3, N=1499, M=1777, H=11, D=72), dict(B=2, N=5, M=9, H=3, D=8)), biased, types=HF,
         fills={"mask": padding, "scale": root(), "K": like("Q", 2.0)}, peers={"flex": biased_flex}, tolerance=2e-3),
    Case("swin49", SWIN,
         sizes(dict(W=64 * 64, N=49, H=6, D=32, G=64), dict(W=64 * 37, N=49, H=5, D=32, G=37), dict(W=6, N=9, H=2, D=8, G=3)), swin, types=HF,
         fills={"scale": root(), "mask": window_mask}, peers={"plain": swin_plain}, tolerance=2e-3),
    Case("monarch1024", MONARCH,
         sizes(dict(N=32768, K=32, Q=32, P=32, S=32), dict(N=20011, K=27, Q=40, P=35, S=29), dict(N=11, K=3, Q=8, P=5, S=7)), monarch, types=BF,
         fills={"U": weight("X"), "V": weight("X")}, tolerance=1e-2),
    Case("adaln_gates", ADALN,
         sizes(dict(B=64, N=1024, D=1152, K=1152, E=6912), dict(B=31, N=769, D=1000, K=777, E=6000), dict(B=3, N=5, D=9, K=11, E=54)), adaln, kernel="adaln",
         types=BF, fills={"W": weight("C"), "eps": number(1e-6)}, tolerance=1e-2),
    Case("mixture_of_depths", DEPTHS,
         sizes(dict(B=8, N=2048, K=256, D=2048, E=8192), dict(B=5, N=1999, K=251, D=1531, E=4999), dict(B=2, N=9, K=3, D=8, E=11)), depths, kernel="depths",
         types=BF, tolerance=1e-2,
         fills={"at": chosen, "route": lambda shape, t, d: torch.rand(shape, device=device()), "W": weight("X"), "V": weight("X")}),
    Case("differential_attention", DIFFERENTIAL,
         sizes(dict(B=2, N=2048, H=16, D=64, E=128), dict(B=3, N=1499, H=7, D=56, E=112), dict(B=1, N=9, H=2, D=8, E=16)), differential, types=BF,
         tolerance=2e-2, fills={"lambda": lambda shape, t, d: torch.rand(shape, device=device()) * 0.5 + 0.2, "W": randn(0.1, 1.0), "scale": root(),
                                "eps": number(1e-5), "K": like("Q", 2.0)}, peers={"halves": differential_halves}),
    Case("gated_linear_attention", GLA,
         sizes(dict(B=4, N=2048, H=16, D=128, E=128), dict(B=3, N=1501, H=9, D=96, E=120), dict(B=1, N=67, H=1, D=8, E=8)), gla, types=BF, tolerance=2e-2,
         fills={"G": lambda shape, t, d: -torch.rand(shape, device=device()) * 0.05, "scale": root()}),
    Case("mla_decode", MLA,
         sizes(dict(B=64, H=128, S=4096), dict(B=37, H=40, S=3001), dict(B=2, H=5, S=67)), mla, kernel="mla", types=BF, tolerance=2e-2,
         fills={"length": lengths, "scale": number(576 ** -0.5), "C": like("Q")}, peers={"sdpa": mla_sdpa}),
    Case("speculative_verify", SPECULATE,
         sizes(dict(B=64, P=6, G=5, V=128256), dict(B=37, P=8, G=7, V=50257), dict(B=5, P=4, G=3, V=37)), speculate, kernel="speculate", types=BF,
         fills={"X": lambda shape, t, d: (torch.randn(shape, device=device()) * 3).bfloat16(), "Z": sure, "draft": drafted,
                "chance": lambda shape, t, d: torch.rand(shape, device=device()), "dice": lambda shape, t, d: torch.rand(shape, device=device())}),
    Case("qkv_norm_rope", PROJECT,
         sizes(dict(M=8192, K=4096, R=48, q=32, k=8, D=128, half=64, L=8192), dict(M=3001, K=2999, R=21, q=15, k=3, D=96, half=48, L=5003),
               dict(M=7, K=13, R=5, q=3, k=1, D=8, half=4, L=11)), project, types=BF, tolerance=1e-2, fills=QKNORM),
    Case("cross_attention_ragged", RAGGED,
         sizes(dict(NQ=16384, NK=32768, H=16, G=16, D=64, C=17), dict(NQ=7919, NK=14983, H=9, G=3, D=80, C=12), dict(NQ=13, NK=23, H=2, G=1, D=8, C=4)), ragged,
         types=BF, tolerance=1e-2, compiled=False, peers={"flash varlen": ragged_flash},
         fills={"cq": borders("NQ"), "ck": borders("NK"), "longest": longest, "scale": root(), "K": like("Q", 2.0)}),
    Case("talking_heads", TALKING,
         sizes(dict(B=32, N=577, H=8, D=48), dict(B=13, N=401, H=11, D=40), dict(B=2, N=9, H=3, D=8)), talking, kernel="talking", types=HF, tolerance=1e-2,
         fills={"scale": root(), "K": like("Q", 2.0), "W": lambda shape, t, d: torch.eye(shape[0], device=device()) + 0.2 * torch.randn(shape, device=device()),
                "U": lambda shape, t, d: torch.eye(shape[0], device=device()) + 0.2 * torch.randn(shape, device=device())}),
    Case("linear_attention_elu", LINEAR,
         sizes(dict(B=8, N=8192, H=16, D=64, E=64), dict(B=5, N=5003, H=9, D=72, E=56), dict(B=1, N=11, H=2, D=8, E=8)), linear, kernel="linear", types=BF,
         tolerance=2e-2),
    Case("perceiver_latents", PERCEIVER,
         sizes(dict(B=2, N=512, M=50176, H=8, D=64), dict(B=3, N=251, M=20011, H=7, D=88), dict(B=1, N=5, M=31, H=2, D=8)), perceiver, kernel="perceiver",
         types=BF, tolerance=1e-2, fills={"scale": root(), "K": like("Q", 2.0)}),
    Case("alibi_causal72", ALIBI,
         sizes(dict(B=2, N=4096, H=16, D=72), dict(B=3, N=2999, H=11, D=72), dict(B=1, N=9, H=2, D=8)), alibi, types=BF, tolerance=1e-2, compiled=False,
         fills={"slope": lambda shape, t, d: 2.0 ** (-8 * (torch.arange(shape[0], device=device()).float() + 1) / shape[0]), "scale": root(),
                "K": like("Q", 2.0)},
         peers={"flex": alibi_flex, "without slopes": alibi_without}),
    Case("perplexity", PERPLEXITY,
         sizes(dict(M=4096, K=2048, V=32000), dict(M=2999, K=1531, V=50257), dict(M=7, K=13, V=300)), perplexity, kernel="perplexity", types=BF, tolerance=2e-3,
         fills={"W": weight("X"), "target": lambda shape, t, d: torch.randint(0, d["V"], shape, device=device(), dtype=torch.int32)},
         peers={"product alone": perplexity_product}),
]
