"""Attention with documents, slopes, sinks, normed queries, and of other keys."""
import torch
from sets.shared.everyday import B16, BF, DEV, block_mask, const, flex_attention, grouped, scaled, sdpa, swap, wide
from unseen import Case

# ---- several documents in a row: a position sees what is before it in its own document
DOCS = """tile 1
kernel documents<T: f16 | bf16>(Q: T[B, S, H, D], K: T[B, S, H, D], V: T[B, S, H, D], doc: i32[B, S], O: out T[B, S, H, D], scale: f32)
key bucket(S), D
tune BM = 128 | 64, BN = 128 | 64, stages = 2 | 3
grid b < B, h < H, s < ceildiv(S, BM)
{
  shared   q: T[BM, D], k: T[BN, D], v: T[BN, D]
  fragment mine: i32[BM], theirs: i32[BN], w: f32[BM, BN], p: T[BM, BN], y: f32[BM, D] = 0
  fragment m: f32[BM] = -1e30, l: f32[BM] = 0, alpha: f32[BM]
  let c = scale * log2e

  q = Q[b, s*BM +: BM, h, :]
  mine = doc[b, s*BM +: BM] pad -1
  pipelined n < ceildiv(min(S, (s + 1)*BM), BN), stages {
    k = K[b, n*BN +: BN, h, :]
    v = V[b, n*BN +: BN, h, :]
    theirs = doc[b, n*BN +: BN] pad -2
    w = q @ k^T
    parallel i < BM, j < BN {
      if mine[i] != theirs[j] || n*BN + j > s*BM + i { w[i, j] = -inf }
    }
    parallel i < BM {
      let most = max(m[i], max[j < BN](w[i, j]))
      alpha[i] = exp2((m[i] - most) * c)
      m[i] = most
    }
    parallel i < BM, j < BN { w[i, j] = exp2((w[i, j] - m[i]) * c) }
    parallel i < BM { l[i] = l[i] * alpha[i] + sum[j < BN](w[i, j]) }
    parallel i < BM, d < D { y[i, d] *= alpha[i] }
    p = w
    y += p @ v
  }
  parallel i < BM, d < D { y[i, d] /= l[i] }
  O[b, s*BM +: BM, h, :] = y
}
"""


def document_ids(shape, t, d):
    return (torch.rand(shape, device=DEV) < 8 / d["S"]).cumsum(1).to(torch.int32)


def documents(t, d):
    at = torch.arange(d["S"], device=t.Q.device)
    mask = (at <= at[:, None]) & (t.doc[:, :, None] == t.doc[:, None])
    return sdpa(*swap(t.Q, t.K, t.V), attn_mask=mask[:, None], scale=t.scale).transpose(1, 2)


def documents_flex(t, d):
    doc = t.doc
    mask = block_mask(("doc", doc.data_ptr()), lambda b, h, q, k: (q >= k) & (doc[b, q] == doc[b, k]), d["B"], None, d["S"], d["S"])
    return flex_attention()(*swap(t.Q, t.K, t.V), block_mask=mask, scale=t.scale).transpose(1, 2)


