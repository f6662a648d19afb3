"""Sparse attention and what it needs: selected blocks, compressed keys, indexers, chosen tokens, verticals and slashes."""
import torch
import torch.nn.functional as F
from sets.shared.everyday import MASKS, B16, BF, DEV, block_mask, flex_attention, grouped, scaled, sdpa, wide
from unseen import Case

# ---- native sparse attention, selected branch: each token and key head has `n` blocks of 64 keys; the heads of a key head
# are the rows of a product
NSA = """tile 1
kernel nsa_selected<T: f16 | bf16>(Q: T[B, S, G, R, D], K: T[B, S, G, D], V: T[B, S, G, D], blocks: i32[B, S, G, n], O: out T[B, S, G, R, D], scale: f32)
key bucket(S), R, D, n
tune stages = 2 | 3 | 1, threads = 64 | 128
grid b < B, t < S, g < G
{
  shared   q: T[R, D], k: T[64, D], v: T[64, D]
  fragment s: f32[R, 64], p: T[R, 64], o: f32[R, D] = 0
  fragment top: f32[R] = -1e30, total: f32[R] = 0, fix: f32[R]
  let c = scale * log2e

  q = Q[b, t, g, :, :]
  pipelined i < n, stages {
    let at = blocks[b, t, g, i] * 64
    if at >= 0 && at <= t {
      k = K[b, at +: 64, g, :]
      v = V[b, at +: 64, g, :]
      s = q @ k^T
      parallel r < R, j < 64 { s[r, j] = at + j <= t ? s[r, j] * c : -inf }
      parallel r < R {
        let most = max(top[r], max[j < 64](s[r, j]))
        fix[r] = exp2(top[r] - most)
        top[r] = most
      }
      parallel r < R, j < 64 { s[r, j] = exp2(s[r, j] - top[r]) }
      parallel r < R { total[r] = total[r] * fix[r] + sum[j < 64](s[r, j]) }
      parallel r < R, e < D { o[r, e] *= fix[r] }
      p = s
      o += p @ v
    }
  }
  parallel r < R, e < D { o[r, e] /= total[r] }
  O[b, t, g, :, :] = o
}
"""


def fill_blocks(s, t, d):
    count = (d["S"] + 63) // 64
    own = torch.arange(d["S"], device=DEV)[None, :, None, None] // 64
    x = torch.rand(*s[:3], count, device=DEV)
    at = torch.arange(count, device=DEV)
    x = x.masked_fill(at > own, -1.0).masked_fill(at == own, 2.0)
    if count < s[3]:
        x = F.pad(x, (0, s[3] - count), value=-1.0)
    value, index = x.topk(s[3], -1)
    return torch.where(value < 0, -1, index).to(torch.int32)


def selected_mask(t, d):
    count = (d["S"] + 63) // 64
    m = torch.zeros(d["B"], d["S"], d["G"], count + 1, dtype=torch.bool, device=t.Q.device)
    m.scatter_(3, torch.where(t.blocks < 0, count, t.blocks).long(), True)
    m = m[..., :count].repeat_interleave(64, 3)[..., :d["S"]]
    at = torch.arange(d["S"], device=t.Q.device)
    return (m & (at <= at[:, None])[None, :, None]).transpose(1, 2)


def nsa_selected(t, d):
    m = selected_mask(t, d).repeat_interleave(d["R"], 1)
    q = t.Q.flatten(2, 3).transpose(1, 2)
    k, v = (grouped(x.transpose(1, 2), q.shape[1]) for x in (t.K, t.V))
    return sdpa(q, k, v, attn_mask=m, scale=t.scale).transpose(1, 2).unflatten(2, (d["G"], -1))


