"""Attention in layouts of several libraries: two loops, packed, of any lengths, in windows, with a prefix."""
import torch
from sets.shared.everyday import B16, BF, DEV, block_mask, flex_attention, grouped, scaled, sdpa, swap, wide
from unseen import Case

# ---- [B, H, S, D], causal, two loops: tiles below the diagonal and those on it; the heaviest rows go first; O and LSE
SPLIT = """tile 1
kernel flash_bhsd<T: f16 | bf16>(q: T[B, H, S, D], k: T[B, H, S, D], v: T[B, H, S, D],
                                 o: out T[B, H, S, D], lse: out f32[B, H, S], scale: f32)
key bucket(B*H), bucket(S), D
tune QB = 128 | 64, KB = 64 | 128, depth = 2 | 3
grid b < B, h < H, late < ceildiv(S, QB)
{
  shared   qs: T[QB, D], ks: T[KB, D], vs: T[KB, D]
  fragment sc: f32[QB, KB], pr: T[QB, KB], res: f32[QB, D] = 0
  fragment mx: f32[QB] = -1e30, den: f32[QB] = 0, corr: f32[QB]

  let t = ceildiv(S, QB) - 1 - late
  let full = t*QB / KB
  let last = ceildiv(min(S, (t + 1)*QB), KB)
  let c = scale * log2e

  qs = q[b, h, t*QB +: QB, :]
  pipelined j < full, depth {
    ks = k[b, h, j*KB +: KB, :]
    vs = v[b, h, j*KB +: KB, :]
    sc = qs @ ks^T
    parallel x < QB {
      let old = mx[x]
      mx[x] = max(old, max[y < KB](sc[x, y]))
      corr[x] = exp2((old - mx[x]) * c)
    }
    parallel x < QB, y < KB { sc[x, y] = exp2((sc[x, y] - mx[x]) * c) }
    parallel x < QB { den[x] = den[x] * corr[x] + sum[y < KB](sc[x, y]) }
    parallel x < QB, e < D { res[x, e] = res[x, e] * corr[x] }
    pr = sc
    res += pr @ vs
  }
  pipelined j in full .. last, depth {
    ks = k[b, h, j*KB +: KB, :]
    vs = v[b, h, j*KB +: KB, :]
    sc = qs @ ks^T
    parallel x < QB, y < KB {
      if j*KB + y > t*QB + x { sc[x, y] = -inf }
    }
    parallel x < QB {
      let old = mx[x]
      mx[x] = max(old, max[y < KB](sc[x, y]))
      corr[x] = exp2((old - mx[x]) * c)
    }
    parallel x < QB, y < KB { sc[x, y] = exp2((sc[x, y] - mx[x]) * c) }
    parallel x < QB { den[x] = den[x] * corr[x] + sum[y < KB](sc[x, y]) }
    parallel x < QB, e < D { res[x, e] = res[x, e] * corr[x] }
    pr = sc
    res += pr @ vs
  }
  parallel x < QB, e < D { res[x, e] = res[x, e] / den[x] }
  parallel x < QB { mx[x] = mx[x] * scale + log(den[x]) }
  o[b, h, t*QB +: QB, :] = res
  lse[b, h, t*QB +: QB] = mx
}
"""


def flash_bhsd(t, d):
    s = wide(t.q @ t.k.transpose(2, 3)) * t.scale
    s = s.masked_fill(torch.ones(d["S"], d["S"], dtype=torch.bool, device=s.device).triu(1), float("-inf"))
    return s.softmax(-1).to(t.v.dtype) @ t.v, s.logsumexp(-1)


def library_bhsd(t, d):
    if t.q.is_cuda and t.q.dtype == BF:
        return torch.ops.aten._scaled_dot_product_flash_attention(t.q, t.k, t.v, 0.0, True, scale=t.scale)[:2]
    return flash_bhsd(t, d)


