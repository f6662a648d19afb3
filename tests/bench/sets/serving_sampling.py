"""Sampling from logits and checking drafts (vLLM, SGLang, FlashInfer)."""
import torch
import torch.nn.functional as F
from sets.shared.everyday import B16, BF, DEV, const, uniform, wide
from unseen import Case


def normal(scale, dtype=BF):
    return lambda s, t, d: (torch.randn(s, device=DEV) * scale).to(dtype)


F32 = torch.float32

# ---- repetition, frequency and presence penalties, in place
PENALTIES = """tile 1
kernel penalties(X: inout f32[N, V], prompt: u8[N, V], count: i32[N, V], repetition: f32[N], frequency: f32[N], presence: f32[N])
key bucket(N), bucket(V)
tune BV = 1024 | 2048 | 4096
grid n < N, v < ceildiv(V, BV)
{
  fragment x: f32[BV], p: u8[BV], c: i32[BV]
  x = X[n, v*BV +: BV]
  p = prompt[n, v*BV +: BV]
  c = count[n, v*BV +: BV]
  let r = repetition[n], f = frequency[n], q = presence[n]
  parallel j < BV {
    let seen = p[j] != 0 || c[j] > 0
    let y = seen ? (x[j] > 0 ? x[j] / r : x[j] * r) : x[j]
    x[j] = y - f * c[j] - (c[j] > 0 ? q : 0.0)
  }
  X[n, v*BV +: BV] = x
}
"""


def penalties(t, d):
    used = t.count > 0
    r = t.repetition[:, None]
    x = torch.where((t.prompt != 0) | used, torch.where(t.X > 0, t.X / r, t.X * r), t.X)
    return x - t.frequency[:, None] * t.count - t.presence[:, None] * used


def counts(s, t, d):
    x = torch.rand(s, device=DEV)
    return torch.where(x < 0.01, (x * 500).int() + 1, 0).int()


# ---- softmax with a temperature a row; what is less likely than min_p times the likeliest is left out
MIN_P = """tile 1
kernel min_p_probs<T: f32 | bf16>(X: T[N, V], temperature: f32[N], min_p: f32[N], P: out f32[N, V])
key bucket(N), bucket(V)
tune BV = 1024 | 2048 | 4096 | 8192
grid n < N
{
  fragment x: f32[BV], m: f32[1] = -inf, l: f32[1] = 0
  let inv_t = 1 / temperature[n], low = min_p[n]
  for v < ceildiv(V, BV) {
    x = X[n, v*BV +: BV] pad -inf
    parallel i < 1 { m[i] = max(m[i], max[j < BV](x[j])) }
  }
  let top = m[0]
  for v < ceildiv(V, BV) {
    x = X[n, v*BV +: BV] pad -inf
    parallel j < BV {
      let e = exp((x[j] - top) * inv_t)
      x[j] = e >= low ? e : 0
    }
    parallel i < 1 { l[i] += sum[j < BV](x[j]) }
  }
  let inv = 1 / l[0]
  for v < ceildiv(V, BV) {
    x = X[n, v*BV +: BV] pad -inf
    parallel j < BV {
      let e = exp((x[j] - top) * inv_t)
      x[j] = e >= low ? e * inv : 0
    }
    P[n, v*BV +: BV] = x
  }
}
"""


def min_p_probs(t, d):
    p = (wide(t.X) / t.temperature[:, None]).softmax(-1)
    p = torch.where(p >= t.min_p[:, None] * p.amax(-1, keepdim=True), p, 0)
    return p / p.sum(-1, keepdim=True)


# ---- the likeliest that make top_p together, renormalised: a threshold by bisection (FlashInfer's top_p_renorm_probs)
TOP_P = """tile 1
kernel top_p_renorm(P: f32[N, V], top_p: f32[N], Y: out f32[N, V])
key bucket(N), V
tune threads = 256 | 512 | 1024
grid n < N
{
  fragment p: f32[V], low: f32[1] = 0, high: f32[1], mass: f32[1]
  p = P[n, :]
  let most = max[v < V](p[v]), want = top_p[n]
  parallel i < 1 { high[i] = most }
  for step < 28 {
    let mid = 0.5 * (low[0] + high[0])
    let above = sum[v < V](p[v] > mid ? p[v] : 0.0)
    parallel i < 1 {
      low[i] = above >= want ? mid : low[i]
      high[i] = above >= want ? high[i] : mid
    }
  }
  let cut = low[0]
  parallel i < 1 { mass[i] = sum[v < V](p[v] > cut ? p[v] : 0.0) }
  let inv = 1 / mass[0]
  parallel v < V { p[v] = p[v] > cut ? p[v] * inv : 0 }
  Y[n, :] = p
}
"""