# ---- ALiBi; scores are in units of log2 from the start
ALIBI = """tile 1
kernel alibi<T: f16 | bf16>(Q: T[B, S, H, D], K: T[B, S, H, D], V: T[B, S, H, D], slope: f32[H], O: out T[B, S, H, D], scale: f32)
key bucket(S), D
tune auto TQ, TK, stages
grid h < H, b < B, s < ceildiv(S, TQ)
{
  shared   q: T[TQ, D], k: T[TK, D], v: T[TK, D]
  fragment x: f32[TQ, TK], p: T[TQ, TK], acc: f32[TQ, D] = 0, m: f32[TQ] = -1e30, l: f32[TQ] = 0, g: f32[TQ]
  let c = scale * log2e, w = slope[h] * log2e

  q = Q[b, s*TQ +: TQ, h, :]
  pipelined n < ceildiv(min(S, (s + 1)*TQ), TK), stages {
    k = K[b, n*TK +: TK, h, :]
    v = V[b, n*TK +: TK, h, :]
    x = q @ k^T
    parallel i < TQ, j < TK {
      let gap = n*TK + j - (s*TQ + i)
      x[i, j] = gap > 0 ? -inf : x[i, j] * c + w * gap
    }
    parallel i < TQ {
      let top = max(m[i], max[j < TK](x[i, j]))
      g[i] = exp2(m[i] - top)
      m[i] = top
    }
    parallel i < TQ, j < TK { x[i, j] = exp2(x[i, j] - m[i]) }
    parallel i < TQ { l[i] = l[i] * g[i] + sum[j < TK](x[i, j]) }
    p = x
    parallel i < TQ, d < D { acc[i, d] *= g[i] }
    acc += p @ v
  }
  parallel i < TQ, d < D { acc[i, d] = acc[i, d] / l[i] }
  O[b, s*TQ +: TQ, h, :] = acc
}
"""


def alibi(t, d):
    at = torch.arange(d["S"], device=t.Q.device)
    gap = at - at[:, None]
    bias = (t.slope[:, None, None] * gap).masked_fill(gap > 0, float("-inf")).to(t.Q.dtype)
    return sdpa(*swap(t.Q, t.K, t.V), attn_mask=bias, scale=t.scale).transpose(1, 2)


def alibi_flex(t, d):
    slope = t.slope
    mask = block_mask(("causal", d["S"]), lambda b, h, q, k: q >= k, None, None, d["S"], d["S"])
    return flex_attention()(*swap(t.Q, t.K, t.V), score_mod=lambda s, b, h, q, k: s + slope[h] * (k - q), block_mask=mask,
                            scale=t.scale).transpose(1, 2)


# ---- a learned logit for each head: it is the state that the loop begins with; soft cap
SINKCAP = """tile 1
kernel sink_cap<T: f16 | bf16>(Q: T[B, H, S, D], K: T[B, G, S, D], V: T[B, G, S, D], sink: f32[H], O: out T[B, H, S, D], scale: f32, cap: f32)
where H % G == 0
key bucket(S), D
tune BM = 64 | 128, BN = 64 | 128, stages = 2 | 3
grid b < B, h < H, s < ceildiv(S, BM)
{
  shared   q: T[BM, D], k: T[BN, D], v: T[BN, D]
  fragment t: f32[BM, BN], p: T[BM, BN], acc: f32[BM, D] = 0, m: f32[BM], l: f32[BM] = 1, a: f32[BM]
  let kv = h / (H / G)
  m = sink[h]
  q = Q[b, h, s*BM +: BM, :]
  pipelined n < ceildiv(min(S, (s + 1)*BM), BN), stages {
    k = K[b, kv, n*BN +: BN, :]
    v = V[b, kv, n*BN +: BN, :]
    t = q @ k^T
    parallel i < BM, j < BN {
      let soft = cap * approx tanh(t[i, j] * scale / cap)
      t[i, j] = n*BN + j <= s*BM + i ? soft : -inf
    }
    parallel i < BM {
      let top = max(m[i], max[j < BN](t[i, j]))
      a[i] = exp(m[i] - top)
      m[i] = top
    }
    parallel i < BM, j < BN { t[i, j] = exp(t[i, j] - m[i]) }
    parallel i < BM { l[i] = l[i] * a[i] + sum[j < BN](t[i, j]) }
    p = t
    parallel i < BM, d < D { acc[i, d] *= a[i] }
    acc += p @ v
  }
  parallel i < BM { l[i] = rcp(l[i]) }
  parallel i < BM, d < D { acc[i, d] *= l[i] }
  O[b, h, s*BM +: BM, :] = acc
}
"""


