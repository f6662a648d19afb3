"""Attention of 8 bits and on caches of 4."""
import torch
import torch.nn.functional as F
from sets.shared.lowbit import DEVICE, low_first, nibbles, normal, randint, uniform
from unseen import Case


# --- sage attention: int8 scores, 16-bit values ------------------------------------------------------------------------
# scales of 128 queries and of 64 keys; `scale` of the softmax is in those of the queries
SAGE_BODY = """
grid s < ceildiv(Sq, BM), h < H, b < B
{
  shared   q: i8[BM, D], k: i8[BN, D], v: f16[BN, D]
  fragment z: i32[BM, BN], S: f32[BM, BN], P: f16[BM, BN], acc: f32[BM, D] = 0
  fragment m: f32[BM] = -1e30, l: f32[BM] = 0, alpha: f32[BM]

  let g    = h / (H / G)
  let past = Sk - Sq
  let last = causal ? min(Sk, (s + 1) * BM + past) : Sk

  q = Q[b, s*BM +: BM, h, :]
  pipelined n < ceildiv(last, BN), stages {
    k = K[b, n*BN +: BN, g, :]
    v = V[b, n*BN +: BN, g, :]
    z = q @ k^T
    let factor = QS[b, h, s*BM / 128] * KS[b, g, n*BN / 64] * log2e
    parallel i < BM, j < BN {
      let row = s*BM + i + past, col = n*BN + j
      S[i, j] = col < Sk && (!causal || col <= row) ? z[i, j] * factor : -inf
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
    parallel i < BM, e < D { acc[i, e] *= alpha[i] }
    acc += P @ v
  }
  parallel i < BM { l[i] = l[i] > 0 ? rcp(l[i]) : 0 }
  parallel i < BM, e < D { acc[i, e] *= l[i] }
  O[b, s*BM +: BM, h, :] = acc
}
"""

SAGE = """tile 1
kernel sage<const causal: bool>(Q: i8[B, Sq, H, D], QS: f32[B, H, SG], K: i8[B, Sk, G, D], KS: f32[B, G, KG],
                                V: f16[B, Sk, G, D], O: out f16[B, Sq, H, D])
where H % G == 0, SG == ceildiv(Sq, 128), KG == ceildiv(Sk, 64)
key  bucket(Sq), bucket(Sk), D
tune BM = 128 | 64, BN = 64 | 32, stages = 2 | 3 | 4, threads = 128 | 256
""" + SAGE_BODY

# all of it: means of keys are taken off (which changes nothing but the rounding), rows are quantised, then attention
SAGE_ALL = """tile 1
kernel means(K: f16[B, Sk, G, D], mean: out f32[B, G, D])
key  B, bucket(Sk), G, D
tune BS = 32 | 64 | 128
grid g < G, b < B
{
  fragment x: f32[BS, D], total: f32[D] = 0
  for s < ceildiv(Sk, BS) {
    x = K[b, s*BS +: BS, g, :]
    parallel d < D { total[d] += sum[i < BS](x[i, d]) }
  }
  parallel d < D { total[d] /= Sk }
  mean[b, g, :] = total
}

kernel quantise_keys(K: f16[B, Sk, G, D], mean: f32[B, G, D], Y: out i8[B, Sk, G, D], S: out f32[B, G, KG])
key  bucket(B), bucket(Sk), G, D
tune threads = 128 | 256
grid s < KG, g < G, b < B
{
  fragment x: f32[64, D]
  x = K[b, s*64 +: 64, g, :]
  parallel i < 64, d < D { x[i, d] = s*64 + i < Sk ? x[i, d] - mean[b, g, d] : 0 }
  let scale = max(max[i < 64, d < D](abs(x[i, d])), 1e-6) / 127
  parallel i < 64, d < D { x[i, d] = round(x[i, d] / scale) }
  Y[b, s*64 +: 64, g, :] = x
  parallel i < 1 { S[b, g, s] = scale }
}

kernel quantise_queries(Q: f16[B, Sq, H, D], Y: out i8[B, Sq, H, D], S: out f32[B, H, SG], scale: f32)
key  bucket(B), bucket(Sq), H, D
tune threads = 128 | 256
grid s < SG, h < H, b < B
{
  fragment x: f32[128, D]
  x = Q[b, s*128 +: 128, h, :]
  let factor = max(max[i < 128, d < D](abs(x[i, d])), 1e-6) / 127
  parallel i < 128, d < D { x[i, d] = round(x[i, d] / factor) }
  Y[b, s*128 +: 128, h, :] = x
  parallel i < 1 { S[b, h, s] = factor * scale }
}
""" + SAGE[6:] + """
program sage_all<const causal: bool>(Q: f16[B, Sq, H, D], K: f16[B, Sk, G, D], V: f16[B, Sk, G, D], O: out f16[B, Sq, H, D],
                                     scale: f32)
key bucket(Sq), bucket(Sk), D
{
  temp mean: f32[B, G, D], k8: i8[B, Sk, G, D], ks: f32[B, G, ceildiv(Sk, 64)]
  temp q8: i8[B, Sq, H, D], qs: f32[B, H, ceildiv(Sq, 128)]
  means(K, mean)
  quantise_keys(K, mean, k8, ks)
  quantise_queries(Q, q8, qs, scale)
  sage<causal = causal>(q8, qs, k8, ks, V, O)
}
"""