# ---- compressed branch: block j of 16 keys has one compressed key, which is seen by the queries behind its last key; LSE
# is needed for the choice of blocks
COMPRESSED = """tile 1
kernel nsa_compressed<T: f16 | bf16>(Q: T[B, S, G, R, D], CK: T[B, C, G, D], CV: T[B, C, G, D], O: out T[B, S, G, R, D], lse: out f32[B, S, G, R], scale: f32)
key bucket(S), R, D
tune BM = 8 | 4 | 16, BN = 64 | 32 | 128, stages = 2 | 3
where BM * R <= 128, 64 <= BM * R
grid b < B, g < G, m < ceildiv(S, BM)
{
  shared   q: T[BM * R, D], k: T[BN, D], v: T[BN, D]
  fragment s: f32[BM * R, BN], p: T[BM * R, BN], o: f32[BM * R, D] = 0
  fragment top: f32[BM * R] = -1e30, total: f32[BM * R] = 0, fix: f32[BM * R]
  let last = min(C, ((m + 1)*BM) / 16)

  parallel i < BM * R, e < D { q[i, e] = Q[b, m*BM + i / R, g, i % R, e] }
  pipelined n < ceildiv(last, BN), stages {
    k = CK[b, n*BN +: BN, g, :]
    v = CV[b, n*BN +: BN, g, :]
    s = q @ k^T
    parallel i < BM * R, j < BN {
      let t = m*BM + i / R, c = n*BN + j
      s[i, j] = c < C && (c + 1) * 16 <= t + 1 ? s[i, j] * scale : -inf
    }
    parallel i < BM * R {
      let most = max(top[i], max[j < BN](s[i, j]))
      fix[i] = exp(top[i] - most)
      top[i] = most
    }
    parallel i < BM * R, j < BN { s[i, j] = exp(s[i, j] - top[i]) }
    parallel i < BM * R { total[i] = total[i] * fix[i] + sum[j < BN](s[i, j]) }
    parallel i < BM * R, e < D { o[i, e] *= fix[i] }
    p = s
    o += p @ v
  }
  parallel i < BM * R, e < D { O[b, m*BM + i / R, g, i % R, e] = total[i] > 0 ? o[i, e] / total[i] : 0 }
  parallel i < BM * R { lse[b, m*BM + i / R, g, i % R] = total[i] > 0 ? top[i] + log(total[i]) : 0 }
}
"""


def nsa_compressed(t, d):
    s = wide(torch.einsum("bsgrd,bcgd->bsgrc", t.Q, t.CK)) * t.scale
    at, c = torch.arange(d["S"], device=s.device), torch.arange(d["C"], device=s.device)
    there = (c + 1) * 16 <= at[:, None] + 1
    s = s.masked_fill(~there[None, :, None, None], float("-inf"))
    lse = s.logsumexp(-1)
    none = ~there.any(-1)[None, :, None, None]
    p = (s - lse[..., None]).exp().masked_fill(none[..., None], 0)
    return torch.einsum("bsgrc,bcgd->bsgrd", p.to(t.CV.dtype), t.CV), lse.masked_fill(none, 0)


# ---- DeepSeek's lightning indexer: fp8 queries of H heads against one key, relu, weighed and added over the heads
INDEXER = """tile 1
kernel indexer(Q: f8e4m3[S, H, D], K: f8e4m3[N, D], ks: f32[N], W: f32[S, H], L: out f32[S, N])
key bucket(S), bucket(N), H, D
tune BN = 128 | 64, BM = 64 | 128, stages = 2 | 3
grid m < ceildiv(S, BM), n < ceildiv(N, BN)
{
  shared   q: f8e4m3[BM, D], k: f8e4m3[BN, D]
  fragment s: f32[BM, BN], y: f32[BM, BN] = 0

  let past = N - S
  if n*BN <= m*BM + BM - 1 + past {
    k = K[n*BN +: BN, :]
    pipelined h < H, stages {
      q = Q[m*BM +: BM, h, :]
      s = q @ k^T
      parallel i < BM, j < BN { y[i, j] += max(s[i, j], 0) * W[m*BM + i, h] }
    }
  }
  parallel i < BM, j < BN {
    y[i, j] = n*BN + j <= m*BM + i + past ? y[i, j] * ks[n*BN + j] : -1e30
  }
  L[m*BM +: BM, n*BN +: BN] = y
}
"""


def indexer(t, d):
    low = torch.float64 if t.Q.dtype == torch.float64 else BF
    q, k = t.Q.to(low), t.K.to(low)
    y = None
    for h in range(d["H"]):
        one = wide(q[:, h] @ k.T).relu() * t.W[:, h, None]
        y = one if y is None else y + one
    at = torch.arange(d["S"], device=y.device)[:, None] + d["N"] - d["S"]
    return (y * t.ks).masked_fill(torch.arange(d["N"], device=y.device) > at, -1e30)