# ---- packed q, k, v; both directions; keys behind a sequence's length do not count
PACKED = """tile 1
kernel encoder<T: f16 | bf16>(qkv: T[B, S, 3, H, D], len: i32[B], out_: out T[B, S, H, D])
key bucket(S), D
tune auto BM, BN, stages
grid b < B, h < H, m < ceildiv(S, BM)
{
  shared   Q: T[BM, D], K: T[BN, D], V: T[BN, D]
  fragment S_: f32[BM, BN], P: T[BM, BN], O: f32[BM, D] = 0, top: f32[BM] = -1e30, total: f32[BM] = 0, was: f32[BM]
  let n = len[b]
  let f = log2e * rsqrt(D)

  Q = qkv[b, m*BM +: BM, 0, h, :]
  pipelined j < ceildiv(n, BN), stages {
    K = qkv[b, j*BN +: BN, 1, h, :]
    S_ = Q @ K^T
    parallel r < BM, c < BN { S_[r, c] = j*BN + c < n ? S_[r, c] * f : -inf }
    parallel r < BM {
      was[r] = top[r]
      top[r] = max(top[r], max[c < BN](S_[r, c]))
    }
    parallel r < BM, c < BN { S_[r, c] = exp2(S_[r, c] - top[r]) }
    parallel r < BM { total[r] = total[r] * exp2(was[r] - top[r]) + sum[c < BN](S_[r, c]) }
    parallel r < BM, e < D { O[r, e] *= exp2(was[r] - top[r]) }
    P = S_
    V = qkv[b, j*BN +: BN, 2, h, :]
    O += P @ V
  }
  parallel r < BM, e < D { O[r, e] /= total[r] }
  out_[b, m*BM +: BM, h, :] = O
}
"""


def encoder(t, d):
    q, k, v = t.qkv.permute(2, 0, 3, 1, 4)
    there = torch.arange(d["S"], device=q.device) < t.len[:, None]
    return sdpa(q, k, v, attn_mask=there[:, None, None].expand(-1, 1, d["S"], -1)).transpose(1, 2)


# ---- sequences of any lengths behind each other, causal, grouped heads
VARLEN = """tile 1
kernel varlen<T: f16 | bf16>(q: T[N, H, D], k: T[N, G, D], v: T[N, G, D], cu: i32[B1], y: out T[N, H, D],
                             longest: i32, scale: f32)
where H % G == 0
key bucket(N), D
tune BM = 128 | 64, BN = 128 | 64 | 32, stages = 2 | 3
grid seq < B1 - 1, h < H, s < ceildiv(longest, BM)
{
  shared   qt: T[BM, D], kt: T[BN, D], vt: T[BN, D]
  fragment s_: f32[BM, BN], p: T[BM, BN], acc: f32[BM, D] = 0
  fragment m: f32[BM] = -1e30, l: f32[BM] = 0, a: f32[BM]
  let lo = cu[seq], n = cu[seq + 1] - cu[seq]
  let g = h * G / H, c = scale * log2e

  if s*BM < n {
    qt = q[lo + s*BM +: BM, h, :] within lo +: n
    pipelined j < ceildiv(min(n, s*BM + BM), BN), stages {
      kt = k[lo + j*BN +: BN, g, :] within lo +: n
      vt = v[lo + j*BN +: BN, g, :] within lo +: n
      s_ = qt @ kt^T
      parallel x < BM, z < BN {
        let back = s*BM + x - (j*BN + z)
        s_[x, z] = back >= 0 ? s_[x, z] : -inf
      }
      parallel x < BM {
        let most = max(m[x], max[z < BN](s_[x, z]))
        a[x] = exp2((m[x] - most) * c)
        m[x] = most
      }
      parallel x < BM, z < BN { s_[x, z] = exp2(fma(s_[x, z], c, -m[x] * c)) }
      parallel x < BM { l[x] = fma(l[x], a[x], sum[z < BN](s_[x, z])) }
      p = s_
      parallel x < BM, d < D { acc[x, d] *= a[x] }
      acc += p @ vt
    }
    parallel x < BM, d < D { acc[x, d] *= rcp(l[x]) }
    y[lo + s*BM +: BM, h, :] within lo +: n = acc
  }
}
"""


def cu_lengths(shape, t, d):
    cuts = torch.randperm(d["N"] - 1)[:shape[0] - 2].sort().values + 1
    t.host = [0, *cuts.tolist(), d["N"]]
    return torch.tensor(t.host, dtype=torch.int32, device=DEV)