def top_p_renorm(t, d):
    s, i = t.P.sort(-1, descending=True)
    before = s.cumsum(-1) - s
    s = torch.where(before < t.top_p[:, None], s, 0)
    y = torch.zeros_like(t.P).scatter_(1, i, s)
    return y / y.sum(-1, keepdim=True)


# ---- the K largest logits kept, the others' probabilities are 0: a threshold by counting, over any vocabulary
TOP_K = """tile 1
kernel top_k_probs(X: f32[N, V], k: i32[N], P: out f32[N, V])
key bucket(N), bucket(V)
tune BV = 2048 | 4096 | 8192
grid n < N
{
  fragment x: f32[BV], low: f32[1] = inf, high: f32[1] = -inf, c: i32[1], l: f32[1] = 0
  for v < ceildiv(V, BV) {
    x = X[n, v*BV +: BV] pad nan
    parallel i < 1 {
      high[i] = max(high[i], max[j < BV](x[j]))
      low[i] = min(low[i], min[j < BV](x[j]))
    }
  }
  let top = high[0], want = k[n]
  for step < 24 {
    let mid = 0.5 * (low[0] + high[0])
    parallel i < 1 { c[i] = 0 }
    for v < ceildiv(V, BV) {
      x = X[n, v*BV +: BV] pad -inf
      parallel i < 1 { c[i] += sum[j < BV](x[j] >= mid ? i32(1) : i32(0)) }
    }
    parallel i < 1 {
      if c[0] >= want { low[i] = mid } else { high[i] = mid }
    }
  }
  let cut = low[0]
  for v < ceildiv(V, BV) {
    x = X[n, v*BV +: BV] pad -inf
    parallel i < 1 { l[i] += sum[j < BV](x[j] >= cut ? exp(x[j] - top) : 0.0) }
  }
  for v < ceildiv(V, BV) {
    x = X[n, v*BV +: BV]
    parallel j < BV { x[j] = x[j] >= cut ? exp(x[j] - top) / l[0] : 0.0 }
    P[n, v*BV +: BV] = x
  }
}
"""


def top_k_probs(t, d):
    top = t.X.topk(64, -1).values
    cut = top.gather(1, t.k.long()[:, None] - 1)
    return t.X.masked_fill(t.X < cut, float("-inf")).softmax(-1)


# ---- rejection sampling of drafts (vLLM): what is taken instead of each draft, then how far each row is accepted
VERIFY = """tile 1
kernel recover(target: f32[B, K, V], draft: f32[B, K, V], noise: f32[B, V], at: out i32[B, K])
key bucket(B), K, bucket(V)
tune BV = 2048 | 4096 | 8192
grid b < B, k < K
{
  fragment p: f32[BV], q: f32[BV], e: f32[BV], best: f32[1] = -inf, place: i32[1] = 0
  for v < ceildiv(V, BV) {
    p = target[b, k, v*BV +: BV]
    q = draft[b, k, v*BV +: BV]
    e = noise[b, v*BV +: BV] pad 1
    parallel j < BV { p[j] = max(p[j] - q[j], 0) / e[j] }
    parallel i < 1 {
      let here = max[j < BV](p[j])
      place[i] = here > best[i] ? v*BV + argmax[j < BV](p[j]) : place[i]
      best[i] = max(best[i], here)
    }
  }
  parallel i < 1 { at[b, k] = place[i] }
}

kernel accept(target: f32[B, K, V], draft: f32[B, K, V], token: i32[B, K], dice: f32[B, K], instead: i32[B, K], bonus: i32[B], out_: out i32[B, K1])
where K1 == K + 1
key bucket(B), K
grid b < B
{
  fragment y: i32[K1] = -1, going: i32[1] = 1
  for k < K {
    if going[0] == 1 {
      let t = token[b, k]
      let ok = draft[b, k, t] > 0 && target[b, k, t] / draft[b, k, t] >= dice[b, k]
      parallel j < K1 { y[j] = j == k ? (ok ? t : instead[b, k]) : y[j] }
      parallel i < 1 { going[i] = ok ? 1 : 0 }
    }
  }
  if going[0] == 1 { parallel j < K1 { y[j] = j == K ? bonus[b] : y[j] } }
  out_[b, :] = y
}

program verify(target: f32[B, K, V], draft: f32[B, K, V], noise: f32[B, V], token: i32[B, K], dice: f32[B, K], bonus: i32[B], out_: out i32[B, K1])
where K1 == K + 1
{
  temp instead: i32[B, K]
  recover(target, draft, noise, instead)
  accept(target, draft, token, dice, instead, bonus, out_)
}
"""


