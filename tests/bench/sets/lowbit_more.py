"""Products and attention of few bits, beside what torch has for them: integers with zero points and scales by blocks,
popcount, int8 attention, caches of 4 bits, grouped fp8, quantising, 2:4 sparse weights."""
import sys

import torch
import torch.nn.functional as F
from unseen import Case

DEVICE = "cpu" if "--check" in sys.argv or not torch.cuda.is_available() else "cuda"


def randint(low, high, dtype):
    return lambda shape, t, d: torch.randint(low, high, shape, device=DEVICE, dtype=dtype)


def words(shape, t, d):
    return torch.randint(-2**31, 2**31, shape, device=DEVICE, dtype=torch.int64).to(torch.int32)


def nibbles(shape, t, d):
    return torch.randint(0, 256, (*shape[:-1], (shape[-1] + 1) // 2), device=DEVICE, dtype=torch.uint8)


def uniform(low, high, dtype=torch.float32):
    return lambda shape, t, d: (torch.rand(shape, device=DEVICE) * (high - low) + low).to(dtype)


def normal(dtype):
    return lambda shape, t, d: torch.randn(shape, device=DEVICE).to(dtype)


def low_first(w):
    return torch.stack((w & 15, w >> 4), -1).flatten(-2)


def plain(t, d, dtype=torch.bfloat16):
    if not hasattr(t, "plain"):
        t.plain = torch.randn(d["N"], d["K"], device=DEVICE).to(dtype)
    return t.plain


int8 = randint(-128, 128, torch.int8)

# --- w8a8 with zero points of both sides -------------------------------------------------------------------------------
# the sums of the weights' rows are known, those of the activations are taken on the way
W8A8 = """tile 1
kernel w8a8_zeros(X: i8[M, K], A: f32[M], ZA: i32[M], W: i8[N, K], S: f32[N], ZW: i32[N], SW: i32[N], Y: out bf16[M, N])
key bucket(M), N, K
where BM * BN <= 256 * 128 && (BM <= 64 || BN >= 128)
tune BM = 16 | 64 | 128 | 256, BN = 64 | 128 | 256, BK = 128, stages = 3 | 4 | 5
grid m < ceildiv(M, BM), n < ceildiv(N, BN)
{
  shared   x: i8[BM, BK], w: i8[BN, BK]
  fragment c: i32[BM, BN] = 0, sx: i32[BM] = 0, y: f32[BM, BN]
  pipelined k < ceildiv(K, BK), stages {
    x = X[m*BM +: BM, k*BK +: BK]
    w = W[n*BN +: BN, k*BK +: BK]
    c += x @ w^T
    parallel i < BM { sx[i] += sum[j < BK](i32(x[i, j])) }
  }
  parallel i < BM, j < BN {
    let row = m*BM + i, col = n*BN + j
    let v = c[i, j] - ZA[row] * SW[col] - ZW[col] * sx[i] + i32(K) * ZA[row] * ZW[col]
    y[i, j] = v * (A[row] * S[col])
  }
  Y[m*BM +: BM, n*BN +: BN] = y
}
"""
# the quantiser gave the sums of both
W8A8_GIVEN = """tile 1
kernel w8a8_given(X: i8[M, K], A: f32[M], ZA: i32[M], SX: i32[M], W: i8[N, K], S: f32[N], ZW: i32[N], SW: i32[N],
                  bias: f32[N], Y: out bf16[M, N])
key bucket(M), N, K
where BM <= 256, BM * BN <= 256 * 128
tune auto BM, BN, BK, stages
grid m < ceildiv(M, BM), n < ceildiv(N, BN)
{
  shared   x: i8[BM, BK], w: i8[BN, BK]
  fragment c: i32[BM, BN] = 0, y: f32[BM, BN]
  pipelined k < ceildiv(K, BK), stages {
    x = X[m*BM +: BM, k*BK +: BK]
    w = W[n*BN +: BN, k*BK +: BK]
    c += x @ w^T
  }
  parallel i < BM, j < BN {
    let row = m*BM + i, col = n*BN + j
    let v = c[i, j] - ZA[row] * SW[col] - ZW[col] * SX[row] + i32(K) * ZA[row] * ZW[col]
    y[i, j] = v * (A[row] * S[col]) + bias[col]
  }
  Y[m*BM +: BM, n*BN +: BN] = y
}
"""


def w8a8(t, d):
    c = torch._int_mm(t.X, t.W.T)
    sx = t.SX if hasattr(t, "SX") else t.X.sum(1, dtype=torch.int32)
    v = c - t.ZA[:, None] * t.SW - t.ZW * sx[:, None] + d["K"] * t.ZA[:, None] * t.ZW
    y = v.float() * (t.A[:, None] * t.S)
    return (y + t.bias if hasattr(t, "bias") else y).to(torch.bfloat16)


def w8a8_reference(t, d):
    x = (t.X.double() - t.ZA[:, None]) * t.A.double()[:, None]
    w = (t.W.double() - t.ZW[:, None]) * t.S.double()[:, None]
    if hasattr(t, "SX"):  # the sums that were given are those of the inputs
        return x @ w.T + t.bias.double()
    return x @ w.T


def product16(t, d):
    if not hasattr(t, "x16"):
        t.x16 = t.X.to(torch.bfloat16)
    return t.x16 @ plain(t, d).T


w8a8_fills = {"X": int8, "A": uniform(1e-3, 1e-2), "ZA": randint(-20, 21, torch.int32), "W": int8, "S": uniform(1e-3, 1e-2),
              "ZW": randint(-20, 21, torch.int32), "SW": lambda s, t, d: t.W.sum(1, dtype=torch.int32),
              "SX": lambda s, t, d: t.X.sum(1, dtype=torch.int32)}
linear = {"decode": dict(M=24, N=28672, K=8192), "large": dict(M=256, N=28672, K=8192), "prefill": dict(M=4096, N=8192, K=8192),
          "odd": dict(M=777, N=4104, K=3016), "small": dict(M=18, N=24, K=200)}

# --- int8 by blocks of 128 on both sides -------------------------------------------------------------------------------
BLOCKS8 = """tile 1
kernel blocks8(X: i8[M, K], A: f32[M, KG], W: i8[N, K], S: f32[NG, KG], Y: out bf16[M, N])
where KG == ceildiv(K, 128), NG == ceildiv(N, 128)
key bucket(M), N, K
tune BM = 16 | 64 | 128, BN = 64 | 128, BK = 128, stages = 3 | 4 | 5, threads = 128 | 256
grid m < ceildiv(M, BM), n < ceildiv(N, BN)
{
  shared   x: i8[BM, BK], w: i8[BN, BK]
  fragment s: i32[BM, BN], c: f32[BM, BN] = 0
  pipelined k < KG, stages {
    x = X[m*BM +: BM, k*BK +: BK]
    w = W[n*BN +: BN, k*BK +: BK]
    s = x @ w^T
    let b = S[n*BN / 128, k]
    parallel i < BM, j < BN { c[i, j] += s[i, j] * (A[m*BM + i, k] * b) }
  }
  Y[m*BM +: BM, n*BN +: BN] = c
}
"""


def blocks8_reference(t, d):
    x = t.X.double() * t.A.double().repeat_interleave(128, 1)[:, :d["K"]]
    s = t.S.double().repeat_interleave(128, 0)[:d["N"]].repeat_interleave(128, 1)[:, :d["K"]]
    return x @ (t.W.double() * s).T


def int_mm(t, d):
    return torch._int_mm(t.X, t.W.T)


groups = {label: dict(one, KG=-(-one["K"] // 128), NG=-(-one["N"] // 128)) for label, one in linear.items()}
groups["odd"].update(M=777, N=4099, K=3017, KG=24, NG=33)

# --- products of bits --------------------------------------------------------------------------------------------------
XNOR = """tile 1
kernel xnor(A: u32[M, KW], B: u32[N, KW], C: out i32[M, N])
key bucket(M), N, KW
where BM * BN <= 8192
tune BM = 32 | 64 | 128, BN = 32 | 64 | 128, BK = 16 | 32, stages = 2 | 3, threads = 128 | 256
grid m < ceildiv(M, BM), n < ceildiv(N, BN)
{
  shared   a: u32[BM, BK], b: u32[BN, BK]
  fragment c: i32[BM, BN] = 0
  pipelined k < ceildiv(KW, BK), stages {
    a = A[m*BM +: BM, k*BK +: BK]
    b = B[n*BN +: BN, k*BK +: BK]
    parallel i < BM, j < BN { c[i, j] += sum[l < BK](i32(popcount(a[i, l] ^ b[j, l]))) }
  }
  parallel i < BM, j < BN { c[i, j] = i32(32 * KW) - 2 * c[i, j] }
  C[m*BM +: BM, n*BN +: BN] = c
}
"""
# binary weights, rows of 16 bits: bits become signs where tensor cores read them
BINARY = """tile 1
kernel binary(X: bf16[M, K], W: u32[N, KW], S: bf16[N], Y: out bf16[M, N])
where K == 32 * KW
key bucket(M), N, K
where BM * BN <= 256 * 128 && (BM <= 64 || BN >= 128)
tune BM = 16 | 64 | 128 | 256, BN = 64 | 128 | 256, BK = 64 | 128, stages = 3 | 4
grid m < ceildiv(M, BM), n < ceildiv(N, BN)
{
  shared   x: bf16[BM, BK], q: u32[BN, BK / 32]
  fragment w: bf16[BN, BK], c: f32[BM, BN] = 0
  pipelined k < ceildiv(K, BK), stages {
    x = X[m*BM +: BM, k*BK +: BK]
    q = W[n*BN +: BN, k*(BK / 32) +: BK / 32]
    parallel i < BN, j < BK { w[i, j] = (q[i, j / 32] >> (j % 32) & 1) != 0 ? 1 : -1 }
    c += x @ w^T
  }
  parallel i < BM, j < BN { c[i, j] *= S[n*BN + j] }
  Y[m*BM +: BM, n*BN +: BN] = c
}
"""
# distances of a few codes to all of an index: M of at most 8
HAMMING = """tile 1
kernel hamming(Q: u64[M, KW], B: u64[N, KW], D: out i16[M, N])
key M, bucket(N), KW
tune BN = 128 | 256 | 512 | 1024, threads = 128 | 256
grid n < ceildiv(N, BN)
{
  fragment q: u64[M, KW], b: u64[BN, KW], c: i16[M, BN]
  q = Q
  b = B[n*BN +: BN, :]
  parallel m < M, j < BN { c[m, j] = i16(sum[l < KW](popcount(q[m, l] ^ b[j, l]))) }
  D[:, n*BN +: BN] = c
}
"""


def signs(words, dtype):
    return torch.stack([1 - 2 * (words >> s & 1) for s in range(32)], -1).flatten(-2).to(dtype)


def xnor_torch(t, d):  # the signs as bytes, made ahead
    if not hasattr(t, "a8"):
        t.a8, t.b8 = signs(t.A, torch.int8), signs(t.B, torch.int8)
    return torch._int_mm(t.a8, t.b8.T)


def xnor_reference(t, d):
    return signs(t.A, torch.double) @ signs(t.B, torch.double).T


def binary_reference(t, d):
    return (t.X @ -signs(t.W, t.X.dtype).T) * t.S


def bit_count(x):
    x = x - (x >> 1 & 0x5555555555555555)
    x = (x & 0x3333333333333333) + (x >> 2 & 0x3333333333333333)
    x = x + (x >> 4) & 0x0f0f0f0f0f0f0f0f
    return x * 0x0101010101010101 >> 56 & 127


def hamming(t, d):
    return bit_count(t.Q[:, None] ^ t.B).sum(-1).to(torch.int16)


def words64(shape, t, d):
    return torch.randint(-2**63, 2**63 - 1, shape, device=DEVICE, dtype=torch.int64)


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

# --- grouped products: a mixture of experts in fp8 ---------------------------------------------------------------------
# rows are sorted by expert, those of expert e end at ends[e]; `longest` bounds their number
GROUPED_HEAD = """
key  bucket(rows), E, N, K
TUNE
grid e < E, m < ceildiv(longest, BM), n < ceildiv(N, BN)
{
  shared   x: f8e4m3[BM, BK], w: f8e4m3[BN, BK]
  TILES
  let first = e == 0 ? 0 : ends[e - 1]
  let count = ends[e] - first
  if m*BM < count {
"""
GROUPED = """tile 1
kernel grouped(X: f8e4m3[rows, K], A: f32[rows], W: f8e4m3[E, N, K], S: f32[E, N], ends: i32[E], Y: out bf16[rows, N], longest: i32)
""" + GROUPED_HEAD.replace("TUNE", """where BM * BN <= 128 * 256
tune BM = 16 | 64 | 128, BN = 64 | 128 | 256, BK = 128, stages = 3 | 4 | 5""").replace("TILES", "fragment c: f32[BM, BN] = 0") + """
    pipelined k < ceildiv(K, BK), stages {
      x = X[first + m*BM +: BM, k*BK +: BK]
      w = W[e, n*BN +: BN, k*BK +: BK]
      c += x @ w^T
    }
    parallel i < BM, j < BN { c[i, j] *= A[first + m*BM + i] * S[e, n*BN + j] }
    Y[first + m*BM +: BM, n*BN +: BN] within first +: count = c
  }
}
"""
GROUPED_BLOCKS = """tile 1
kernel grouped_blocks(X: f8e4m3[rows, K], A: f32[rows, KG], W: f8e4m3[E, N, K], S: f32[E, NG, KG], ends: i32[E],
                      Y: out bf16[rows, N], longest: i32)
where KG == ceildiv(K, 128), NG == ceildiv(N, 128)""" + GROUPED_HEAD.replace("TUNE", """
tune BM = 16 | 64 | 128, BN = 64 | 128, BK = 128, stages = 3 | 4 | 5, threads = 128 | 256""").replace(
    "TILES", "fragment s: f32[BM, BN], c: f32[BM, BN] = 0") + """
    pipelined k < KG, stages {
      x = X[first + m*BM +: BM, k*BK +: BK]
      w = W[e, n*BN +: BN, k*BK +: BK]
      s = x @ w^T
      let b = S[e, n*BN / 128, k]
      parallel i < BM, j < BN { c[i, j] += s[i, j] * (A[first + m*BM + i, k] * b) }
    }
    Y[first + m*BM +: BM, n*BN +: BN] within first +: count = c
  }
}
"""
# gpt-oss: MXFP4 experts, tokens by number
MOE_MXFP4 = """tile 1
kernel moe_mxfp4(X: bf16[tokens, K], W: u4[E, N, K], S: u8[E, N, KG], C: bf16[16], index: i32[rows], ends: i32[E],
                 Y: out bf16[rows, N], longest: i32)
where K == 32 * KG
key  bucket(rows), E, N, K
where BM * BN <= 128 * 128
tune BM = 16 | 32 | 64 | 128, BN = 64 | 128, BK = 64 | 128, stages = 3 | 4
grid e < E, m < ceildiv(longest, BM), n < ceildiv(N, BN)
{
  shared   x: bf16[BM, BK], q: u4[BN, BK], code: bf16[16]
  fragment w: bf16[BN, BK], c: f32[BM, BN] = 0
  let first = e == 0 ? 0 : ends[e - 1]
  let count = ends[e] - first
  if m*BM < count {
    code = C
    pipelined k < ceildiv(K, BK), stages {
      x = X[index[first + m*BM +: BM] within first +: count pad -1, k*BK +: BK]
      q = W[e, n*BN +: BN, k*BK +: BK]
      parallel i < BN, j < BK { w[i, j] = code[q[i, j]] * exp2(f32(S[e, n*BN + i, (k*BK + j) / 32]) - 127) }
      c += x @ w^T
    }
    Y[first + m*BM +: BM, n*BN +: BN] within first +: count = c
  }
}
"""


def ends(shape, t, d):  # shares that differ much, some of them nothing
    share = torch.rand(shape[0], device=DEVICE).double() ** 2
    share[1::5] = 0
    return (share.cumsum(0) / share.sum() * d["rows"]).round().clamp(max=d["rows"]).to(torch.int32)


def counts(t):
    if not hasattr(t, "counts"):
        t.counts = torch.diff(t.ends.cpu(), prepend=torch.zeros(1, dtype=torch.int32)).tolist()
    return t.counts


def longest(shape, t, d):
    return max(torch.diff(t.ends.cpu(), prepend=torch.zeros(1, dtype=torch.int32)).tolist())


def experts_fp8(t, d):
    """A scaled product for each expert"""
    if not hasattr(t, "rowwise"):
        t.rowwise = (t.A if t.A.dim() == 1 else t.A[:, 0])[:, None].contiguous()
        t.columns = t.S if t.A.dim() == 1 else torch.rand(d["E"], d["N"], device=DEVICE)
        t.out = torch.empty(d["rows"], d["N"], device=DEVICE, dtype=torch.bfloat16)
    at = 0
    for e, n in enumerate(counts(t)):
        if n:
            torch._scaled_mm(t.X[at:at + n], t.W[e].T, scale_a=t.rowwise[at:at + n], scale_b=t.columns[e:e + 1],
                             out_dtype=torch.bfloat16, out=t.out[at:at + n])
        at += n
    return t.out


def grouped_fp8(t, d):
    if not hasattr(t, "columns"):
        t.rows1 = (t.A if t.A.dim() == 1 else t.A[:, 0]).contiguous()
        t.columns = t.S if t.A.dim() == 1 else torch.rand(d["E"], d["N"], device=DEVICE)
    rows1 = t.rows1 if hasattr(t, "rows1") else t.rowwise[:, 0].contiguous()
    return torch._scaled_grouped_mm(t.X, t.W.transpose(1, 2), rows1, t.columns, offs=t.ends, out_dtype=torch.bfloat16)


def grouped16(t, d):
    if not hasattr(t, "w16"):
        t.w16 = torch.randn(d["E"], d["N"], d["K"], device=DEVICE).bfloat16()
    x = t.X[t.index] if hasattr(t, "index") else t.X.bfloat16()
    return torch._grouped_mm(x, t.w16.transpose(1, 2), offs=t.ends, out_dtype=torch.bfloat16)


def experts16(t, d):
    if not hasattr(t, "w16"):
        t.w16 = torch.randn(d["E"], d["N"], d["K"], device=DEVICE).bfloat16()
    x = t.X[t.index]
    at, out = 0, []
    for e, n in enumerate(counts(t)):
        out.append(x[at:at + n] @ t.w16[e].T)
        at += n
    return torch.cat(out)


def grouped_reference(t, d):
    out, at = torch.zeros(d["rows"], d["N"], device=t.ends.device, dtype=torch.double), 0
    for e, n in enumerate(counts(t)):
        if hasattr(t, "index"):
            code = t.C.double()[low_first(t.W[e]).long()]
            out[at:at + n] = t.X.double()[t.index[at:at + n].long()] @ (
                code * torch.exp2(t.S[e].double() - 127).repeat_interleave(32, 1)).T
        elif t.A.dim() == 1:
            out[at:at + n] = (t.X[at:at + n].double() @ t.W[e].double().T) * t.A[at:at + n, None].double() * t.S[e].double()
        else:
            x = t.X[at:at + n].double() * t.A[at:at + n].double().repeat_interleave(128, 1)[:, :d["K"]]
            s = t.S[e].double().repeat_interleave(128, 0)[:d["N"]].repeat_interleave(128, 1)[:, :d["K"]]
            out[at:at + n] = x @ (t.W[e].double() * s).T
        at += n
    return out


E2M1 = [0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6]
fp8 = normal(torch.float8_e4m3fn)
grouped_fills = {"X": fp8, "A": uniform(0.01, 0.1), "W": fp8, "S": uniform(0.01, 0.1), "ends": ends, "longest": longest}
grouped_sizes = {"decode": dict(rows=256, K=4096, E=32, N=4096), "large": dict(rows=16384, K=4096, E=64, N=4096),
                 "odd": dict(rows=3001, K=2000, E=13, N=1808), "small": dict(rows=37, K=160, E=5, N=48)}
grouped_block_sizes = {label: dict(one, KG=-(-one["K"] // 128), NG=-(-one["N"] // 128)) for label, one in grouped_sizes.items()}
moe_sizes = {"decode": dict(tokens=64, K=2880, E=32, N=5760, KG=90, rows=256), "large": dict(tokens=2048, K=2880, E=32, N=5760, KG=90, rows=8192),
             "odd": dict(tokens=701, K=2016, E=13, N=1807, KG=63, rows=2804), "small": dict(tokens=11, K=96, E=5, N=37, KG=3, rows=33)}

# --- quantising --------------------------------------------------------------------------------------------------------
MXFP8 = """tile 1
kernel to_mxfp8(X: bf16[M, K], Q: out f8e4m3[M, K], S: out u8[M, KG])
where K == 32 * KG
key  bucket(M), K
tune rows = 1 | 2 | 4 | 8 | 16, G = 8 | 16 | 32, threads = 128 | 256
where rows * G <= 256
grid m < ceildiv(M, rows), k < ceildiv(KG, G)
{
  fragment x: f32[rows, G * 32], e: f32[rows, G]
  x = X[m*rows +: rows, k*(G * 32) +: G * 32]
  parallel i < rows, g < G {
    let most = max[j < 32](abs(x[i, g*32 + j]))
    e[i, g] = clamp(most > 0 ? floor(log2(most)) - 8 : -127, -127, 127)
  }
  parallel i < rows, j < G * 32 { x[i, j] *= exp2(-e[i, j / 32]) }
  Q[m*rows +: rows, k*(G * 32) +: G * 32] = x
  parallel i < rows, g < G { e[i, g] += 127 }
  S[m*rows +: rows, k*G +: G] = e
}
"""
# two codes a byte; ties go to even codes
FP4_CODE = """(v < 0 ? 8 : 0) + (a > 5 ? 7 : a >= 3.5 ? 6 : a > 2.5 ? 5 : a >= 1.75 ? 4 : a > 1.25 ? 3 : a >= 0.75 ? 2 : a > 0.25 ? 1 : 0)"""
MXFP4 = f"""tile 1
kernel to_mxfp4(X: bf16[M, K], Q: out u8[M, KH], S: out u8[M, KG])
where K == 32 * KG, KH == 16 * KG
key  bucket(M), K
tune rows = 1 | 2 | 4 | 8 | 16, G = 8 | 16 | 32, threads = 128 | 256
where rows * G <= 256
grid m < ceildiv(M, rows), k < ceildiv(KG, G)
{{
  fragment x: f32[rows, G * 32], code: i32[rows, G * 32], e: f32[rows, G], q: u8[rows, G * 16]
  x = X[m*rows +: rows, k*(G * 32) +: G * 32]
  parallel i < rows, g < G {{
    let most = max[j < 32](abs(x[i, g*32 + j]))
    e[i, g] = clamp(most > 0 ? floor(log2(most)) - 2 : -127, -127, 127)
  }}
  parallel i < rows, j < G * 32 {{
    let v = x[i, j] * exp2(-e[i, j / 32])
    let a = abs(v)
    code[i, j] = {FP4_CODE}
  }}
  parallel i < rows, j < G * 16 {{ q[i, j] = code[i, 2*j] | code[i, 2*j + 1] << 4 }}
  Q[m*rows +: rows, k*(G * 16) +: G * 16] = q
  parallel i < rows, g < G {{ e[i, g] += 127 }}
  S[m*rows +: rows, k*G +: G] = e
}}
"""
# NVFP4: scales f8e4m3 of 16 elements, below one of the tensor, whose reciprocal is passed
NVFP4 = f"""tile 1
kernel to_nvfp4(X: bf16[M, K], Q: out u8[M, KH], S: out f8e4m3[M, KG], factor: f32)
where K == 16 * KG, KH == 8 * KG
key  bucket(M), K
tune rows = 1 | 2 | 4 | 8, G = 16 | 32 | 64, threads = 128 | 256
where rows * G <= 256
grid m < ceildiv(M, rows), k < ceildiv(KG, G)
{{
  fragment x: f32[rows, G * 16], s: f8e4m3[rows, G], code: i32[rows, G * 16], q: u8[rows, G * 8]
  x = X[m*rows +: rows, k*(G * 16) +: G * 16]
  parallel i < rows, g < G {{ s[i, g] = max[j < 16](abs(x[i, g*16 + j])) / 6 * factor }}
  parallel i < rows, j < G * 16 {{
    let t = f32(s[i, j / 16]) / factor
    let v = t > 0 ? x[i, j] / t : 0.0
    let a = abs(v)
    code[i, j] = {FP4_CODE}
  }}
  parallel i < rows, j < G * 8 {{ q[i, j] = code[i, 2*j] | code[i, 2*j + 1] << 4 }}
  Q[m*rows +: rows, k*(G * 8) +: G * 8] = q
  S[m*rows +: rows, k*G +: G] = s
}}
"""


def fp4(v):
    a = v.abs()
    code = sum(((a > x) if strict else (a >= x)).to(torch.uint8) for x, strict in
               ((0.25, 1), (0.75, 0), (1.25, 1), (1.75, 0), (2.5, 1), (3.5, 0), (5, 1)))
    code = code | (v < 0).to(torch.uint8) << 3
    return code[..., 0::2] | code[..., 1::2] << 4


def mx(bits):
    def quantise(t, d):
        x = t.X.float().view(d["M"], -1, 32)
        most = x.abs().amax(-1)
        _, e = torch.frexp(most)  # most = f 2^e, f in [1/2, 1)
        e = torch.where(most > 0, e - 1 - (8 if bits == 8 else 2), -127).clamp(-127, 127)
        v = x * torch.exp2(-e.float())[..., None]
        s = (e + 127).to(torch.uint8)
        if bits == 4:
            return fp4(v).view(d["M"], -1), s
        return v.clamp(-448, 448).to(torch.float8_e4m3fn).view(d["M"], -1), s
    return quantise


def nvfp4(t, d):
    x = t.X.float().view(d["M"], -1, 16)
    s = (x.abs().amax(-1) / 6 * t.factor).clamp(max=448).to(torch.float8_e4m3fn)
    u = (s.float() / t.factor)[..., None]
    return fp4(torch.where(u > 0, x / u, 0)).view(d["M"], -1), s


def outliers(shape, t, d):
    x = torch.randn(shape, device=DEVICE) * torch.exp2(torch.randint(-6, 7, (shape[0], 1), device=DEVICE).float())
    x[:, :7] = 0
    return x.bfloat16()


# --- 2:4 sparse weights ------------------------------------------------------------------------------------------------
# of each four weights in a row two are kept; the places are two bits each, the lower place first
SPARSE24 = """tile 1
kernel sparse24(X: bf16[M, K], V: bf16[N, KH], P: u8[N, K8], Y: out bf16[M, N])
where K == 2 * KH, K == 8 * K8
key bucket(M), N, K
where BM * BN <= 256 * 128 && (BM <= 64 || BN >= 128)
tune BM = 16 | 64 | 128 | 256, BN = 64 | 128 | 256, BK = 64 | 128, stages = 3 | 4
grid m < ceildiv(M, BM), n < ceildiv(N, BN)
{
  shared   x: bf16[BM, BK], v: bf16[BN, BK / 2], p: u8[BN, BK / 8]
  fragment w: bf16[BN, BK], c: f32[BM, BN] = 0
  pipelined k < ceildiv(K, BK), stages {
    x = X[m*BM +: BM, k*BK +: BK]
    v = V[n*BN +: BN, k*(BK / 2) +: BK / 2]
    p = P[n*BN +: BN, k*(BK / 8) +: BK / 8]
    parallel i < BN, j < BK {
      let at = p[i, j / 8] >> (j % 8 / 4 * 4)
      w[i, j] = j % 4 == (at & 3) ? v[i, j / 4 * 2] : j % 4 == (at >> 2 & 3) ? v[i, j / 4 * 2 + 1] : 0
    }
    c += x @ w^T
  }
  Y[m*BM +: BM, n*BN +: BN] = c
}
"""
# the kept ones in 4 bits, groups of 128
SPARSE24_W4 = """tile 1
kernel sparse24_w4(X: bf16[M, K], V: u4[N, KH], P: u8[N, K8], S: bf16[N, KG], Y: out bf16[M, N])
where K == 2 * KH, K == 8 * K8, K == 128 * KG
key bucket(M), N, K
where BM * BN <= 256 * 128 && (BM <= 64 || BN >= 128)
tune BM = 16 | 64 | 128 | 256, BN = 64 | 128 | 256, BK = 64 | 128, stages = 3 | 4
grid m < ceildiv(M, BM), n < ceildiv(N, BN)
{
  shared   x: bf16[BM, BK], v: u4[BN, BK / 2], p: u8[BN, BK / 8]
  fragment w: bf16[BN, BK], c: f32[BM, BN] = 0
  pipelined k < ceildiv(K, BK), stages {
    x = X[m*BM +: BM, k*BK +: BK]
    v = V[n*BN +: BN, k*(BK / 2) +: BK / 2]
    p = P[n*BN +: BN, k*(BK / 8) +: BK / 8]
    parallel i < BN, j < BK {
      let at = p[i, j / 8] >> (j % 8 / 4 * 4), s = S[n*BN + i, (k*BK + j) / 128]
      w[i, j] = j % 4 == (at & 3) ? (v[i, j / 4 * 2] - 8) * s : j % 4 == (at >> 2 & 3) ? (v[i, j / 4 * 2 + 1] - 8) * s : 0.0
    }
    c += x @ w^T
  }
  Y[m*BM +: BM, n*BN +: BN] = c
}
"""


def pairs(shape, t, d):  # bytes of two groups: one of the six pairs of places each
    six = torch.tensor([a | b << 2 for b in range(4) for a in range(b)], device=DEVICE, dtype=torch.uint8)
    low, high = (six[torch.randint(0, 6, shape, device=DEVICE)] for _ in "lh")
    return low | high << 4


def sparse24_reference(t, d):
    n, k = d["N"], d["K"]
    v = t.V if hasattr(t, "S") is False else (low_first(t.V).double() - 8)
    at = torch.stack((t.P & 3, t.P >> 2 & 3, t.P >> 4 & 3, t.P >> 6), -1).view(n, k // 4, 2).long()
    w = torch.zeros(n, k // 4, 4, device=v.device, dtype=torch.double).scatter_(2, at, v.view(n, k // 4, 2).double()).view(n, k)
    if hasattr(t, "S"):
        w = w * t.S.double().repeat_interleave(128, 1)
    return t.X @ w.T


def dense(t, d):
    return t.X @ plain(t, d).T


def cusparselt(t, d):
    if not hasattr(t, "half"):
        w = torch.randn(d["N"], d["K"], device=DEVICE).bfloat16()
        mask = torch.tensor([0, 1, 1, 0], device=DEVICE, dtype=torch.bool).repeat(d["K"] // 4)
        t.half = torch.sparse.to_sparse_semi_structured(w * mask)
    return F.linear(t.X, t.half)


sparse_sizes = {label: dict(one, K=one["K"] // 128 * 128) for label, one in linear.items()}
sparse_sizes["decode"].update(M=8)
sparse_sizes["odd"].update(M=777, N=4099)
sparse_sizes = {label: dict(one, KH=one["K"] // 2, K8=one["K"] // 8) for label, one in sparse_sizes.items()}
sparse_w4_sizes = {label: dict(one, KG=one["K"] // 128) for label, one in sparse_sizes.items()}
quant_sizes = {"large": dict(M=16384, K=7168), "decode": dict(M=4096, K=4096), "odd": dict(M=3001, K=4000), "small": dict(M=7, K=96)}
mx8_sizes = {label: dict(one, KG=one["K"] // 32) for label, one in quant_sizes.items()}
mx4_sizes = {label: dict(one, KH=one["K"] // 2, KG=one["K"] // 32) for label, one in quant_sizes.items()}
nv4_sizes = {label: dict(one, KH=one["K"] // 2, KG=one["K"] // 16) for label, one in quant_sizes.items()}

CASES = [
    Case("w8a8_zeros", W8A8, linear, w8a8, fills=w8a8_fills, reference=w8a8_reference, peers={"bf16": product16}, tolerance=1e-2),
    Case("w8a8_given", W8A8_GIVEN, linear, w8a8, fills=w8a8_fills, reference=w8a8_reference, peers={"bf16": product16}, tolerance=1e-2),
    Case("int8_blocks", BLOCKS8, groups, product16, fills={"X": int8, "A": uniform(1e-3, 1e-2), "W": int8, "S": uniform(1e-3, 1e-2)},
         reference=blocks8_reference, peers={"int_mm": int_mm}, compiled=False, tolerance=1e-2),
    Case("xnor", XNOR, {"large": dict(M=2048, KW=128, N=4096), "odd": dict(M=777, KW=97, N=4099), "small": dict(M=13, KW=5, N=19)},
         xnor_torch, fills={"A": words, "B": words}, reference=xnor_reference, compiled=False),
    Case("binary", BINARY, {label: dict(one, K=one["K"] // 32 * 32, KW=one["K"] // 32, N=one["N"] - (label == "odd"))
                            for label, one in linear.items()},
         dense, fills={"W": words, "S": uniform(0.01, 0.05, torch.bfloat16)}, reference=binary_reference, compiled=False, tolerance=1e-2),
    Case("hamming", HAMMING, {"large": dict(M=4, KW=4, N=1 << 22), "wide": dict(M=1, KW=12, N=1 << 20),
                              "odd": dict(M=3, KW=5, N=1000003), "small": dict(M=3, KW=5, N=77)},
         hamming, fills={"Q": words64, "B": words64}),
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
    Case("grouped_fp8", GROUPED, grouped_sizes, experts_fp8, fills=grouped_fills, reference=grouped_reference, compiled=False,
         peers={"grouped_mm": grouped_fp8, "bf16": grouped16}, tolerance=1e-2),
    Case("grouped_fp8_blocks", GROUPED_BLOCKS, grouped_block_sizes, experts_fp8, fills=grouped_fills, reference=grouped_reference,
         compiled=False, peers={"grouped_mm": grouped_fp8, "bf16": grouped16}, tolerance=1e-2),
    Case("moe_mxfp4", MOE_MXFP4, moe_sizes, experts16, compiled=False, peers={"grouped16": grouped16}, tolerance=1e-2,
         reference=grouped_reference,
         fills={"W": nibbles, "S": randint(117, 125, torch.uint8), "C": lambda s, t, d: torch.tensor(E2M1, device=DEVICE).bfloat16(),
                "index": lambda s, t, d: torch.randint(0, d["tokens"], s, device=DEVICE, dtype=torch.int32), "ends": ends, "longest": longest}),
    Case("to_mxfp8", MXFP8, mx8_sizes, mx(8), fills={"X": outliers}),
    Case("to_mxfp4", MXFP4, mx4_sizes, mx(4), fills={"X": outliers}),
    Case("to_nvfp4", NVFP4, nv4_sizes, nvfp4, fills={"X": outliers, "factor": lambda s, t, d: 0.75}),
    Case("sparse24", SPARSE24, sparse_sizes, dense, fills={"P": pairs, "V": normal(torch.bfloat16)}, reference=sparse24_reference,
         peers={"cusparselt": cusparselt}, compiled=False, tolerance=1e-2),
    Case("sparse24_w4", SPARSE24_W4, sparse_w4_sizes, dense, fills={"P": pairs, "V": nibbles, "S": uniform(0.01, 0.05, torch.bfloat16)},
         reference=sparse24_reference, peers={"cusparselt": cusparselt}, compiled=False, tolerance=1e-2),
]