def varlen(t, d):
    parts = []
    for lo, hi in zip(t.host, t.host[1:]):
        q, k, v = (x[lo:hi].transpose(0, 1)[None] for x in (t.q, t.k, t.v))
        parts.append(sdpa(q, grouped(k, d["H"]), grouped(v, d["H"]), is_causal=True, scale=t.scale)[0].transpose(0, 1))
    return torch.cat(parts)


def varlen_flash(t, d):
    return torch.ops.aten._flash_attention_forward(t.q, t.k, t.v, t.cu, t.cu, t.longest, t.longest, 0.0, True, False,
                                                   scale=t.scale)[0]


# ---- causal, a sliding window, grouped heads: a block has one key head and all query heads of it, as rows (position, head)
SLIDE = """tile 1
kernel sliding<T: f16 | bf16, const window: i64>(Q: T[B, S, G, R, D], K: T[B, S, G, D], V: T[B, S, G, D], O: out T[B, S, G, R, D], scale: f32)
key bucket(S), R, D
tune BP = 128 | 64, BN = 64 | 128, stages = 2 | 3
grid b < B, g < G, r < R, x < ceildiv(S, BP)
{
  shared   q: T[BP, D], k: T[BN, D], v: T[BN, D]
  fragment e: f32[BP, BN], p: T[BP, BN], o: f32[BP, D] = 0, hi: f32[BP] = -1e30, z: f32[BP] = 0, f: f32[BP]
  let from = max(0, x*BP - window + 1) / BN
  let upto = ceildiv(min(S, x*BP + BP), BN)

  q = Q[b, x*BP +: BP, g, r, :]
  pipelined n in from .. upto, stages {
    k = K[b, n*BN +: BN, g, :]
    v = V[b, n*BN +: BN, g, :]
    e = q @ k^T
    parallel i < BP, j < BN {
      let gap = x*BP + i - n*BN - j
      let in_sight = gap >= 0 && gap < window
      e[i, j] = select(in_sight, e[i, j] * scale, -inf)
    }
    parallel i < BP {
      let next = max(hi[i], max[j < BN](e[i, j]))
      f[i] = exp(hi[i] - next)
      hi[i] = next
    }
    parallel i < BP, j < BN { e[i, j] = exp(e[i, j] - hi[i]) }
    parallel i < BP { z[i] = z[i] * f[i] + sum[j < BN](e[i, j]) }
    parallel i < BP, d < D { o[i, d] *= f[i] }
    p = e
    o += p @ v
  }
  parallel i < BP, d < D { o[i, d] = o[i, d] / z[i] }
  O[b, x*BP +: BP, g, r, :] = o
}
"""


def gap_mask(window):
    return lambda b, h, q, k: (q >= k) & (q - k < window)


def sliding(t, d):
    at = torch.arange(d["S"], device=t.Q.device)
    mask = gap_mask(d["window"])(0, 0, at[:, None], at)
    q, (k, v) = t.Q.flatten(2, 3).transpose(1, 2), swap(t.K, t.V)
    h = q.shape[1]
    return sdpa(q, grouped(k, h), grouped(v, h), attn_mask=mask, scale=t.scale).transpose(1, 2).unflatten(2, (d["G"], -1))


def sliding_flash(t, d):
    return torch.ops.aten._flash_attention_forward(
        t.Q.flatten(2, 3), t.K, t.V, None, None, d["S"], d["S"], 0.0, True, False, scale=t.scale,
        window_size_left=d["window"] - 1, window_size_right=0)[0]