# ---- attention to chosen tokens of a shared latent (sparse MLA): D + R columns as keys, the first D of them as values
SPARSE_MLA = """tile 1
kernel sparse_mla<T: f16 | bf16>(Q: T[S, H, D], Qr: T[S, H, R], C: T[N, D], Kr: T[N, R], index: i32[S, topk], O: out T[S, H, D], scale: f32)
key bucket(S), H, D, R, topk
tune BH = 64 | 32 | 16, BN = 64 | 32, stages = 2 | 1
grid t < S, h < ceildiv(H, BH)
{
  shared   q: T[BH, D], qr: T[BH, R], c: T[BN, D], kr: T[BN, R]
  fragment s: f32[BH, BN], p: T[BH, BN], o: f32[BH, D] = 0
  fragment top: f32[BH] = -1e30, total: f32[BH] = 0, fix: f32[BH]
  let f = scale * log2e

  q = Q[t, h*BH +: BH, :]
  qr = Qr[t, h*BH +: BH, :]
  pipelined n < ceildiv(topk, BN), stages {
    c = C[index[t, n*BN +: BN], :]
    kr = Kr[index[t, n*BN +: BN], :]
    s = q @ c^T
    s += qr @ kr^T
    parallel i < BH, j < BN { s[i, j] = n*BN + j < topk && index[t, n*BN + j] >= 0 ? s[i, j] * f : -inf }
    parallel i < BH {
      let most = max(top[i], max[j < BN](s[i, j]))
      fix[i] = exp2(top[i] - most)
      top[i] = most
    }
    parallel i < BH, j < BN { s[i, j] = exp2(s[i, j] - top[i]) }
    parallel i < BH { total[i] = total[i] * fix[i] + sum[j < BN](s[i, j]) }
    parallel i < BH, e < D { o[i, e] *= fix[i] }
    p = s
    o += p @ c
  }
  parallel i < BH, e < D { o[i, e] /= total[i] }
  O[t, h*BH +: BH, :] = o
}
"""


