"""Latent, linear, gated and mixed heads."""
import torch
import torch.nn.functional as F
from sets.shared.transformers import BF, HF, device, heads, lengths, like, number, root, sizes, up
from unseen import Case


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

CASES = [
    Case("gated_linear_attention", GLA,
         sizes(dict(B=4, N=2048, H=16, D=128, E=128), dict(B=3, N=1501, H=9, D=96, E=120), dict(B=1, N=67, H=1, D=8, E=8)), gla, types=BF, tolerance=2e-2,
         fills={"G": lambda shape, t, d: -torch.rand(shape, device=device()) * 0.05, "scale": root()}),
    Case("mla_decode", MLA,
         sizes(dict(B=64, H=128, S=4096), dict(B=37, H=40, S=3001), dict(B=2, H=5, S=67)), mla, kernel="mla", types=BF, tolerance=2e-2,
         fills={"length": lengths, "scale": number(576 ** -0.5), "C": like("Q")}, peers={"sdpa": mla_sdpa}),
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
]