def verify(t, d):
    instead = ((t.target - t.draft).clamp(min=0) / t.noise[:, None]).argmax(-1).int()
    at = t.token.long()[..., None]
    p, q = t.target.gather(-1, at)[..., 0], t.draft.gather(-1, at)[..., 0]
    ok = (q > 0) & (p / q >= t.dice)
    alive = F.pad(ok.int().cumprod(-1), (1, 0), value=1)   # alive[k]: all before k were taken
    y = torch.cat((torch.where(ok, t.token, instead), t.bonus[:, None]), 1)
    return torch.where(alive == 1, y, -1)


def probs(s, t, d):
    return (torch.randn(s, device=DEV) * 2).softmax(-1)


def near_target(s, t, d):
    x = t.target.log() + torch.randn(s, device=DEV) * 0.3
    return x.softmax(-1)


# ---- a bit for each token that a grammar allows, then the probabilities
BITMASK = """tile 1
kernel bitmask_softmax<T: f16 | bf16>(X: T[N, V], bits: i32[N, W], P: out f32[N, V])
where W == ceildiv(V, 32)
key bucket(N), bucket(V)
tune BV = 1024 | 2048 | 4096 | 8192
grid n < N
{
  fragment x: f32[BV], b: i32[BV / 32], m: f32[1] = -1e30, l: f32[1] = 0
  for v < ceildiv(V, BV) {
    x = X[n, v*BV +: BV]
    b = bits[n, v*(BV / 32) +: BV / 32]
    parallel j < BV { x[j] = (b[j / 32] >> j % 32 & 1) != 0 && v*BV + j < V ? x[j] : -inf }
    parallel i < 1 {
      let top = max(m[i], max[j < BV](x[j]))
      l[i] = l[i] * exp(m[i] - top) + sum[j < BV](exp(x[j] - top))
      m[i] = top
    }
  }
  let lse = m[0] + log(l[0])
  for v < ceildiv(V, BV) {
    x = X[n, v*BV +: BV]
    b = bits[n, v*(BV / 32) +: BV / 32]
    parallel j < BV { x[j] = (b[j / 32] >> j % 32 & 1) != 0 ? exp(x[j] - lse) : 0 }
    P[n, v*BV +: BV] = x
  }
}
"""


def allowed(t, d):
    shifts = torch.arange(32, device=t.bits.device, dtype=torch.int32)
    return ((t.bits[..., None] >> shifts) & 1).flatten(1)[:, :d["V"]] != 0


def bitmask_softmax(t, d):
    return wide(t.X).masked_fill(~allowed(t, d), float("-inf")).softmax(-1)


# ---- words that must not be said: the last token of each where what was said ends with its others
BAD_WORDS = """tile 1
kernel bad_words(X: inout f32[N, V], said: i32[N, S], length: i32[N], words: i32[W, L], size: i32[W], value: f32)
key bucket(N), W, L
grid n < N
{
  let now = length[n]
  parallel w < W {
    let k = size[w]
    let wrong = sum[i < L](i < k - 1 && (now - (k - 1) + i < 0 || said[n, now - (k - 1) + i] != words[w, i]) ? 1 : 0)
    if wrong == 0 { atomic min X[n, words[w, k - 1]] = value }
  }
}
"""


def bad_words(t, d):
    w, l = t.words.shape
    i = torch.arange(l, device=t.X.device)
    at = t.length[:, None, None] - (t.size[None, :, None] - 1) + i                # [N, W, L]
    said = t.said.gather(1, at.clamp(0, d["S"] - 1).flatten(1).long()).view(at.shape)
    wrong = ((at < 0) | (said != t.words)) & (i < t.size[None, :, None] - 1)
    hit = ~wrong.any(-1)
    end = t.words.gather(1, t.size[:, None].long() - 1)[:, 0].long()
    y = torch.where(hit, torch.full_like(hit, t.value, dtype=t.X.dtype), float("inf"))
    return t.X.scatter_reduce(1, end.expand(d["N"], -1), y, "amin")