# ---- the first `prefix` positions of a sequence see each other, the others what is before them
PREFIX = """tile 1
kernel prefix_lm<T: f16 | bf16>(Q: T[B, H, S, D], K: T[B, H, S, D], V: T[B, H, S, D], prefix: i32[B], O: out T[B, H, S, D], scale: f32)
key bucket(S), D
tune BM = 128 | 64, BN = 64 | 128 | 32, stages = 2 | 3
grid m < ceildiv(S, BM), b < B, h < H
{
  shared   q: T[BM, D], k: T[BN, D], v: T[BN, D]
  fragment s: f32[BM, BN], p: T[BM, BN], o: f32[BM, D] = 0, row_max: f32[BM] = -1e30, row_sum: f32[BM] = 0, fix: f32[BM]
  let pre = prefix[b]
  let end = min(S, max(pre, (m + 1) * BM))

  q = Q[b, h, m*BM +: BM, :]
  pipelined n < ceildiv(end, BN), stages {
    k = K[b, h, n*BN +: BN, :]
    v = V[b, h, n*BN +: BN, :]
    s = q @ k^T
    parallel i < BM, j < BN {
      let row = m*BM + i, col = n*BN + j
      s[i, j] = col < pre || col <= row ? s[i, j] * (scale * log2e) : -inf
    }
    parallel i < BM { fix[i] = row_max[i] }
    parallel i < BM { row_max[i] = max(row_max[i], max[j < BN](s[i, j])) }
    parallel i < BM { fix[i] = exp2(fix[i] - row_max[i]) }
    parallel i < BM, j < BN { s[i, j] = exp2(s[i, j] - row_max[i]) }
    parallel i < BM { row_sum[i] *= fix[i] }
    parallel i < BM { row_sum[i] += sum[j < BN](s[i, j]) }
    parallel i < BM, d < D { o[i, d] *= fix[i] }
    p = s
    o += p @ v
  }
  parallel i < BM, d < D { o[i, d] /= row_sum[i] }
  O[b, h, m*BM +: BM, :] = o
}
"""


def prefix_lm(t, d):
    at = torch.arange(d["S"], device=t.Q.device)
    mask = (at <= at[:, None]) | (at < t.prefix[:, None, None])
    return sdpa(t.Q, t.K, t.V, attn_mask=mask[:, None], scale=t.scale)


def prefix_flex(t, d):
    prefix = t.prefix
    mask = block_mask(("prefix", prefix.data_ptr()), lambda b, h, q, k: (k <= q) | (k < prefix[b]), d["B"], None, d["S"], d["S"])
    return flex_attention()(t.Q, t.K, t.V, block_mask=mask, scale=t.scale)


def windowed(d, w):
    return {**d, "window": w}


CASES = [
    Case("flash_bhsd", SPLIT, {"large": dict(B=4, H=16, S=4096, D=128), "odd": dict(B=3, H=7, S=1511, D=80),
                               "small": dict(B=1, H=2, S=150, D=24)}, flash_bhsd, types=B16, fills={"scale": scaled},
         peers={"library": library_bhsd}),
    Case("encoder", PACKED, {"large": dict(B=16, S=1024, H=16, D=64), "odd": dict(B=5, S=733, H=11, D=96),
                             "small": dict(B=2, S=77, H=2, D=24)}, encoder, types=B16, fills={
                                 "len": lambda s, t, d: torch.randint(d["S"] // 2, d["S"] + 1, s, device=DEV).to(torch.int32)}),
    Case("varlen", VARLEN, {"large": dict(N=16384, H=32, G=8, D=128, B1=17), "odd": dict(N=5003, H=12, G=4, D=96, B1=8),
                            "small": dict(N=190, H=4, G=2, D=16, B1=4)}, varlen, types=B16, compiled=False, fills={
                                "cu": cu_lengths, "scale": scaled,
                                "longest": lambda s, t, d: max(b - a for a, b in zip(t.host, t.host[1:])) if t else d["N"] // 4},
         peers={"flash": varlen_flash}),
    Case("sliding", SLIDE, {"large": dict(B=2, S=8192, G=4, R=4, D=128), "odd": dict(B=1, S=3001, G=3, R=5, D=64),
                            "small": dict(B=1, S=130, G=2, R=3, D=16)},
         lambda t, d: sliding(t, windowed(d, 700)), consts={"window": 700}, types=B16, fills={"scale": scaled},
         peers={"flash": lambda t, d: sliding_flash(t, windowed(d, 700))}),
    Case("prefix_lm", PREFIX, {"large": dict(B=4, H=16, S=4096, D=64), "odd": dict(B=3, H=5, S=1999, D=96),
                               "small": dict(B=2, H=2, S=140, D=16)}, prefix_lm, types=B16, fills={
                                   "scale": scaled, "prefix": lambda s, t, d: torch.randint(0, d["S"] // 2, s, device=DEV).to(torch.int32)},
         peers={"flex": prefix_flex}),
]
