"""Attentions: masks, biases, sinks, trees of drafts, differences of two."""
import functools
import sys

import torch
import torch.nn.functional as F
from unseen import Case

DEV = "cpu" if "--check" in sys.argv or not torch.cuda.is_available() else "cuda"
BF = torch.bfloat16
sdpa = F.scaled_dot_product_attention

# What all forward kernels here do with a tile of scores S: the running maximum m, the sum l, the result acc.
ONLINE = """
    parallel i < BM {
      let most = max(m[i], max[j < BN](S[i, j]))
      alpha[i] = exp2((m[i] - most) * c)
      m[i] = most
    }
    parallel i < BM, j < BN { S[i, j] = exp2(S[i, j] * c - m[i] * c) }
    parallel i < BM { l[i] = l[i] * alpha[i] + sum[j < BN](S[i, j]) }
    P = S
    parallel i < BM, d < D { acc[i, d] *= alpha[i] }
    acc += P @ v
  }
"""
TILES = """  shared   q: T[BM, D], k: T[BN, D], v: T[BN, D]
  fragment S: f32[BM, BN], P: T[BM, BN], acc: f32[BM, D] = 0
  fragment m: f32[BM] = -1e30, l: f32[BM] = 0, alpha: f32[BM]
"""
LISTS = "tune BM = 128 | 64, BN = 128 | 64 | 96 | 32, stages = 2 | 3\n"


def heads(*tensors):
    return [x.transpose(1, 2) for x in tensors]


