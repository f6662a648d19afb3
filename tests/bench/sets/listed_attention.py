"""Attention to blocks and tokens of a list."""
import torch
import torch.nn.functional as F
from sets.shared.sparse import DEVICE, normal
from unseen import Case


# --- attention by lists ------------------------------------------------------------------------------------------------
# queries and keys in blocks of 128; a block of queries sees the blocks of keys that its list names
LISTED = """tile 1
kernel listed(Q: f16[B, H, S, D], K: f16[B, H, S, D], V: f16[B, H, S, D], count: i32[B, H, NB], list: i32[B, H, NB, L],
              O: out f16[B, H, S, D], scale: f32)
where NB == ceildiv(S, 128)
key  bucket(B * H), bucket(S), D, L
tune BM = 128 | 64, BN = 128 | 64 | 32, stages = 2 | 3 | 4
grid h < H, b < B, s < ceildiv(S, BM)
{
  shared   q: f16[BM, D], k: f16[BN, D], v: f16[BN, D]
  fragment S_: f32[BM, BN], P: f16[BM, BN], acc: f32[BM, D] = 0
  fragment m: f32[BM] = -1e30, l: f32[BM] = 0, alpha: f32[BM]
  let c = scale * log2e, u = s*BM / 128

  q = Q[b, h, s*BM +: BM, :]
  pipelined t < count[b, h, u] * (128 / BN), stages {
    let at = list[b, h, u, t / (128 / BN)] * 128 + t % (128 / BN) * BN
    k = K[b, h, at +: BN, :]
    v = V[b, h, at +: BN, :]
    S_ = q @ k^T
    parallel i < BM, j < BN { S_[i, j] = at + j <= s*BM + i ? S_[i, j] : -inf }
    parallel i < BM {
      let most = max(m[i], max[j < BN](S_[i, j]))
      let next = (most - m[i]) * c > 8 ? most : m[i]
      alpha[i] = exp2((m[i] - next) * c)
      m[i] = next
    }
    parallel i < BM, j < BN { S_[i, j] = exp2(S_[i, j] * c - m[i] * c) }
    parallel i < BM { l[i] = l[i] * alpha[i] + sum[j < BN](S_[i, j]) }
    P = S_
    parallel i < BM, d < D { acc[i, d] *= alpha[i] }
    acc += P @ v
  }
  parallel i < BM { l[i] = l[i] > 0 ? rcp(l[i]) : 0 }
  parallel i < BM, d < D { acc[i, d] *= l[i] }
  O[b, h, s*BM +: BM, :] = acc
}
"""


def block_counts(shape, t, d):
    return torch.arange(1, d["NB"] + 1, device=DEVICE).clamp(max=d["L"]).expand(shape).to(torch.int32)


def block_list(shape, t, d):  # the block itself, and others before it
    nb = d["NB"]
    x = torch.rand(*shape[:2], nb, nb, device=DEVICE)
    later = torch.ones(nb, nb, device=DEVICE, dtype=torch.bool).triu(1)
    x = x.masked_fill(later, 3).masked_fill(torch.eye(nb, device=DEVICE, dtype=torch.bool), 2)
    first = x.masked_fill(x > 1, 4).argsort(-1)  # the others before, in any order; then the block itself
    at = torch.arange(nb, device=DEVICE)
    own = (at.clamp(max=d["L"] - 1)).expand(x.shape[:3])
    first = first[..., :d["L"]].clone()
    return first.scatter_(3, own[..., None], at.expand(x.shape[:3])[..., None]).to(torch.int32)


def listed_reference(t, d):
    out, s = torch.empty_like(t.Q), d["S"]
    causal = torch.ones(s, s, device=DEVICE, dtype=torch.bool).tril()
    for b in range(d["B"]):
        for h in range(d["H"]):
            blocks = torch.zeros(d["NB"], d["NB"] + 1, device=DEVICE, dtype=torch.bool)
            at = torch.arange(d["L"], device=DEVICE) < t.count[b, h, :, None]
            blocks.scatter_(1, torch.where(at, t.list[b, h].long(), d["NB"]), True)
            mask = blocks[:, :-1].repeat_interleave(128, 0).repeat_interleave(128, 1)[:s, :s] & causal
            x = (t.Q[b, h] @ t.K[b, h].T * float(t.scale)).masked_fill_(~mask, -torch.inf)
            out[b, h] = x.softmax(-1) @ t.V[b, h]
    return out


def flex(t, d):
    from torch.nn.attention import flex_attention as fa
    if not hasattr(t, "mask"):
        nb = d["NB"]
        full = torch.zeros(d["B"], d["H"], nb, nb, device=DEVICE, dtype=torch.int32)
        full[..., :d["L"]] = t.list
        t.mask = fa.BlockMask.from_kv_blocks(t.count, full, BLOCK_SIZE=128, mask_mod=lambda b, h, q, k: q >= k)
        if not hasattr(flex, "compiled"):
            flex.compiled = torch.compile(fa.flex_attention, dynamic=False)
    return flex.compiled(t.Q, t.K, t.V, block_mask=t.mask, scale=t.scale)