# ---- beams change places: caches of each follow, up to the length so far
BEAMS = """tile 1
kernel beam_gather<T: f16 | bf16>(K: T[B, G, S, D], parent: i32[B], length: i32, Y: out T[B, G, S, D])
key bucket(B), G, bucket(S), D
tune BS = 16 | 32 | 64
grid b < B, g < G, s < ceildiv(S, BS)
{
  fragment x: T[BS, D]
  if s*BS < length {
    x = K[parent[b], g, s*BS +: BS, :] within 0 +: length
  } else {
    x = 0
  }
  Y[b, g, s*BS +: BS, :] = x
}
"""


def beam_gather(t, d):
    y = torch.zeros_like(t.K)
    y[:, :, :t.length] = t.K[t.parent.long(), :, :t.length]
    return y


CASES = [
    Case("penalties", PENALTIES,
         {"large": dict(N=256, V=128256), "odd": dict(N=131, V=50257), "small": dict(N=5, V=1501)},
         penalties, fills={"X": normal(2, F32), "prompt": lambda s, t, d: (torch.rand(s, device=DEV) < 0.02).to(torch.uint8), "count": counts,
                           "repetition": uniform(1, 1.3), "frequency": uniform(0, 0.5), "presence": uniform(0, 0.5)}),
    Case("min_p_probs", MIN_P,
         {"large": dict(N=512, V=128256), "odd": dict(N=131, V=50257), "small": dict(N=5, V=3001)},
         min_p_probs, types={"T": "bf16"}, fills={"X": normal(2), "temperature": uniform(0.5, 1.5), "min_p": uniform(0.02, 0.1)},
         tolerance=1e-3),
    Case("top_p_renorm", TOP_P,
         {"large": dict(N=512, V=32000), "odd": dict(N=131, V=30011), "small": dict(N=5, V=3001)},
         top_p_renorm, fills={"P": probs, "top_p": uniform(0.5, 0.95)}, tolerance=1e-3),
    Case("top_k_probs", TOP_K,
         {"large": dict(N=512, V=128256), "odd": dict(N=131, V=50257), "small": dict(N=5, V=3001)},
         top_k_probs, fills={"X": normal(2, F32), "k": lambda s, t, d: torch.randint(1, 65, s, device=DEV, dtype=torch.int32)}, tolerance=1e-3),
    Case("verify", VERIFY,
         {"large": dict(B=64, K=5, K1=6, V=128256), "odd": dict(B=31, K=7, K1=8, V=50257), "small": dict(B=6, K=3, K1=4, V=1501)},
         verify, kernel="verify",
         fills={"target": probs, "draft": near_target, "noise": lambda s, t, d: torch.empty(s, device=DEV).exponential_(),
                "token": lambda s, t, d: t.draft.flatten(0, 1).multinomial(1).view(s).int(), "dice": uniform(0, 1),
                "bonus": lambda s, t, d: torch.randint(0, d["V"], s, device=DEV, dtype=torch.int32)}),
    Case("bitmask_softmax", BITMASK,
         {"large": dict(N=512, V=128256, W=4008), "odd": dict(N=131, V=50257, W=1571), "small": dict(N=5, V=3001, W=94)},
         bitmask_softmax, types=B16, fills={"X": normal(2), "bits": lambda s, t, d: torch.randint(-2**31, 2**31, s, device=DEV).int()},
         tolerance=1e-4),
    Case("bad_words", BAD_WORDS,
         {"large": dict(N=1024, V=128256, S=4096, W=8192, L=4), "odd": dict(N=301, V=50257, S=1501, W=777, L=5),
          "small": dict(N=5, V=101, S=50, W=37, L=3)},
         bad_words, fills={"X": normal(2, F32), "said": lambda s, t, d: torch.randint(0, 12, s, device=DEV, dtype=torch.int32),
                           "length": lambda s, t, d: torch.randint(1, d["S"] + 1, s, device=DEV, dtype=torch.int32),
                           "words": lambda s, t, d: torch.randint(0, 12, s, device=DEV, dtype=torch.int32),
                           "size": lambda s, t, d: torch.randint(1, d["L"] + 1, s, device=DEV, dtype=torch.int32), "value": const(-1000.0)}),
    Case("beam_gather", BEAMS,
         {"large": dict(B=128, G=8, S=2048, D=128), "odd": dict(B=31, G=5, S=1501, D=80), "small": dict(B=6, G=2, S=67, D=24)},
         beam_gather, types=B16,
         fills={"K": normal(1), "parent": lambda s, t, d: torch.randint(0, d["B"], s, device=DEV, dtype=torch.int32),
                "length": lambda s, t, d: d["S"] * 3 // 4 + 1}),
]
