"""Parts of transformers beside attention."""
import math

import torch
import torch.nn.functional as F
from sets.shared.transformers import BF, device, number, randn, sizes, up
from unseen import Case


def weight(name):
    return lambda shape, t, d: (torch.randn(shape, device=getattr(t, name).device) / math.sqrt(shape[-1])).to(getattr(t, name).dtype)


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
    Case("speculative_verify", SPECULATE,
         sizes(dict(B=64, P=6, G=5, V=128256), dict(B=37, P=8, G=7, V=50257), dict(B=5, P=4, G=3, V=37)), speculate, kernel="speculate", types=BF,
         fills={"X": lambda shape, t, d: (torch.randn(shape, device=device()) * 3).bfloat16(), "Z": sure, "draft": drafted,
                "chance": lambda shape, t, d: torch.rand(shape, device=device()), "dice": lambda shape, t, d: torch.rand(shape, device=device())}),
    Case("qkv_norm_rope", PROJECT,
         sizes(dict(M=8192, K=4096, R=48, q=32, k=8, D=128, half=64, L=8192), dict(M=3001, K=2999, R=21, q=15, k=3, D=96, half=48, L=5003),
               dict(M=7, K=13, R=5, q=3, k=1, D=8, half=4, L=11)), project, types=BF, tolerance=1e-2, fills=QKNORM),
    Case("perplexity", PERPLEXITY,
         sizes(dict(M=4096, K=2048, V=32000), dict(M=2999, K=1531, V=50257), dict(M=7, K=13, V=300)), perplexity, kernel="perplexity", types=BF, tolerance=2e-3,
         fills={"W": weight("X"), "target": lambda shape, t, d: torch.randint(0, d["V"], shape, device=device(), dtype=torch.int32)},
         peers={"product alone": perplexity_product}),
]