def dense_attention(t, d):
    return F.scaled_dot_product_attention(t.Q, t.K, t.V, is_causal=True, scale=t.scale)


# each query sees tokens of its own, of one latent head of keys and values; -1 is nobody
TOKENS = """tile 1
kernel tokens(Q: bf16[T, H, C], KV: bf16[P, C], list: i32[T, L], O: out bf16[T, H, E], scale: f32)
where C == E + 64
key  bucket(T), H, C, bucket(L)
tune BH = 64 | 32 | 16, BN = 64 | 32 | 128, stages = 1 | 2, threads = 128 | 256
grid t < T, h < ceildiv(H, BH)
{
  shared   q: bf16[BH, C], k: bf16[BN, C]
  fragment s: f32[BH, BN], p: bf16[BH, BN], acc: f32[BH, E] = 0
  fragment m: f32[BH] = -1e30, l: f32[BH] = 0, alpha: f32[BH]
  let c = scale * log2e

  q = Q[t, h*BH +: BH, :]
  pipelined n < ceildiv(L, BN), stages {
    k = KV[list[t, n*BN +: BN] pad -1, :]
    s = q @ k^T
    parallel i < BH, j < BN { s[i, j] = n*BN + j < L && list[t, n*BN + j] >= 0 ? s[i, j] : -inf }
    parallel i < BH {
      let most = max(m[i], max[j < BN](s[i, j]))
      alpha[i] = exp2((m[i] - most) * c)
      m[i] = most
    }
    parallel i < BH, j < BN { s[i, j] = exp2(s[i, j] * c - m[i] * c) }
    parallel i < BH { l[i] = l[i] * alpha[i] + sum[j < BN](s[i, j]) }
    p = s
    parallel i < BH, e < E { acc[i, e] *= alpha[i] }
    acc += p @ k[:, 0 +: E]
  }
  parallel i < BH { l[i] = l[i] > 0 ? rcp(l[i]) : 0 }
  parallel i < BH, e < E { acc[i, e] *= l[i] }
  O[t, h*BH +: BH, :] = acc
}
"""


def token_list(shape, t, d):
    x = torch.randint(0, d["P"], shape, device=DEVICE)
    short = torch.randint(d["L"] // 2, 2 * d["L"], (shape[0], 1), device=DEVICE)
    return x.masked_fill(torch.arange(shape[1], device=DEVICE) >= short, -1).to(torch.int32)


def tokens(t, d):
    at = t.list.long()
    kv = t.KV[at.clamp(min=0)]
    s = (t.Q @ kv.transpose(1, 2)).float() * t.scale
    p = s.masked_fill((at < 0)[:, None], -torch.inf).softmax(-1).to(t.Q.dtype)
    return p @ kv[..., :d["E"]]


def tokens_reference(t, d):
    return torch.cat([tokens_exact(t, d, slice(at, at + 32)) for at in range(0, d["T"], 32)])


def tokens_exact(t, d, part):
    at = t.list[part].long()
    kv = t.KV[at.clamp(min=0)]
    s = (t.Q[part] @ kv.transpose(1, 2)) * float(t.scale)
    return s.masked_fill((at < 0)[:, None], -torch.inf).softmax(-1) @ kv[..., :d["E"]]


listed_sizes = {"large": dict(B=1, H=16, S=16384, D=128, NB=128, L=16), "odd": dict(B=2, H=5, S=5003, D=64, NB=40, L=7),
                "small": dict(B=1, H=1, S=301, D=32, NB=3, L=2)}

CASES = [
    Case("attention_listed", LISTED, listed_sizes, dense_attention, reference=listed_reference, compiled=False, peers={"flex": flex},
         tolerance=3e-3, fills={"Q": normal(torch.float16), "K": normal(torch.float16), "V": normal(torch.float16), "count": block_counts,
                                "list": block_list, "scale": lambda s, t, d: d["D"] ** -0.5}),
    Case("attention_tokens", TOKENS, {"large": dict(T=512, H=64, C=576, P=65536, L=2048, E=512), "decode": dict(T=64, H=128, C=576, P=262144, L=2048, E=512),
                                      "odd": dict(T=131, H=40, C=320, P=30011, L=777, E=256), "small": dict(T=2, H=5, C=128, P=61, L=37, E=64)},
         tokens, reference=tokens_reference, tolerance=1e-2,
         fills={"Q": normal(torch.bfloat16), "KV": normal(torch.bfloat16), "list": token_list, "scale": lambda s, t, d: d["C"] ** -0.5}),
]