def repeated(x, h):
    return x.repeat_interleave(h // x.shape[1], 1)


@functools.cache
def flex_attention():
    from torch.nn.attention.flex_attention import flex_attention as function
    return torch.compile(function, dynamic=False)


@functools.cache
def flex_mask(kind, length, *parameters):
    from torch.nn.attention.flex_attention import create_block_mask
    return create_block_mask(kind(*parameters), None, None, length, length, device="cuda")


def flex(t, mask, score=None, scale=None):
    q, k, v = heads(t.Q, t.K, t.V)
    return flex_attention()(q, k, v, score_mod=score, block_mask=mask, scale=scale, enable_gqa=True).transpose(1, 2)


# ---- gpt-oss: a window, grouped heads, and a learned logit for each head that takes weight and gives nothing
SINK = """tile 1
kernel sink_window<T: f16 | bf16>(Q: T[B, N, H, D], K: T[B, N, G, D], V: T[B, N, G, D], sink: T[H], O: out T[B, N, H, D],
                                  scale: f32, window: i32)
where H % G == 0
key  bucket(N), D
""" + LISTS + """grid s < ceildiv(N, BM), h < H, b < B
{
""" + TILES + """  let g = h / (H / G), c = scale * log2e, first = max(s*BM + 1 - window, 0) / BN

  q = Q[b, s*BM +: BM, h, :]
  pipelined n in first .. ceildiv(min(N, (s + 1) * BM), BN), stages {
    k = K[b, n*BN +: BN, g, :]
    v = V[b, n*BN +: BN, g, :]
    S = q @ k^T
    parallel i < BM, j < BN {
      let row = s*BM + i, col = n*BN + j
      S[i, j] = col <= row && row - col < window ? S[i, j] : -inf
    }""" + ONLINE + """
  let logit = sink[h] * log2e
  parallel i < BM { l[i] += exp2(logit - m[i] * c) }
  parallel i < BM, d < D { acc[i, d] /= l[i] }
  O[b, s*BM +: BM, h, :] = acc
}
"""


def sink_window(t, d):
    q, k, v = heads(t.Q, t.K, t.V)
    at = torch.arange(d["N"], device=q.device)
    gap = at[:, None] - at
    scores = q @ repeated(k, d["H"]).transpose(2, 3) * t.scale
    scores = scores.masked_fill((gap < 0) | (gap >= t.window), float("-inf"))
    scores = torch.cat((scores, t.sink[None, :, None, None].expand(d["B"], -1, d["N"], 1)), -1)
    return (scores.softmax(-1)[..., :-1] @ repeated(v, d["H"])).transpose(1, 2)


def sink_flash(t, d):
    o, lse, *_ = torch.ops.aten._flash_attention_forward(
        t.Q, t.K, t.V, None, None, d["N"], d["N"], 0.0, True, False, scale=t.scale, window_size_left=t.window - 1,
        window_size_right=0)
    return o * torch.sigmoid(lse - t.sink[:, None]).transpose(1, 2)[..., None].to(BF)


# ---- Gemma 2: scores are bent by a tanh before the mask
SOFTCAP = """tile 1
kernel softcap<T: f16 | bf16>(Q: T[B, N, H, D], K: T[B, N, G, D], V: T[B, N, G, D], O: out T[B, N, H, D], scale: f32, cap: f32)
where H % G == 0
key  bucket(N), D
""" + LISTS + """grid s < ceildiv(N, BM), h < H, b < B
{
""" + TILES + """  let g = h / (H / G), c = log2e, inner = scale / cap

  q = Q[b, s*BM +: BM, h, :]
  pipelined n < ceildiv(min(N, (s + 1) * BM), BN), stages {
    k = K[b, n*BN +: BN, g, :]
    v = V[b, n*BN +: BN, g, :]
    S = q @ k^T
    parallel i < BM, j < BN { S[i, j] = n*BN + j <= s*BM + i ? cap * tanh(S[i, j] * inner) : -inf }""" + ONLINE + """
  parallel i < BM, d < D { acc[i, d] /= l[i] }
  O[b, s*BM +: BM, h, :] = acc
}
"""


def softcap(t, d):
    q, k, v = heads(t.Q, t.K, t.V)
    scores = torch.tanh(q @ repeated(k, d["H"]).transpose(2, 3) * (t.scale / t.cap)) * t.cap
    above = torch.ones(d["N"], d["N"], dtype=torch.bool, device=q.device).triu(1)
    return (scores.masked_fill(above, float("-inf")).softmax(-1) @ repeated(v, d["H"])).transpose(1, 2)


def causal():
    return lambda b, h, q, k: q >= k


def capped(score, b, h, q, k):
    return torch.tanh(score / 50.0) * 50.0


# ---- speculative decoding: a tree of drafts behind each sequence; bit j of tree[i] says that draft i sees draft j
TREE = """tile 1
kernel tree_verify<T: f16 | bf16>(Q: T[B, N, H, D], K: T[B, L, G, D], V: T[B, L, G, D], tree: i64[N], length: i32[B],
                                  O: out T[B, N, H, D], scale: f32)
where H % G == 0 && N <= 64
key  bucket(B), N, bucket(L), D
tune BM = 64 | 32 | 16, BN = 64 | 128 | 32, stages = 2 | 3 | 4
grid s < ceildiv(N, BM), h < H, b < B
{
""" + TILES + """  let g = h / (H / G), c = scale * log2e, all = length[b], past = all - N

  q = Q[b, s*BM +: BM, h, :]
  pipelined n < ceildiv(all, BN), stages {
    k = K[b, n*BN +: BN, g, :]
    v = V[b, n*BN +: BN, g, :]
    S = q @ k^T
    parallel i < BM, j < BN {
      let col = n*BN + j
      let seen = col < past || col < all && (tree[s*BM + i] >> (col - past) & 1) == 1
      S[i, j] = seen ? S[i, j] : -inf
    }""" + ONLINE + """
  parallel i < BM, d < D { acc[i, d] /= l[i] }
  O[b, s*BM +: BM, h, :] = acc
}
"""


def random_tree(shape, t, d):
    masks = [1]
    for i in range(1, shape[0]):
        masks.append(masks[int(torch.randint(0, i, ()))] | 1 << i)
    return torch.tensor([m - (1 << 64) if m >> 63 else m for m in masks], dtype=torch.int64, device=DEV)


def draft_lengths(shape, t, d):
    lengths = torch.randint(d["L"] // 2, d["L"] + 1, shape, device=DEV)
    at = torch.arange(d["L"], device=DEV) - (lengths[:, None, None] - d["N"])
    t.mask = (at < 0) | (at < d["N"]) & ((t.tree[:, None] >> at.clamp(0, 63)) & 1 == 1)
    return lengths.to(torch.int32)


def tree_verify(t, d):
    q = t.Q.unflatten(2, (d["G"], -1)).permute(0, 2, 3, 1, 4).flatten(2, 3)
    mask = t.mask[:, None].repeat(1, 1, d["H"] // d["G"], 1)
    o = sdpa(q, *heads(t.K, t.V), attn_mask=mask, scale=t.scale)
    return o.unflatten(2, (-1, d["N"])).permute(0, 3, 1, 2, 4).flatten(2, 3)


# ---- two attentions, one taken from the other
DIFF = """tile 1
kernel diff_attention<T: f16 | bf16>(Q: T[B, N, H, 2, D], K: T[B, N, H, 2, D], V: T[B, N, H, E], mix: f32[H],
                                     O: out T[B, N, H, E], scale: f32)
key  bucket(N), D, E
tune BM = 64 | 128, BN = 64 | 32 | 128, stages = 2 | 3
grid s < ceildiv(N, BM), h < H, b < B
{
  shared   q1: T[BM, D], q2: T[BM, D], k1: T[BN, D], k2: T[BN, D], v: T[BN, E]
  fragment S: f32[BM, BN], P: T[BM, BN], R: f32[BM, BN], U: T[BM, BN], a: f32[BM, E] = 0, z: f32[BM, E] = 0
  fragment m: f32[BM] = -1e30, l: f32[BM] = 0, f: f32[BM], m2: f32[BM] = -1e30, l2: f32[BM] = 0, f2: f32[BM]
  let c = scale * log2e

  q1 = Q[b, s*BM +: BM, h, 0, :]
  q2 = Q[b, s*BM +: BM, h, 1, :]
  pipelined n < ceildiv(min(N, (s + 1) * BM), BN), stages {
    k1 = K[b, n*BN +: BN, h, 0, :]
    k2 = K[b, n*BN +: BN, h, 1, :]
    v  = V[b, n*BN +: BN, h, :]
    S = q1 @ k1^T
    R = q2 @ k2^T
    parallel i < BM, j < BN {
      let seen = n*BN + j <= s*BM + i
      S[i, j] = seen ? S[i, j] : -inf
      R[i, j] = seen ? R[i, j] : -inf
    }
    parallel i < BM {
      let most = max(m[i], max[j < BN](S[i, j])), most2 = max(m2[i], max[j < BN](R[i, j]))
      f[i]  = exp2((m[i] - most) * c)
      f2[i] = exp2((m2[i] - most2) * c)
      m[i]  = most
      m2[i] = most2
    }
    parallel i < BM, j < BN {
      S[i, j] = exp2(S[i, j] * c - m[i] * c)
      R[i, j] = exp2(R[i, j] * c - m2[i] * c)
    }
    parallel i < BM {
      l[i]  = l[i] * f[i] + sum[j < BN](S[i, j])
      l2[i] = l2[i] * f2[i] + sum[j < BN](R[i, j])
    }
    P = S
    U = R
    parallel i < BM, e < E {
      a[i, e] *= f[i]
      z[i, e] *= f2[i]
    }
    a += P @ v
    z += U @ v
  }
  let w = mix[h]
  parallel i < BM, e < E { a[i, e] = a[i, e] / l[i] - w * z[i, e] / l2[i] }
  O[b, s*BM +: BM, h, :] = a
}
"""


def diff_attention(t, d):
    q, k, v = t.Q.permute(3, 0, 2, 1, 4), t.K.permute(3, 0, 2, 1, 4), t.V.transpose(1, 2)
    one, two = (sdpa(q[i], k[i], v, is_causal=True, scale=t.scale) for i in (0, 1))
    return (one - t.mix[:, None, None].to(one.dtype) * two).transpose(1, 2)


# ---- StreamingLLM: a window, and the first keys for ever
STREAM = """tile 1
kernel streaming_prefill<T: f16 | bf16>(Q: T[B, N, H, D], K: T[B, N, G, D], V: T[B, N, G, D], O: out T[B, N, H, D],
                                        scale: f32, window: i32, keep: i32)
where H % G == 0 && keep > 0
key  bucket(N), D
""" + LISTS + """grid s < ceildiv(N, BM), h < H, b < B
{
""" + TILES + """  let g = h / (H / G), c = scale * log2e
  let last = ceildiv(min(N, (s + 1) * BM), BN)                       # tiles: up to the diagonal,
  let kept = min(ceildiv(keep, BN), last)                            # of the first keys,
  let first = max(kept, max(s*BM + 1 - window, 0) / BN)              # and of the window

  q = Q[b, s*BM +: BM, h, :]
  pipelined n < kept + last - first, stages {
    let at = (n < kept ? n : first + n - kept) * BN
    k = K[b, at +: BN, g, :]
    v = V[b, at +: BN, g, :]
    S = q @ k^T
    parallel i < BM, j < BN {
      let row = s*BM + i, col = at + j
      S[i, j] = col <= row && (row - col < window || col < keep) ? S[i, j] : -inf
    }""" + ONLINE + """
  parallel i < BM, d < D { acc[i, d] /= l[i] }
  O[b, s*BM +: BM, h, :] = acc
}
"""


def streaming_mask(window, keep):
    return lambda b, h, q, k: (q >= k) & ((q - k < window) | (k < keep))


def streaming_prefill(t, d):
    at = torch.arange(d["N"], device=t.Q.device)
    mask = streaming_mask(t.window, t.keep)(0, 0, at[:, None], at)
    q, k, v = heads(t.Q, t.K, t.V)
    return sdpa(q, repeated(k, d["H"]), repeated(v, d["H"]), attn_mask=mask, scale=t.scale).transpose(1, 2)


# ---- AlphaFold's attention along the rows of an alignment: a bias for each pair of residues, absent residues, a gate
EVOFORMER = """tile 1
kernel evoformer_row<T: f16 | bf16>(Q: T[R, N, H, D], K: T[R, N, H, D], V: T[R, N, H, D], bias: T[H, N, N], there: T[R, N],
                                    gate: T[R, N, H, D], O: out T[R, N, H, D], scale: f32)
key  bucket(R), bucket(N), D
tune BM = 64 | 128, BN = 64 | 128 | 96 | 32, stages = 2 | 3
grid s < ceildiv(N, BM), h < H, r < R
{
""" + TILES + """  let c = log2e

  q = Q[r, s*BM +: BM, h, :]
  pipelined n < ceildiv(N, BN), stages {
    k = K[r, n*BN +: BN, h, :]
    v = V[r, n*BN +: BN, h, :]
    S = q @ k^T
    parallel i < BM, j < BN {
      let row = s*BM + i, col = n*BN + j
      S[i, j] = there[r, col] != 0 ? S[i, j] * scale + bias[h, row, col] : -inf
    }""" + ONLINE + """
  parallel i < BM, d < D { acc[i, d] = acc[i, d] / l[i] * rcp(1 + exp(-gate[r, s*BM + i, h, d])) }
  O[r, s*BM +: BM, h, :] = acc
}
"""


def evoformer_row(t, d):
    mask = t.bias + torch.where(t.there != 0, 0.0, float("-inf")).to(t.bias.dtype)[:, None, None]
    return torch.sigmoid(t.gate) * sdpa(*heads(t.Q, t.K, t.V), attn_mask=mask, scale=t.scale).transpose(1, 2)


def presence(shape, t, d):
    there = torch.rand(shape, device=DEV) < 0.8
    there[:, 0] = True
    return there.to(BF)


# ---- T5: unscaled scores, and a bias that only the distance decides
TOEPLITZ = """tile 1
kernel relative_bias<T: f16 | bf16>(Q: T[B, N, H, D], K: T[B, N, H, D], V: T[B, N, H, D], bias: f32[H, W],
                                    O: out T[B, N, H, D])
where W == 2 * N - 1
key  bucket(N), D
""" + LISTS + """grid s < ceildiv(N, BM), h < H, b < B
{
""" + TILES + """  let c = log2e

  q = Q[b, s*BM +: BM, h, :]
  pipelined n < ceildiv(N, BN), stages {
    k = K[b, n*BN +: BN, h, :]
    v = V[b, n*BN +: BN, h, :]
    S = q @ k^T
    parallel i < BM, j < BN {
      let row = s*BM + i, col = n*BN + j
      S[i, j] = col < N ? S[i, j] + bias[h, col - row + N - 1] : -inf
    }""" + ONLINE + """
  parallel i < BM, d < D { acc[i, d] /= l[i] }
  O[b, s*BM +: BM, h, :] = acc
}
"""


def relative_bias(t, d):
    mask = t.bias.unfold(1, d["N"], 1).flip(1).to(t.Q.dtype)
    return sdpa(*heads(t.Q, t.K, t.V), attn_mask=mask, scale=1.0).transpose(1, 2)


B16 = {"T": "bf16"}


def scaled(s, t, d):
    return d["D"] ** -0.5


CASES = [
    Case("sink_window", SINK,
         {"large": dict(B=2, N=2048, H=64, G=8, D=64), "odd": dict(B=1, N=3001, H=24, G=8, D=72),
          "small": dict(B=1, N=100, H=4, G=2, D=32)}, sink_window, types=B16,
         fills={"scale": scaled, "window": lambda s, t, d: 128 if d["N"] > 1000 else 19}, peers={"flash": sink_flash}),
    Case("softcap", SOFTCAP,
         {"large": dict(B=1, N=4096, H=16, G=8, D=256), "odd": dict(B=3, N=1021, H=9, G=3, D=136),
          "small": dict(B=1, N=70, H=2, G=1, D=48)}, softcap, types=B16,
         fills={"scale": lambda s, t, d: 20 * d["D"] ** -0.5, "cap": lambda s, t, d: 50.0},
         peers={"flex": lambda t, d: flex(t, flex_mask(causal, d["N"]), capped, t.scale)}),
    Case("tree_verify", TREE,
         {"large": dict(B=16, N=64, H=32, G=8, D=128, L=4096), "odd": dict(B=7, N=29, H=21, G=7, D=80, L=3001),
          "small": dict(B=2, N=13, H=4, G=2, D=32, L=90)}, tree_verify, types=B16,
         fills={"tree": random_tree, "length": draft_lengths, "scale": scaled}),
    Case("diff_attention", DIFF,
         {"large": dict(B=2, N=4096, H=16, D=64, E=128), "odd": dict(B=3, N=1501, H=7, D=40, E=80),
          "small": dict(B=1, N=70, H=2, D=16, E=32)}, diff_attention, types=B16,
         fills={"mix": lambda s, t, d: torch.rand(s, device=DEV), "scale": scaled}),
    Case("streaming_prefill", STREAM,
         {"large": dict(B=1, N=8192, H=16, G=4, D=128), "odd": dict(B=2, N=3011, H=9, G=3, D=96),
          "small": dict(B=1, N=300, H=2, G=1, D=32)}, streaming_prefill, types=B16,
         fills={"scale": scaled, "window": lambda s, t, d: 1024 if d["N"] > 1000 else 37,
                "keep": lambda s, t, d: 4 if d["N"] > 1000 else 7},
         peers={"flex": lambda t, d: flex(t, flex_mask(streaming_mask, d["N"], t.window, t.keep), None, t.scale)}),
    Case("evoformer_row", EVOFORMER,
         {"large": dict(R=128, N=384, H=8, D=32), "odd": dict(R=101, N=307, H=7, D=24),
          "small": dict(R=3, N=50, H=2, D=16)}, evoformer_row, types=B16,
         fills={"there": presence, "scale": scaled}),
    Case("relative_bias", TOEPLITZ,
         {"large": dict(B=8, N=1024, H=16, D=64, W=2047), "odd": dict(B=5, N=701, H=13, D=64, W=1401),
          "small": dict(B=1, N=75, H=2, D=16, W=149)}, relative_bias, types=B16,
         fills={"Q": lambda s, t, d: (torch.randn(s, device=DEV) * d["D"] ** -0.5).to(BF)}),
]