def heads(q, k, v, causal, scale):
    """exact attention, a head of one sequence at a time"""
    out = torch.empty_like(q)
    ratio = q.shape[2] // k.shape[2]
    for b in range(q.shape[0]):
        for h in range(q.shape[2]):
            s = q[b, :, h] @ k[b, :, h // ratio].T * scale
            if causal:
                n, m = s.shape
                s = s.masked_fill(torch.arange(m, device=s.device) > torch.arange(n, device=s.device)[:, None] + m - n, -torch.inf)
            out[b, :, h] = s.softmax(-1) @ v[b, :, h // ratio]
    return out


def sage_reference(causal):
    def reference(t, d):
        q = t.Q.double() * t.QS.double().repeat_interleave(128, 2)[:, :, :d["Sq"]].transpose(1, 2)[..., None]
        k = t.K.double() * t.KS.double().repeat_interleave(64, 2)[:, :, :d["Sk"]].transpose(1, 2)[..., None]
        return heads(q, k, t.V, causal, 1)
    return reference


def sdpa(causal):
    def attention(t, d):
        if not hasattr(t, "q16"):
            t.q16 = torch.randn(d["B"], d["H"], d["Sq"], d["D"], device=DEVICE, dtype=torch.float16)
            t.k16, t.v16 = (torch.randn(d["B"], d["G"], d["Sk"], d["D"], device=DEVICE, dtype=torch.float16) for _ in "kv")
        return F.scaled_dot_product_attention(t.q16, t.k16, t.v16, is_causal=causal, enable_gqa=d["G"] != d["H"])
    return attention


def sage_sizes(causal):
    odd = dict(B=1, Sq=3001, H=6, D=128, SG=24, Sk=3001 if causal else 2777, G=3, KG=47 if causal else 44)
    return {"large": dict(B=2, Sq=8192, H=16, D=128, SG=64, Sk=8192, G=16, KG=128),
            "d64": dict(B=4, Sq=4096, H=24, D=64, SG=32, Sk=4096, G=24, KG=64), "odd": odd,
            "small": dict(B=1, Sq=37, H=2, D=32, SG=1, Sk=77, G=1, KG=2)}


sage_fills = {"Q": randint(-127, 128, torch.int8), "K": randint(-127, 128, torch.int8), "V": normal(torch.float16),
              "QS": uniform(1e-3, 3e-3), "KS": uniform(0.01, 0.03)}
all_sizes = {label: {name: v for name, v in one.items() if name not in ("SG", "KG")} for label, one in sage_sizes(True).items()}

# --- decode attention over a cache of 4 bits ---------------------------------------------------------------------------
# a scale and an offset for each token and head: x = q * scale + offset
KV4_INNER = """
    parallel j < BN, d < D {
      k[j, d] = kq[j, d] * KF[ROW, g, 0] + KF[ROW, g, 1]
      v[j, d] = vq[j, d] * VF[ROW, g, 0] + VF[ROW, g, 1]
    }
    s = q @ k^T
    parallel i < 16, j < BN { s[i, j] = n*BN + j < length ? s[i, j] : -inf }
    parallel i < 16 {
      let most = max(m[i], max[j < BN](s[i, j]))
      alpha[i] = exp2((m[i] - most) * c)
      m[i] = most
    }
    parallel i < 16, j < BN { s[i, j] = exp2(s[i, j] * c - m[i] * c) }
    parallel i < 16 { l[i] = l[i] * alpha[i] + sum[j < BN](s[i, j]) }
    parallel i < 16, d < D { acc[i, d] *= alpha[i] }
    e = s
    acc += e @ v
  }
  parallel i < 16 {
    m[i] = l[i] > 0 ? m[i] * c + log2(l[i]) : -inf
    l[i] = l[i] > 0 ? rcp(l[i]) : 0
  }
  parallel i < 16, d < D { acc[i, d] *= l[i] }
  part[b, g*heads +: 16, p, :] within g * heads +: heads = acc
  lse[b, g*heads +: 16, p] within g * heads +: heads = m
}
"""

KV4_JOIN = """
kernel join(part: f32[B, H, splits, D], lse: f32[B, H, splits], O: out f16[B, H, D])
key  bucket(B), bucket(splits), D
tune P = 16 | 64
grid h < H, b < B
{
  fragment x: f32[P, D], w: f32[P], acc: f32[D] = 0
  fragment m: f32[1] = -inf, l: f32[1] = 0, alpha: f32[1]
  for n < ceildiv(splits, P) {
    x = part[b, h, n*P +: P, :]
    w = lse[b, h, n*P +: P] pad -inf
    parallel i < 1 {
      let most = max(m[i], max[p < P](w[p]), -1e30)
      alpha[i] = exp2(m[i] - most)
      m[i] = most
    }
    parallel p < P { w[p] = exp2(w[p] - m[0]) }
    parallel i < 1 { l[i] = l[i] * alpha[i] + sum[p < P](w[p]) }
    parallel d < D { acc[d] = acc[d] * alpha[0] + sum[p < P](w[p] * x[p, d]) }
  }
  parallel d < D { acc[d] = l[0] > 0 ? acc[d] / l[0] : 0 }
  O[b, h, :] = acc
}
"""

KV4_TILES = """
  fragment k: f16[BN, D], v: f16[BN, D], s: f32[16, BN], e: f16[16, BN], acc: f32[16, D] = 0
  fragment m: f32[16] = -1e30, l: f32[16] = 0, alpha: f32[16]
  let heads = H / G
  let c     = scale * log2e
"""

KV4 = """tile 1
kernel part4(Q: f16[B, H, D], K: u4[B, S, G, D], KF: f16[B, S, G, 2], V: u4[B, S, G, D], VF: f16[B, S, G, 2],
             part: out f32[B, H, splits, D], lse: out f32[B, H, splits], scale: f32)
where H % G == 0, H / G <= 16
key  bucket(B), bucket(S), bucket(splits), D
tune BN = 64 | 32 | 128, stages = 2 | 3 | 4
grid p < splits, g < G, b < B
{
  shared   q: f16[16, D], kq: u4[BN, D], vq: u4[BN, D]""" + KV4_TILES + """
  let steps = ceildiv(S, BN)
  let share = ceildiv(ceildiv(S, 128), splits) * (128 / BN)
  let length = S
  q = Q[b, g*heads +: 16, :] within g * heads +: heads
  pipelined n in p*share .. min(steps, (p + 1)*share), stages {
    kq = K[b, n*BN +: BN, g, :]
    vq = V[b, n*BN +: BN, g, :]""" + KV4_INNER.replace("ROW", "b, n*BN + j") + KV4_JOIN + """
program kv4(Q: f16[B, H, D], K: u4[B, S, G, D], KF: f16[B, S, G, 2], V: u4[B, S, G, D], VF: f16[B, S, G, 2], O: out f16[B, H, D],
            scale: f32)
key  bucket(B), bucket(S), G, D
tune splits = 8 | 1 | 2 | 4 | 16 | 32 | 64
{
  temp part: f32[B, H, splits, D], lse: f32[B, H, splits]
  part4(Q, K, KF, V, VF, part, lse, scale)
  join(part, lse, O)
}
"""

# in pages of 64 tokens, of sequences of their own lengths
KV4_PAGED = """tile 1
kernel paged4(Q: f16[B, H, D], K: u4[pages, 64, G, D], KF: f16[pages, 64, G, 2], V: u4[pages, 64, G, D],
              VF: f16[pages, 64, G, 2], place: i32[B, P], length_of: i32[B],
              part: out f32[B, H, splits, D], lse: out f32[B, H, splits], scale: f32)
where H % G == 0, H / G <= 16
key  bucket(B), bucket(P), bucket(splits), D
tune stages = 2 | 3 | 4, threads = 128 | 256
grid p < splits, g < G, b < B
{
  shared   q: f16[16, D], kq: u4[64, D], vq: u4[64, D]""" + KV4_TILES.replace("BN", "64") + """
  let length = length_of[b]
  let steps = ceildiv(length, 64)
  let share = ceildiv(steps, splits)
  q = Q[b, g*heads +: 16, :] within g * heads +: heads
  pipelined n in p*share .. min(steps, (p + 1)*share), stages {
    let page = place[b, n]
    kq = K[page, :, g, :]
    vq = V[page, :, g, :]""" + KV4_INNER.replace("ROW", "page, j").replace("BN", "64") + KV4_JOIN + """
program kv4_paged(Q: f16[B, H, D], K: u4[pages, 64, G, D], KF: f16[pages, 64, G, 2], V: u4[pages, 64, G, D],
                  VF: f16[pages, 64, G, 2], place: i32[B, P], length_of: i32[B], O: out f16[B, H, D], scale: f32)
key  bucket(B), bucket(P), G, D
tune splits = 8 | 1 | 2 | 4 | 16 | 32
{
  temp part: f32[B, H, splits, D], lse: f32[B, H, splits]
  paged4(Q, K, KF, V, VF, place, length_of, part, lse, scale)
  join(part, lse, O)
}
"""


def decode16(t, d):
    """Over a cache of 16 bits"""
    if not hasattr(t, "k16"):
        s = d.get("S", 64 * d.get("P", 0))
        t.k16, t.v16 = (torch.randn(d["B"], d["G"], s, d["D"], device=DEVICE, dtype=torch.float16) for _ in "kv")
    return F.scaled_dot_product_attention(t.Q[:, :, None], t.k16, t.v16, enable_gqa=True)


def kv4_reference(t, d):
    out = torch.empty_like(t.Q)
    for b in range(d["B"]):
        if hasattr(t, "place"):
            n = int(t.length_of[b])
            at = t.place[b, :-(-n // 64)].long()
            k, v = ((low_first(x[at]) * f[at][..., :1] + f[at][..., 1:]).flatten(0, 1)[:n] for x, f in ((t.K, t.KF), (t.V, t.VF)))
        else:
            k, v = (low_first(x[b]) * f[b][..., :1] + f[b][..., 1:] for x, f in ((t.K, t.KF), (t.V, t.VF)))
        q = t.Q[b].view(d["G"], -1, d["D"])
        p = (torch.einsum("ghd,sgd->ghs", q, k) * float(t.scale)).softmax(-1)
        out[b] = torch.einsum("ghs,sgd->ghd", p, v).reshape(d["H"], d["D"])
    return out


def kv_factors(shape, t, d):  # offsets of about -7.5 scales
    s = torch.rand(shape[:-1], device=DEVICE) * 0.2 + 0.1
    return torch.stack((s, -7.5 * s), -1).half()


def places(shape, t, d):
    return torch.randperm(d["pages"], device=DEVICE)[:shape[0] * shape[1]].view(shape).to(torch.int32)


def lengths(shape, t, d):
    return torch.randint(d["P"] * 32, d["P"] * 64 + 1, shape, device=DEVICE, dtype=torch.int32)


kv4_fills = {"Q": normal(torch.float16), "K": nibbles, "KF": kv_factors, "V": nibbles, "VF": kv_factors,
             "scale": lambda s, t, d: d["D"] ** -0.5, "place": places, "length_of": lengths}

CASES = [
    Case("sage", SAGE, sage_sizes(False), sdpa(False), consts={"causal": False}, fills=sage_fills, reference=sage_reference(False),
         compiled=False, tolerance=1e-2),
    Case("sage_causal", SAGE, sage_sizes(True), sdpa(True), consts={"causal": True}, fills=sage_fills, reference=sage_reference(True),
         compiled=False, tolerance=1e-2),
    Case("sage_all", SAGE_ALL, all_sizes, sdpa(True), kernel="sage_all", consts={"causal": True}, compiled=False, tolerance=3e-2,
         fills={"Q": normal(torch.float16), "K": lambda s, t, d: (torch.randn(s, device=DEVICE) + 2 * torch.randn(s[-1], device=DEVICE)).half(),
                "V": normal(torch.float16), "scale": lambda s, t, d: d["D"] ** -0.5},
         reference=lambda t, d: heads(t.Q, t.K, t.V, True, d["D"] ** -0.5)),
    Case("kv4", KV4, {"large": dict(B=16, H=32, D=128, S=16384, G=8), "batch": dict(B=128, H=64, D=128, S=2048, G=8),
                      "odd": dict(B=7, H=30, D=128, S=5003, G=6), "small": dict(B=2, H=6, D=32, S=149, G=2)},
         decode16, kernel="kv4", fills=kv4_fills, reference=kv4_reference, compiled=False, tolerance=1e-2),
    Case("kv4_paged", KV4_PAGED, {"large": dict(B=32, H=32, D=128, pages=4400, G=8, P=128), "odd": dict(B=7, H=30, D=128, pages=601, G=6, P=79),
                                  "small": dict(B=2, H=6, D=32, pages=9, G=2, P=3)},
         decode16, kernel="kv4_paged", fills=kv4_fills, reference=kv4_reference, compiled=False, tolerance=1e-2),
]