def sink_cap(t, d):
    s = torch.tanh(wide(t.Q @ grouped(t.K, d["H"]).transpose(2, 3)) * (t.scale / t.cap)) * t.cap
    s = s.masked_fill(torch.ones(d["S"], d["S"], dtype=torch.bool, device=s.device).triu(1), float("-inf"))
    s = torch.cat((s, t.sink[:, None, None].to(s.dtype).expand(d["B"], -1, d["S"], 1)), -1)
    return s.softmax(-1)[..., :-1].to(t.V.dtype) @ grouped(t.V, d["H"])


def sink_flex(t, d):
    cap = t.cap
    mask = block_mask(("causal", d["S"]), lambda b, h, q, k: q >= k, None, None, d["S"], d["S"])
    o, lse = flex_attention()(t.Q, t.K, t.V, score_mod=lambda s, b, h, q, k: torch.tanh(s / cap) * cap, block_mask=mask,
                              scale=t.scale, enable_gqa=True, return_lse=True)
    return (o * torch.sigmoid(lse - t.sink[:, None])[..., None]).to(BF)


# ---- queries and keys are normed in the kernel
QKNORM = """tile 1
kernel qk_norm<T: f16 | bf16>(Q: T[B, S, H, D], K: T[B, S, G, D], V: T[B, S, G, D], wq: T[D], wk: T[D], O: out T[B, S, H, D],
                              scale: f32, eps: f32)
where H % G == 0
key bucket(S), D
tune BM = 128 | 64, BN = 64 | 128, stages = 2 | 3
grid b < B, h < H, s < ceildiv(S, BM)
{
  shared   q: T[BM, D], qn: T[BM, D], k: T[BN, D], kn: T[BN, D], v: T[BN, D]
  fragment x: f32[BM, BN], p: T[BM, BN], acc: f32[BM, D] = 0, m: f32[BM] = -1e30, l: f32[BM] = 0, a: f32[BM]
  let g = h / (H / G), c = scale * log2e

  q = Q[b, s*BM +: BM, h, :]
  parallel i < BM, d < D { qn[i, d] = q[i, d] * rsqrt(sum[e < D](q[i, e] * q[i, e]) / D + eps) * wq[d] }
  pipelined n < ceildiv(min(S, (s + 1)*BM), BN), stages {
    k = K[b, n*BN +: BN, g, :]
    v = V[b, n*BN +: BN, g, :]
    parallel j < BN, d < D { kn[j, d] = k[j, d] * rsqrt(sum[e < D](k[j, e] * k[j, e]) / D + eps) * wk[d] }
    x = qn @ kn^T
    parallel i < BM, j < BN { x[i, j] = n*BN + j <= s*BM + i ? x[i, j] : -inf }
    parallel i < BM {
      let top = max(m[i], max[j < BN](x[i, j]))
      a[i] = exp2((m[i] - top) * c)
      m[i] = top
    }
    parallel i < BM, j < BN { x[i, j] = exp2((x[i, j] - m[i]) * c) }
    parallel i < BM { l[i] = l[i] * a[i] + sum[j < BN](x[i, j]) }
    p = x
    parallel i < BM, d < D { acc[i, d] *= a[i] }
    acc += p @ v
  }
  parallel i < BM, d < D { acc[i, d] /= l[i] }
  O[b, s*BM +: BM, h, :] = acc
}
"""


def rms(x, w, eps):
    return (wide(x) * (wide(x).square().mean(-1, keepdim=True) + eps).rsqrt()).to(x.dtype) * w


def qk_norm(t, d):
    q, k, v = swap(rms(t.Q, t.wq, t.eps), rms(t.K, t.wk, t.eps), t.V)
    return sdpa(q, grouped(k, d["H"]), grouped(v, d["H"]), is_causal=True, scale=t.scale).transpose(1, 2)