def chosen(s, t, d):
    x = torch.rand(s[0], d["N"], device=DEV).topk(s[1], -1)[1]
    x[:, s[1] * 7 // 8:] = torch.where(torch.rand(s[0], s[1] - s[1] * 7 // 8, device=DEV) < 0.5, -1, x[:, s[1] * 7 // 8:])
    return x.to(torch.int32)


def sparse_mla(t, d):
    k = torch.cat((t.C, t.Kr), 1)
    q = torch.cat((t.Q, t.Qr), 2)
    at = t.index.clamp(0).long()
    chosen_k = k[at]
    s = wide(q @ chosen_k.transpose(1, 2)) * t.scale
    s = s.masked_fill((t.index < 0)[:, None], float("-inf"))
    return s.softmax(-1).to(t.C.dtype) @ chosen_k[..., :d["D"]]


# ---- minference: a query sees the first and some further columns (verticals) and some diagonals (slashes), as a mask of bits
# for each: here a causal row of one head sees column j if vertical[h, j], or slash[h, i - j]
SLASH = """tile 1
kernel vertical_slash<T: f16 | bf16>(Q: T[B, H, S, D], K: T[B, H, S, D], V: T[B, H, S, D], cols: i32[B, H, NV], slash: u8[B, H, S], vertical: u8[B, H, S], O: out T[B, H, S, D], scale: f32)
key bucket(S), D, NV
tune BM = 64 | 128, BN = 64 | 32, stages = 2 | 3
where BM % BN == 0
grid b < B, h < H, m < ceildiv(S, BM)
{
  shared   q: T[BM, D], k: T[BN, D], v: T[BN, D]
  fragment s: f32[BM, BN], p: T[BM, BN], o: f32[BM, D] = 0
  fragment top: f32[BM] = -1e30, total: f32[BM] = 0, fix: f32[BM]
  let c = scale * log2e

  q = Q[b, h, m*BM +: BM, :]
  # tiles in which a diagonal that is seen passes
  for n < ceildiv(min(S, (m + 1)*BM), BN) {
    let low = m*BM - n*BN - BN + 1
    let seen = max[x < BM + BN](low + x >= 0 ? i32(slash[b, h, low + x]) : i32(0))
    if seen != 0 {
      k = K[b, h, n*BN +: BN, :]
      v = V[b, h, n*BN +: BN, :]
      s = q @ k^T
      parallel i < BM, j < BN {
        let gap = m*BM + i - n*BN - j
        s[i, j] = gap >= 0 && slash[b, h, gap] != 0 ? s[i, j] * c : -inf
      }
      parallel i < BM {
        let most = max(top[i], max[j < BN](s[i, j]))
        fix[i] = exp2(top[i] - most)
        top[i] = most
      }
      parallel i < BM, j < BN { s[i, j] = exp2(s[i, j] - top[i]) }
      parallel i < BM { total[i] = total[i] * fix[i] + sum[j < BN](s[i, j]) }
      parallel i < BM, e < D { o[i, e] *= fix[i] }
      p = s
      o += p @ v
    }
  }
  # columns by number, where no slash has seen them yet
  pipelined n < ceildiv(NV, BN), stages {
    k = K[b, h, cols[b, h, n*BN +: BN], :]
    v = V[b, h, cols[b, h, n*BN +: BN], :]
    s = q @ k^T
    parallel i < BM, j < BN {
      let col = cols[b, h, n*BN + j]
      let gap = m*BM + i - col
      s[i, j] = n*BN + j < NV && gap >= 0 && slash[b, h, gap] == 0 ? s[i, j] * c : -inf
    }
    parallel i < BM {
      let most = max(top[i], max[j < BN](s[i, j]))
      fix[i] = exp2(top[i] - most)
      top[i] = most
    }
    parallel i < BM, j < BN { s[i, j] = exp2(s[i, j] - top[i]) }
    parallel i < BM { total[i] = total[i] * fix[i] + sum[j < BN](s[i, j]) }
    parallel i < BM, e < D { o[i, e] *= fix[i] }
    p = s
    o += p @ v
  }
  parallel i < BM, e < D { o[i, e] /= total[i] }
  O[b, h, m*BM +: BM, :] = o
}
""".replace(" vertical: u8[B, H, S],", "")


def fill_cols(s, t, d):
    return torch.rand(*s[:2], d["S"], device=DEV).topk(s[2], -1)[1].sort(-1)[0].to(torch.int32)


def fill_slash(s, t, d):
    x = torch.zeros(s, dtype=torch.uint8, device=DEV)
    x[..., :min(96, s[2])] = 1  # what is near
    for part in range(3):
        at = int(torch.randint(0, s[2], ()))
        x[..., at:at + 40] = 1
    return x


def vertical_slash_mask(t, d):
    at = torch.arange(d["S"], device=t.Q.device)
    gap = at[:, None] - at
    m = t.slash.bool()[:, :, gap.clamp(0)]
    cols = torch.zeros(d["B"], d["H"], d["S"], dtype=torch.bool, device=m.device).scatter_(2, t.cols.long(), True)
    return (m | cols[:, :, None]) & (gap >= 0)


def vertical_slash(t, d):
    return sdpa(t.Q, t.K, t.V, attn_mask=vertical_slash_mask(t, d), scale=t.scale)


def vertical_slash_flex(t, d):
    slash, key = t.slash, ("slash", t.slash.data_ptr())
    cols = None if key in MASKS else torch.zeros(d["B"], d["H"], d["S"], dtype=torch.bool, device=slash.device).scatter_(2, t.cols.long(), True)
    mask = block_mask(key, lambda b, h, q, k: (q >= k) & ((slash[b, h, (q - k).clamp(0)] != 0) | cols[b, h, k]),
                      d["B"], d["H"], d["S"], d["S"])
    return flex_attention()(t.Q, t.K, t.V, block_mask=mask, scale=t.scale)


# ---- the top k of a row of E numbers, k passes, with a softmax over the chosen ones (routing of experts)
TOPK = """tile 1
kernel topk_route<T: f32 | f16 | bf16>(X: T[N, E], W: out f32[N, k], at: out i32[N, k])
key bucket(N), E, k
tune rows = 4 | 8 | 16 | 32
grid n < ceildiv(N, rows)
{
  fragment x: f32[rows, E], w: f32[rows, k], place: i32[rows, k], here: i32[rows], most: f32[rows]
  x = X[n*rows +: rows, :]
  for r < k {
    parallel i < rows {
      here[i] = i32(argmax[e < E](x[i, e]))
      most[i] = max[e < E](x[i, e])
    }
    parallel i < rows, j < k {
      if j == r {
        w[i, j] = most[i]
        place[i, j] = here[i]
      }
    }
    parallel i < rows, e < E { x[i, e] = e == here[i] ? -inf : x[i, e] }
  }
  parallel i < rows, j < k { w[i, j] = exp(w[i, j] - max[l < k](w[i, l])) }
  parallel i < rows, j < k { w[i, j] = w[i, j] / sum[l < k](w[i, l]) }
  W[n*rows +: rows, :] = w
  at[n*rows +: rows, :] = place
}
"""


def topk_route(t, d):
    value, index = wide(t.X).topk(d["k"], -1)
    return value.softmax(-1), index.to(torch.int32)


# ---- the mean of each block of 64 keys, of sequences of any lengths (what block-sparse attention chooses by)
POOL = """tile 1
kernel mean_pool<T: f16 | bf16>(X: T[N, H, D], cu: i32[B1], Y: out T[B, C, H, D])
where B1 == B + 1
key bucket(N), H, D
tune heads = 1 | 2 | 4
grid b < B, c < C, h < ceildiv(H, heads)
{
  fragment x: f32[64, heads, D], y: f32[heads, D]
  let first = cu[b], size = cu[b + 1] - cu[b]
  let count = clamp(size - c*64, 0, 64)
  x = X[first + c*64 +: 64, h*heads +: heads, :] within first +: size
  parallel g < heads, d < D { y[g, d] = count > 0 ? sum[i < 64](x[i, g, d]) / count : 0 }
  Y[b, c, h*heads +: heads, :] = y
}
"""


def fill_cu(s, t, d):
    cuts = torch.randperm(d["N"] - 1)[:s[0] - 2].sort().values + 1
    t.host = [0, *cuts.tolist(), d["N"]]
    return torch.tensor(t.host, dtype=torch.int32, device=DEV)


def mean_pool(t, d):
    y = torch.zeros(d["B"], d["C"], d["H"], d["D"], dtype=t.X.dtype, device=t.X.device)
    for b, (lo, hi) in enumerate(zip(t.host, t.host[1:])):
        hi = min(hi, lo + 64 * d["C"])
        x = F.pad(wide(t.X[lo:hi]), (0, 0, 0, 0, 0, (lo - hi) % 64)).unflatten(0, (-1, 64)).sum(1)
        n = torch.full((x.shape[0],), 64, device=x.device)
        n[-1] = hi - lo - 64 * (x.shape[0] - 1)
        y[b, :x.shape[0]] = (x / n[:, None, None]).to(y.dtype)
    return y


CASES = [
    Case("nsa_selected", NSA, {"large": dict(B=1, S=4096, G=4, R=16, D=128, n=16), "odd": dict(B=1, S=2003, G=3, R=12, D=96, n=7),
                               "small": dict(B=1, S=200, G=2, R=4, D=24, n=3)}, nsa_selected, types=B16,
         fills={"scale": scaled, "blocks": fill_blocks}),
    Case("nsa_compressed", COMPRESSED, {"large": dict(B=1, S=8192, G=4, R=16, D=128, C=512), "odd": dict(B=1, S=2003, G=3, R=8, D=96, C=125),
                                        "small": dict(B=1, S=200, G=2, R=8, D=24, C=12)}, nsa_compressed, types=B16,
         fills={"scale": scaled}),
    Case("indexer", INDEXER, {"large": dict(S=2048, H=64, D=128, N=8192), "odd": dict(S=1001, H=13, D=96, N=3001),
                              "small": dict(S=40, H=3, D=32, N=130)}, indexer,
         fills={"W": lambda s, t, d: torch.randn(s, device=DEV), "ks": lambda s, t, d: torch.rand(s, device=DEV) + 0.5},
         tolerance=3e-3),
    Case("sparse_mla", SPARSE_MLA, {"large": dict(S=256, H=128, D=512, R=64, N=16384, topk=1024), "odd": dict(S=101, H=48, D=256, R=32, N=5003, topk=300),
                                    "small": dict(S=5, H=20, D=64, R=16, N=200, topk=70)}, sparse_mla, types=B16,
         fills={"index": chosen, "scale": lambda s, t, d: (d["D"] // 4 + d["R"]) ** -0.5}),
    Case("vertical_slash", SLASH, {"large": dict(B=1, H=16, S=8192, D=128, NV=512), "odd": dict(B=1, H=5, S=2003, D=80, NV=101),
                                   "small": dict(B=1, H=2, S=300, D=24, NV=20)}, vertical_slash, types=B16, compiled=False,
         fills={"scale": scaled, "cols": fill_cols, "slash": fill_slash}, peers={"flex": vertical_slash_flex}),
    Case("topk_route", TOPK, {"large": dict(N=65536, E=256, k=8), "odd": dict(N=9973, E=60, k=6),
                              "small": dict(N=50, E=40, k=3)}, topk_route, types={"T": "f32"},
         fills={"X": lambda s, t, d: torch.rand(s, device=DEV).argsort(-1) * (8.0 / s[1])}),
    Case("mean_pool", POOL, {"large": dict(N=65536, H=8, D=128, B1=9, B=8, C=1024), "odd": dict(N=9973, H=3, D=80, B1=6, B=5, C=156),
                             "small": dict(N=300, H=2, D=24, B1=3, B=2, C=5)}, mean_pool, types=B16, compiled=False, fills={"cu": fill_cu}),
]
