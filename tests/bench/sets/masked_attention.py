"""Attention with biases, windows and masks."""
import torch
import torch.nn.functional as F
from sets.shared.transformers import BF, HF, device, heads, lengths, like, number, randn, root, sizes, up
from unseen import Case


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

CASES = [
    Case("attention_bias_padding", BIASED,
         sizes(dict(B=4, N=2048, M=2048, H=16, D=64), dict(B=3, N=1499, M=1777, H=11, D=72), dict(B=2, N=5, M=9, H=3, D=8)), biased, types=HF,
         fills={"mask": padding, "scale": root(), "K": like("Q", 2.0)}, peers={"flex": biased_flex}, tolerance=2e-3),
    Case("swin49", SWIN,
         sizes(dict(W=64 * 64, N=49, H=6, D=32, G=64), dict(W=64 * 37, N=49, H=5, D=32, G=37), dict(W=6, N=9, H=2, D=8, G=3)), swin, types=HF,
         fills={"scale": root(), "mask": window_mask}, peers={"plain": swin_plain}, tolerance=2e-3),
    Case("alibi_causal72", ALIBI,
         sizes(dict(B=2, N=4096, H=16, D=72), dict(B=3, N=2999, H=11, D=72), dict(B=1, N=9, H=2, D=8)), alibi, types=BF, tolerance=1e-2, compiled=False,
         fills={"slope": lambda shape, t, d: 2.0 ** (-8 * (torch.arange(shape[0], device=device()).float() + 1) / shape[0]), "scale": root(),
                "K": like("Q", 2.0)},
         peers={"flex": alibi_flex, "without slopes": alibi_without}),
    Case("cross_attention_ragged", RAGGED,
         sizes(dict(NQ=16384, NK=32768, H=16, G=16, D=64, C=17), dict(NQ=7919, NK=14983, H=9, G=3, D=80, C=12), dict(NQ=13, NK=23, H=2, G=1, D=8, C=4)), ragged,
         types=BF, tolerance=1e-2, compiled=False, peers={"flash varlen": ragged_flash},
         fills={"cq": borders("NQ"), "ck": borders("NK"), "longest": longest, "scale": root(), "K": like("Q", 2.0)}),
    Case("differential_attention", DIFFERENTIAL,
         sizes(dict(B=2, N=2048, H=16, D=64, E=128), dict(B=3, N=1499, H=7, D=56, E=112), dict(B=1, N=9, H=2, D=8, E=16)), differential, types=BF,
         tolerance=2e-2, fills={"lambda": lambda shape, t, d: torch.rand(shape, device=device()) * 0.5 + 0.2, "W": randn(0.1, 1.0), "scale": root(),
                                "eps": number(1e-5), "K": like("Q", 2.0)}, peers={"halves": differential_halves}),
]