# ---- cross attention: few queries, other keys; keys and values in one tensor
CROSS = """tile 1
kernel cross<T: f16 | bf16>(Q: T[B, Sq, H, D], KV: T[B, Sk, 2, H, D], O: out T[B, Sq, H, D], scale: f32)
key bucket(Sq), bucket(Sk), D
tune BM = 64 | 128, BN = 128 | 64, stages = 2 | 3
grid b < B, s < ceildiv(Sq, BM), h < H
{
  shared   q: T[BM, D], k: T[BN, D], v: T[BN, D]
  fragment t: f32[BM, BN], p: T[BM, BN], o: f32[BM, D] = 0, m: f32[BM] = -inf, l: f32[BM] = 0, a: f32[BM]

  q = Q[b, s*BM +: BM, h, :]
  parallel i < BM, d < D { q[i, d] = q[i, d] * scale }
  pipelined n < ceildiv(Sk, BN), stages {
    k = KV[b, n*BN +: BN, 0, h, :]
    v = KV[b, n*BN +: BN, 1, h, :]
    t = q @ k^T
    if (n + 1)*BN > Sk {
      parallel i < BM, j < BN { t[i, j] = n*BN + j < Sk ? t[i, j] : -inf }
    }
    parallel i < BM {
      let top = max(m[i], max[j < BN](t[i, j]))
      a[i] = exp(m[i] - top)
      m[i] = top
    }
    parallel i < BM, j < BN { t[i, j] = exp(t[i, j] - m[i]) }
    parallel i < BM { l[i] = l[i] * a[i] + sum[j < BN](t[i, j]) }
    p = t
    parallel i < BM, d < D { o[i, d] *= a[i] }
    o += p @ v
  }
  parallel i < BM, d < D { o[i, d] /= l[i] }
  O[b, s*BM +: BM, h, :] = o
}
"""


def cross(t, d):
    k, v = t.KV.permute(2, 0, 3, 1, 4)
    return sdpa(t.Q.transpose(1, 2), k, v, scale=t.scale).transpose(1, 2)


CASES = [
    Case("documents", DOCS, {"large": dict(B=2, S=8192, H=16, D=128), "odd": dict(B=2, S=2777, H=7, D=64),
                             "small": dict(B=2, S=110, H=2, D=16)}, documents, types=B16, fills={
                                 "scale": scaled, "doc": document_ids}, peers={"flex": documents_flex}),
    Case("alibi", ALIBI, {"large": dict(B=4, S=2048, H=32, D=64), "odd": dict(B=3, S=1201, H=9, D=96),
                          "small": dict(B=1, S=90, H=3, D=24)}, alibi, types=B16, fills={
                              "scale": scaled, "slope": lambda s, t, d: 2.0 ** -(torch.arange(1, s[0] + 1, device=DEV) * 8 / s[0])},
         peers={"flex": alibi_flex}),
    Case("sink_cap", SINKCAP, {"large": dict(B=2, H=32, G=8, S=4096, D=64), "odd": dict(B=2, H=15, G=5, S=1601, D=80),
                               "small": dict(B=1, H=4, G=2, S=70, D=16)}, sink_cap, types=B16, fills={
                                   "scale": scaled, "cap": const(20.0)}, peers={"flex": sink_flex}),
    Case("qk_norm", QKNORM, {"large": dict(B=2, S=4096, H=32, G=8, D=128), "odd": dict(B=3, S=1301, H=8, G=4, D=96),
                             "small": dict(B=1, S=75, H=4, G=2, D=32)}, qk_norm, types=B16, tolerance=1e-2, fills={
                                 "scale": scaled, "eps": const(1e-6)}),
    Case("cross", CROSS, {"large": dict(B=8, Sq=1024, Sk=4096, H=16, D=64), "odd": dict(B=5, Sq=501, Sk=1777, H=7, D=72),
                          "small": dict(B=2, Sq=33, Sk=150, H=2, D=24)}, cross, types=B16, tolerance=1e-2, fills={"scale": scaled}),
]
