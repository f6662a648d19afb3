"""Linear layers whose weights are held in few bits: tables, codebooks, packed words, beside the product of 16 bits."""
import torch
from unseen import Case

NF4 = [-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
       -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
       0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0]
E2M1 = [0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6]


def shapes(step, m=8, **more):
    """step: what K must be a multiple of; more: dimension: function of (m, n, k)"""
    odd = (3000 // step | 1) * step
    table = {"decode": (m, 28672, 8192 // step * step), "large": (192, 28672, 8192 // step * step),
             "prefill": (4096, 8192, 8192 // step * step), "odd": (131, 4099, odd), "small": (5, 19, 3 * step if step < 200 else step)}
    return {label: dict(M=m, N=n, K=k, **{name: f(m, n, k) for name, f in more.items()})
            for label, (m, n, k) in table.items()}


def device(t):
    return next(v.device for v in vars(t).values() if hasattr(v, "device"))


def bits(shape, t, d):  # any bits, of u8 or i32 words
    return torch.randint(0, 256, shape, device=device(t), dtype=torch.uint8)


def nibbles(shape, t, d):
    return bits((*shape[:-1], (shape[-1] + 1) // 2), t, d)


def words(shape, t, d):
    return torch.randint(-2**31, 2**31, shape, device=device(t), dtype=torch.int64).to(torch.int32)


def scales(shape, t, d, low=0.01, high=0.05, dtype=torch.float32):
    return (torch.rand(shape, device=device(t)) * (high - low) + low).to(dtype)


def scales16(shape, t, d):
    return scales(shape, t, d, dtype=t.X.dtype)


def table(values):
    return lambda shape, t, d: torch.tensor(values, device=device(t), dtype=torch.float32)


def low_first(w):  # bytes to nibbles, as u4 tensors lie
    return torch.stack((w & 15, w >> 4), -1).flatten(-2)


def wide(s, group):  # scales along the last axis
    return s.repeat_interleave(group, -1)


def product(t, d):
    """The same layer with weights of 16 bits: cuBLAS."""
    if not hasattr(t, "plain"):
        t.plain = torch.randn(d["N"], d["K"], device=t.X.device, dtype=t.X.dtype)
    return t.X @ t.plain.T


def by(dequantised):
    return lambda t, d: t.X @ dequantised(t, d).to(t.X.dtype).T


def case(name, text, sizes, fills, dequantised, **more):
    return Case(name, text, sizes, product, fills=fills, reference=by(dequantised), compiled=False, tolerance=1e-2, **more)


TUNE = """where BM * BN <= 256 * 128 && (BM <= 64 || BN >= 128)
tune BM = 16 | 64 | 128 | 256, BN = 64 | 128 | 256, BK = 64 | 128, stages = 3 | 4"""
HEAD = "key bucket(M), N, K\n" + TUNE


def rows(name, params, where, tiles, loads, value, head=HEAD, T="bf16"):
    """Weights as rows along k"""
    return f"""tile 1
kernel {name}(X: {T}[M, K], {params}, Y: out {T}[M, N])
where {where}
{head}
grid m < ceildiv(M, BM), n < ceildiv(N, BN)
{{
  shared   x: {T}[BM, BK], {tiles}
  fragment w: {T}[BN, BK], c: f32[BM, BN] = 0
{loads[0]}
  pipelined k < ceildiv(K, BK), stages {{
    x = X[m*BM +: BM, k*BK +: BK]
    {loads[1]}
    parallel i < BN, j < BK {{
      let row = n*BN + i, at = k*BK + j
      {value}
    }}
    c += x @ w^T
  }}
  Y[m*BM +: BM, n*BN +: BN] = c
}}
"""


# --- NF4: a table of 16, scales of 64 ---------------------------------------------------------------------------------
NF4_U4 = rows("nf4", "W: u4[N, K], S: f32[N, KG], C: f32[16]", "K == 64 * KG", "q: u4[BN, BK], code: f32[16]",
              ("  code = C", "q = W[n*BN +: BN, k*BK +: BK]"), "w[i, j] = code[q[i, j]] * S[row, at / 64]")

# as bitsandbytes packs: the first of two in the high nibble
NF4_BNB = """tile 1
kernel nf4_bnb(X: bf16[M, K], W: u8[N, KH], S: f32[N, KG], C: f32[16], Y: out bf16[M, N])
where K == 64 * KG, K == 2 * KH
""" + HEAD + """
grid m < ceildiv(M, BM), n < ceildiv(N, BN)
{
  shared   x: bf16[BM, BK], q: u8[BN, BK / 2], code: f32[16]
  fragment w: bf16[BN, BK], c: f32[BM, BN] = 0
  code = C
  pipelined k < ceildiv(K, BK), stages {
    x = X[m*BM +: BM, k*BK +: BK]
    q = W[n*BN +: BN, k*(BK / 2) +: BK / 2]
    parallel i < BN, j < BK / 2 {
      let s = S[n*BN + i, (k*BK + 2*j) / 64]
      w[i, 2*j]     = code[q[i, j] >> 4] * s
      w[i, 2*j + 1] = code[q[i, j] & 15] * s
    }
    c += x @ w^T
  }
  Y[m*BM +: BM, n*BN +: BN] = c
}
"""

# one row of activations, without tensor cores
NF4_GEMV = """tile 1
kernel nf4_gemv(X: bf16[M, K], W: u4[N, K], S: f32[N, KG], C: f32[16], Y: out bf16[M, N])
where K == 64 * KG
key bucket(M), N, K
tune rows = 4 | 8 | 16 | 32, BK = 512 | 1024 | 2048, threads = 128 | 256
grid m < M, n < ceildiv(N, rows)
{
  shared   code: f32[16]
  fragment q: u4[rows, BK], x: f32[BK], acc: f32[rows] = 0
  code = C
  for k < ceildiv(K, BK) {
    q = W[n*rows +: rows, k*BK +: BK]
    x = X[m, k*BK +: BK]
    parallel i < rows { acc[i] += sum[j < BK](code[q[i, j]] * S[n*rows + i, (k*BK + j) / 64] * x[j]) }
  }
  Y[m, n*rows +: rows] = acc
}
"""


def nf4(t, d):
    return t.C[low_first(t.W).long()] * wide(t.S, 64)


def nf4_bnb(t, d):
    return t.C[torch.stack((t.W >> 4, t.W & 15), -1).flatten(-2).long()] * wide(t.S, 64)


KG64 = dict(KG=lambda m, n, k: k // 64)
KH = dict(KH=lambda m, n, k: k // 2)
nf4_fills = {"W": nibbles, "S": scales, "C": table(NF4)}
gemv_shapes = {"decode": dict(M=1, N=28672, K=8192, KG=128), "large": dict(M=2, N=14336, K=28672, KG=448),
               "odd": dict(M=3, N=4099, K=3008, KG=47), "small": dict(M=2, N=19, K=192, KG=3)}

# --- ternary ----------------------------------------------------------------------------------------------------------
# BitNet b1.58: rows of 8-bit activations, one scale of the whole matrix; four weights a byte
TERNARY = """tile 1
kernel ternary(X: i8[M, K], A: f32[M], W: u8[N, KQ], B: f32[1], Y: out bf16[M, N])
where K == 4 * KQ
key bucket(M), N, K
where BM * BN <= 256 * 128 && (BM <= 64 || BN >= 128)
tune BM = 16 | 64 | 128 | 256, BN = 64 | 128 | 256, BK = 128 | 256, stages = 3 | 4
grid m < ceildiv(M, BM), n < ceildiv(N, BN)
{
  shared   x: i8[BM, BK], q: u8[BN, BK / 4]
  fragment w: i8[BN, BK], c: i32[BM, BN] = 0, y: f32[BM, BN]
  pipelined k < ceildiv(K, BK), stages {
    x = X[m*BM +: BM, k*BK +: BK]
    q = W[n*BN +: BN, k*(BK / 4) +: BK / 4]
    parallel i < BN, j < BK { w[i, j] = (q[i, j / 4] >> (j % 4 * 2) & 3) - 1 }
    c += x @ w^T
  }
  let scale = B[0]
  parallel i < BM, j < BN { y[i, j] = c[i, j] * A[m*BM + i] * scale }
  Y[m*BM +: BM, n*BN +: BN] = y
}
"""

# as transformers packs it: byte [p, k] holds rows p, p + N/4, p + 2 N/4, p + 3 N/4; four products of one tile
TERNARY_HF = """tile 1
kernel ternary_hf(X: i8[M, K], A: f32[M], W: u8[P, K], B: f32[1], Y: out bf16[M, 4, P])
key bucket(M), P, K
where BM * BN <= 128 * 64
tune BM = 16 | 64 | 128, BN = 32 | 64, BK = 128 | 256, stages = 3 | 4
grid m < ceildiv(M, BM), n < ceildiv(P, BN)
{
  shared   x: i8[BM, BK], q: u8[BN, BK]
  fragment w0: i8[BN, BK], w1: i8[BN, BK], w2: i8[BN, BK], w3: i8[BN, BK]
  fragment c0: i32[BM, BN] = 0, c1: i32[BM, BN] = 0, c2: i32[BM, BN] = 0, c3: i32[BM, BN] = 0, y: f32[BM, BN]
  pipelined k < ceildiv(K, BK), stages {
    x = X[m*BM +: BM, k*BK +: BK]
    q = W[n*BN +: BN, k*BK +: BK]
    parallel i < BN, j < BK {
      w0[i, j] = (q[i, j] & 3) - 1
      w1[i, j] = (q[i, j] >> 2 & 3) - 1
      w2[i, j] = (q[i, j] >> 4 & 3) - 1
      w3[i, j] = (q[i, j] >> 6) - 1
    }
    c0 += x @ w0^T
    c1 += x @ w1^T
    c2 += x @ w2^T
    c3 += x @ w3^T
  }
  let scale = B[0]
  parallel i < BM, j < BN { y[i, j] = c0[i, j] * A[m*BM + i] * scale }
  Y[m*BM +: BM, 0, n*BN +: BN] = y
  parallel i < BM, j < BN { y[i, j] = c1[i, j] * A[m*BM + i] * scale }
  Y[m*BM +: BM, 1, n*BN +: BN] = y
  parallel i < BM, j < BN { y[i, j] = c2[i, j] * A[m*BM + i] * scale }
  Y[m*BM +: BM, 2, n*BN +: BN] = y
  parallel i < BM, j < BN { y[i, j] = c3[i, j] * A[m*BM + i] * scale }
  Y[m*BM +: BM, 3, n*BN +: BN] = y
}
"""

# five trits a byte, as TQ1_0 of llama.cpp lies: element e of 160 is digit e / 32 of byte e % 32
TRITS = """tile 1
kernel trits(X: bf16[M, K], W: u8[N, KB], S: bf16[N, KG], Y: out bf16[M, N])
where K == 160 * KG, KB == 32 * KG
key bucket(M), N, K
where BM * BN <= 256 * 128
tune BM = 16 | 64 | 128 | 256, BN = 64 | 128, BK = 160, stages = 2 | 3 | 4
grid m < ceildiv(M, BM), n < ceildiv(N, BN)
{
  shared   x: bf16[BM, BK], q: u8[BN, 32]
  fragment w: bf16[BN, BK], c: f32[BM, BN] = 0
  pipelined k < KG, stages {
    x = X[m*BM +: BM, k*BK +: BK]
    q = W[n*BN +: BN, k*32 +: 32]
    parallel i < BN, j < BK {
      let p = j / 32
      let power = p == 0 ? 1 : p == 1 ? 3 : p == 2 ? 9 : p == 3 ? 27 : 81
      let trit = (i32(q[i, j % 32]) * i32(power) & 255) * 3 >> 8
      w[i, j] = (trit - 1) * S[n*BN + i, k]
    }
    c += x @ w^T
  }
  Y[m*BM +: BM, n*BN +: BN] = c
}
"""


def int8_rows(shape, t, d):
    return torch.randint(-127, 128, shape, device="cuda" if torch.cuda.is_available() and not CPU() else "cpu", dtype=torch.int8)


def CPU():
    import sys
    return "--check" in sys.argv


def ternary_bytes(shape, t, d):
    v = torch.randint(0, 3, (4, *shape), device=device(t), dtype=torch.uint8)
    return v[0] | v[1] << 2 | v[2] << 4 | v[3] << 6


def ternary(t, d):
    q = torch.stack([t.W >> s & 3 for s in (0, 2, 4, 6)], -1).flatten(-2)
    return (t.X.double() * t.A.double()[:, None]) @ (q.double() - 1).T * t.B.double()


def ternary_hf(t, d):
    y = torch.stack([(t.X.double() * t.A.double()[:, None]) @ ((t.W >> s & 3).double() - 1).T for s in (0, 2, 4, 6)], 1)
    return y * t.B.double()


def product16(t, d):
    if not hasattr(t, "plain"):
        n = d.get("N", 4 * d.get("P", 0))
        t.plain = torch.randn(n, d["K"], device=t.X.device, dtype=torch.bfloat16)
        t.x16 = t.X.to(torch.bfloat16)
    return t.x16 @ t.plain.T


def int_mm(t, d):
    if not hasattr(t, "plain8"):
        n = d.get("N", 4 * d.get("P", 0))
        t.plain8 = torch.randint(-1, 2, (n, d["K"]), device=t.X.device, dtype=torch.int8)
    return (torch._int_mm(t.X, t.plain8.T).float() * t.A[:, None] * t.B).to(torch.bfloat16)


def trits_bytes(shape, t, d):  # of ternary fractions, rounded up, so that products with powers of three shift digits out
    v = torch.randint(0, 3, (5, *shape), device=device(t), dtype=torch.int32)
    q = (((v[0] * 3 + v[1]) * 3 + v[2]) * 3 + v[3]) * 3 + v[4]
    return ((q * 256 + 242) // 243).to(torch.uint8)


def trits(t, d):
    q = t.W.view(d["N"], d["KG"], 1, 32).to(torch.int32)
    power = torch.tensor([1, 3, 9, 27, 81], device=q.device, dtype=torch.int32)[:, None]
    trit = ((q * power & 255) * 3 >> 8) - 1
    return (trit * t.S[:, :, None, None]).reshape(d["N"], d["K"])


ternary_fills = {"X": int8_rows, "A": lambda s, t, d: scales(s, t, d, 1e-3, 1e-2), "W": ternary_bytes, "B": scales}
hf_shapes = {label: dict(M=one["M"], P=one["N"] // 4, K=one["K"]) for label, one in shapes(32, 4).items()}

# --- 3 bits -----------------------------------------------------------------------------------------------------------
# GPTQ: 32 weights of a column in three words, along k; groups of 128
GPTQ3 = """tile 1
kernel gptq3(X: f16[M, K], W: u32[KW, 3, N], S: f16[KG, N], Z: u8[KG, N], Y: out f16[M, N])
where K == 32 * KW, K == 128 * KG
""" + HEAD + """
grid m < ceildiv(M, BM), n < ceildiv(N, BN)
{
  shared   x: f16[BM, BK], q: u32[BK / 32, 3, BN]
  fragment w: f16[BK, BN], c: f32[BM, BN] = 0
  pipelined k < ceildiv(K, BK), stages {
    x = X[m*BM +: BM, k*BK +: BK]
    q = W[k*(BK / 32) +: BK / 32, :, n*BN +: BN]
    parallel i < BK, j < BN {
      let bit = i % 32 * 3, col = n*BN + j, g = (k*BK + i) / 128
      let low = q[i / 32, bit / 32, j] >> (bit % 32)
      let high = bit % 32 > 29 ? q[i / 32, bit / 32 + 1, j] << (32 - bit % 32) : u32(0)
      w[i, j] = (f16((low | high) & 7) - f16(Z[g, col])) * S[g, col]
    }
    c += x @ w
  }
  Y[m*BM +: BM, n*BN +: BN] = c
}
"""

# the same bits along the rows of a K-major matrix
W3_ROWS = """tile 1
kernel w3_rows(X: bf16[M, K], W: u32[N, KW], S: bf16[N, KG], Y: out bf16[M, N])
where 3 * K == 32 * KW, K == 128 * KG
""" + HEAD + """
grid m < ceildiv(M, BM), n < ceildiv(N, BN)
{
  shared   x: bf16[BM, BK], q: u32[BN, BK * 3 / 32]
  fragment w: bf16[BN, BK], c: f32[BM, BN] = 0
  pipelined k < ceildiv(K, BK), stages {
    x = X[m*BM +: BM, k*BK +: BK]
    q = W[n*BN +: BN, k*(BK * 3 / 32) +: BK * 3 / 32]
    parallel i < BN, j < BK {
      let bit = 3 * j
      let low = q[i, bit / 32] >> (bit % 32), high = q[i, bit / 32 + 1] << (32 - bit % 32)
      let v = bit % 32 > 29 ? low | high : low
      w[i, j] = (i32(v & 7) - 4) * S[n*BN + i, (k*BK + j) / 128]
    }
    c += x @ w^T
  }
  Y[m*BM +: BM, n*BN +: BN] = c
}
"""


def stream3(words):  # [..., 3] words to [..., 32] values
    w = words.long() & 0xffffffff
    out = []
    for v in range(32):
        at, shift = 3 * v // 32, 3 * v % 32
        x = w[..., at] >> shift
        if shift > 29:
            x = x | w[..., at + 1] << (32 - shift)
        out.append((x & 7).to(torch.uint8))
    return torch.stack(out, -1)


def gptq3(t, d):
    q = stream3(t.W.transpose(1, 2)).transpose(1, 2).reshape(d["K"], d["N"])
    z, s = t.Z.repeat_interleave(128, 0), t.S.repeat_interleave(128, 0)
    return ((q.to(s.dtype) - z.to(s.dtype)) * s).T


def w3_rows(t, d):
    q = stream3(t.W.view(d["N"], -1, 3)).reshape(d["N"], d["K"])
    return (q.to(t.S.dtype) - 4) * wide(t.S, 128)


# --- AWQ --------------------------------------------------------------------------------------------------------------
# words of eight columns, nibbles in the order 0 2 4 6 1 3 5 7; zero points are packed alike
AWQ = """tile 1
kernel awq(X: f16[M, K], W: u32[K, N8], S: f16[KG, N], Z: u32[KG, N8], Y: out f16[M, N])
where K == 128 * KG, N == 8 * N8
""" + HEAD + """
grid m < ceildiv(M, BM), n < ceildiv(N, BN)
{
  shared   x: f16[BM, BK], q: u32[BK, BN / 8]
  fragment w: f16[BK, BN], c: f32[BM, BN] = 0
  pipelined k < ceildiv(K, BK), stages {
    x = X[m*BM +: BM, k*BK +: BK]
    q = W[k*BK +: BK, n*(BN / 8) +: BN / 8]
    parallel i < BK, j < BN {
      let shift = (j % 2 * 4 + j % 8 / 2) * 4, g = (k*BK + i) / 128, col = n*BN + j
      w[i, j] = (f16(q[i, j / 8] >> shift & 15) - f16(Z[g, col / 8] >> shift & 15)) * S[g, col]
    }
    c += x @ w
  }
  Y[m*BM +: BM, n*BN +: BN] = c
}
"""


def awq_unpack(words):
    w = words.long() & 0xffffffff
    return torch.stack([w >> (j % 2 * 4 + j // 2) * 4 & 15 for j in range(8)], -1).flatten(-2)


def awq(t, d):
    q, z = awq_unpack(t.W), awq_unpack(t.Z).repeat_interleave(128, 0)
    return ((q - z).to(t.S.dtype) * t.S.repeat_interleave(128, 0)).T


def tinygemm(t, d):
    """torch's own product with 4-bit weights, in groups of 128"""
    if not hasattr(t, "tiny"):
        w = torch.randint(0, 256, (d["N"], d["K"] // 2), device=t.X.device, dtype=torch.uint8)
        t.tiny = torch.ops.aten._convert_weight_to_int4pack(w, 8)
        t.tiny_scales = torch.rand(d["K"] // 128, d["N"], 2, device=t.X.device).bfloat16()
        t.x16 = t.X.bfloat16()
    return torch.ops.aten._weight_int4pack_mm(t.x16, t.tiny, 128, t.tiny_scales)


awq_shapes = shapes(128, 16, KG=lambda m, n, k: k // 128)
awq_shapes["odd"].update(N=4104)
awq_shapes["small"].update(N=24)
awq_shapes = {label: dict(one, N8=one["N"] // 8) for label, one in awq_shapes.items()}

# --- AQLM -------------------------------------------------------------------------------------------------------------
# two codebooks of 256 times 8 values: a weight is the sum of two entries, times the row's scale
AQLM = """tile 1
kernel aqlm(X: f16[M, K], W: u8[N, K8, 2], C: f16[2, 256, 8], S: f16[N], Y: out f16[M, N])
where K == 8 * K8
""" + HEAD + """
grid m < ceildiv(M, BM), n < ceildiv(N, BN)
{
  shared   x: f16[BM, BK], q: u8[BN, BK / 8, 2], book: f16[2, 256, 8]
  fragment w: f16[BN, BK], c: f32[BM, BN] = 0
  book = C
  pipelined k < ceildiv(K, BK), stages {
    x = X[m*BM +: BM, k*BK +: BK]
    q = W[n*BN +: BN, k*(BK / 8) +: BK / 8, :]
    parallel i < BN, j < BK { w[i, j] = book[0, q[i, j / 8, 0], j % 8] + book[1, q[i, j / 8, 1], j % 8] }
    c += x @ w^T
  }
  parallel i < BM, j < BN { c[i, j] *= S[n*BN + j] }
  Y[m*BM +: BM, n*BN +: BN] = c
}
"""

# one codebook of 65536 times 8: 1 MB, which the L2 holds
AQLM16 = """tile 1
kernel aqlm16(X: f16[M, K], W: i32[N, K16], C: f16[65536, 8], S: f16[N], Y: out f16[M, N])
where K == 16 * K16
""" + HEAD + """
grid m < ceildiv(M, BM), n < ceildiv(N, BN)
{
  shared   x: f16[BM, BK], q: i32[BN, BK / 16]
  fragment w: f16[BN, BK], c: f32[BM, BN] = 0
  pipelined k < ceildiv(K, BK), stages {
    x = X[m*BM +: BM, k*BK +: BK]
    q = W[n*BN +: BN, k*(BK / 16) +: BK / 16]
    parallel i < BN, j < BK { w[i, j] = C[q[i, j / 16] >> (j / 8 % 2 * 16) & 65535, j % 8] }
    c += x @ w^T
  }
  parallel i < BM, j < BN { c[i, j] *= S[n*BN + j] }
  Y[m*BM +: BM, n*BN +: BN] = c
}
"""


def book(shape, t, d):
    return torch.randn(shape, device=device(t)).to(t.X.dtype)


def aqlm(t, d):
    q = t.W.long()
    return (t.C[0][q[..., 0]] + t.C[1][q[..., 1]]).reshape(d["N"], d["K"]) * t.S[:, None]


def aqlm16(t, d):
    q = t.W.long()
    return t.C[torch.stack((q & 65535, q >> 16 & 65535), -1)].reshape(d["N"], d["K"]) * t.S[:, None]


# --- MXFP4 ------------------------------------------------------------------------------------------------------------
MXFP4 = rows("mxfp4", "W: u4[N, K], S: u8[N, KG]", "K == 32 * KG", "q: u4[BN, BK]", ("", "q = W[n*BN +: BN, k*BK +: BK]"),
             """let v = i32(q[i, j]), e = v >> 1 & 3, m1 = v & 1
      let size = e == 0 ? 0.5 * m1 : (1 + 0.5 * m1) * (1 << (e - 1))
      w[i, j] = (v & 8) != 0 ? -size * exp2(f32(S[row, at / 32]) - 127) : size * exp2(f32(S[row, at / 32]) - 127)""")
MXFP4_TABLE = rows("mxfp4_table", "W: u4[N, K], S: u8[N, KG], C: bf16[16]", "K == 32 * KG", "q: u4[BN, BK], code: bf16[16]",
                   ("  code = C", "q = W[n*BN +: BN, k*BK +: BK]"), "w[i, j] = code[q[i, j]] * exp2(f32(S[row, at / 32]) - 127)",
                   head="key bucket(M), N, K\nwhere BM * BN <= 256 * 128, BK <= 128\ntune auto BM, BN, BK, stages")


def e8m0(shape, t, d):
    return torch.randint(117, 125, shape, device=device(t), dtype=torch.uint8)


def mxfp4(t, d):
    code = torch.tensor(E2M1, device=t.X.device, dtype=t.X.dtype)
    return code[low_first(t.W).long()] * wide(torch.exp2(t.S.to(t.X.dtype) - 127), 32)


# --- 4-bit weights, fp8 activations -----------------------------------------------------------------------------------
W4A8 = """tile 1
kernel w4a8(X: f8e4m3[M, K], A: f32[M], W: i4[N, K], S: f32[N], Y: out bf16[M, N])
key bucket(M), N, K
where BM * BN <= 256 * 128 && (BM <= 64 || BN >= 128)
tune BM = 16 | 64 | 128 | 256, BN = 64 | 128 | 256, BK = 128 | 256, stages = 3 | 4
grid m < ceildiv(M, BM), n < ceildiv(N, BN)
{
  shared   x: f8e4m3[BM, BK], q: i4[BN, BK]
  fragment w: f8e4m3[BN, BK], c: f32[BM, BN] = 0
  pipelined k < ceildiv(K, BK), stages {
    x = X[m*BM +: BM, k*BK +: BK]
    q = W[n*BN +: BN, k*BK +: BK]
    w = q
    c += x @ w^T
  }
  parallel i < BM, j < BN { c[i, j] *= A[m*BM + i] * S[n*BN + j] }
  Y[m*BM +: BM, n*BN +: BN] = c
}
"""
W4A8_GROUPS = """tile 1
kernel w4a8_groups(X: f8e4m3[M, K], A: f32[M], W: i4[N, K], S: bf16[N, KG], Y: out bf16[M, N])
where K == 128 * KG
key bucket(M), N, K
where BM * BN <= 128 * 128
tune BM = 16 | 64 | 128, BN = 64 | 128, BK = 128, stages = 2 | 3 | 4, threads = 128 | 256
grid m < ceildiv(M, BM), n < ceildiv(N, BN)
{
  shared   x: f8e4m3[BM, BK], q: i4[BN, BK]
  fragment w: f8e4m3[BN, BK], s: f32[BM, BN], c: f32[BM, BN] = 0
  pipelined k < KG, stages {
    x = X[m*BM +: BM, k*BK +: BK]
    q = W[n*BN +: BN, k*BK +: BK]
    w = q
    s = x @ w^T
    parallel i < BM, j < BN { c[i, j] += s[i, j] * S[n*BN + j, k] }
  }
  parallel i < BM, j < BN { c[i, j] *= A[m*BM + i] }
  Y[m*BM +: BM, n*BN +: BN] = c
}
"""


def fp8(shape, t, d):
    where = "cpu" if CPU() or not torch.cuda.is_available() else "cuda"
    return torch.randn(shape, device=where).to(torch.float8_e4m3fn)


def signed4(w):
    v = low_first(w).to(torch.int32)
    return torch.where(v > 7, v - 16, v).double()


def w4a8(t, d):
    return (t.X.double() @ signed4(t.W).T) * t.A.double()[:, None] * t.S.double()


def w4a8_groups(t, d):
    return (t.X.double() @ (signed4(t.W) * wide(t.S.double(), 128)).T) * t.A.double()[:, None]


def scaled_mm(t, d):
    if not hasattr(t, "plain8"):
        t.plain8 = torch.randn(d["N"], d["K"], device=t.X.device).to(torch.float8_e4m3fn)
        t.b8 = torch.rand(1, d["N"], device=t.X.device)
        t.a8 = t.A[:, None].contiguous()
    return torch._scaled_mm(t.X, t.plain8.T, scale_a=t.a8, scale_b=t.b8, out_dtype=torch.bfloat16)


w4a8_fills = {"X": fp8, "A": lambda s, t, d: scales(s, t, d), "W": nibbles,
              "S": lambda s, t, d: scales(s, t, d, dtype=torch.float32 if len(s) == 1 else torch.bfloat16)}

# --- 2 bits -----------------------------------------------------------------------------------------------------------
# as Q2_K of llama.cpp: 256 weights share two f16 factors, 16 share a 4-bit scale and a 4-bit minimum; element e of 128 is
# bits 2 (e / 32) of byte e % 32
Q2K = """tile 1
kernel q2k(X: f16[M, K], W: u8[N, KQ], SM: u8[N, KS], D: f16[N, KG], L: f16[N, KG], Y: out f16[M, N])
where K == 256 * KG, KQ == 64 * KG, KS == 16 * KG
key bucket(M), N, K
where BM * BN <= 256 * 128 && (BM <= 64 || BN >= 128)
tune BM = 16 | 64 | 128 | 256, BN = 64 | 128 | 256, BK = 128 | 256, stages = 2 | 3
grid m < ceildiv(M, BM), n < ceildiv(N, BN)
{
  shared   x: f16[BM, BK], q: u8[BN, BK / 4]
  fragment w: f16[BN, BK], c: f32[BM, BN] = 0
  pipelined k < ceildiv(K, BK), stages {
    x = X[m*BM +: BM, k*BK +: BK]
    q = W[n*BN +: BN, k*(BK / 4) +: BK / 4]
    parallel i < BN, j < BK {
      let row = n*BN + i, at = k*BK + j
      let v = q[i, j / 128 * 32 + j % 32] >> (j % 128 / 32 * 2) & 3, sm = SM[row, at / 16]
      w[i, j] = D[row, at / 256] * (sm & 15) * v - L[row, at / 256] * (sm >> 4)
    }
    c += x @ w^T
  }
  Y[m*BM +: BM, n*BN +: BN] = c
}
"""

# HQQ: 2 bits in groups of 64 with a scale and a zero point of 16 bits; four weights a byte
HQQ2 = rows("hqq2", "W: u8[N, KQ], S: bf16[N, KG], Z: bf16[N, KG]", "K == 64 * KG, K == 4 * KQ", "q: u8[BN, BK / 4]",
            ("", "q = W[n*BN +: BN, k*(BK / 4) +: BK / 4]"),
            "w[i, j] = (bf16(q[i, j / 4] >> (j % 4 * 2) & 3) - Z[row, at / 64]) * S[row, at / 64]")

# mixed: the columns that matter most come first and have 4 bits, the others 2
MIXED = """tile 1
kernel mixed(X: bf16[M, K], W4: u4[N, K4], S4: bf16[N, G4], W2: u8[N, Q2], S2: bf16[N, G2], Y: out bf16[M, N])
where K4 == 128 * G4, Q2 == 16 * G2, K == 128 * G4 + 64 * G2
key bucket(M), N, K, K4
""" + TUNE + """
grid m < ceildiv(M, BM), n < ceildiv(N, BN)
{
  shared   x: bf16[BM, BK], q4: u4[BN, BK], y: bf16[BM, BK], q2: u8[BN, BK / 4]
  fragment w: bf16[BN, BK], v: bf16[BN, BK], c: f32[BM, BN] = 0
  pipelined k < ceildiv(K4, BK), stages {
    x  = X[m*BM +: BM, k*BK +: BK]
    q4 = W4[n*BN +: BN, k*BK +: BK]
    parallel i < BN, j < BK { w[i, j] = (bf16(q4[i, j]) - 8) * S4[n*BN + i, (k*BK + j) / 128] }
    c += x @ w^T
  }
  pipelined k < ceildiv(4 * Q2, BK), stages {
    y  = X[m*BM +: BM, K4 + k*BK +: BK]
    q2 = W2[n*BN +: BN, k*(BK / 4) +: BK / 4]
    parallel i < BN, j < BK { v[i, j] = (bf16(q2[i, j / 4] >> (j % 4 * 2) & 3) - 1.5) * S2[n*BN + i, (k*BK + j) / 64] }
    c += y @ v^T
  }
  Y[m*BM +: BM, n*BN +: BN] = c
}
"""


def two_bits(w):
    return torch.stack([w >> s & 3 for s in (0, 2, 4, 6)], -1).flatten(-2)


def q2k(t, d):
    n = d["N"]
    q = torch.stack([t.W.view(n, -1, 32) >> s & 3 for s in (0, 2, 4, 6)], 2).reshape(n, -1).to(t.D.dtype)
    sm = wide(t.SM, 16)
    return wide(t.D, 256) * (sm & 15).to(q.dtype) * q - wide(t.L, 256) * (sm >> 4).to(q.dtype)


def hqq2(t, d):
    return (two_bits(t.W).to(t.S.dtype) - wide(t.Z, 64)) * wide(t.S, 64)


def mixed(t, d):
    return torch.cat(((low_first(t.W4).to(t.S4.dtype) - 8) * wide(t.S4, 128),
                      (two_bits(t.W2).to(t.S2.dtype) - 1.5) * wide(t.S2, 64)), 1)


mixed_shapes = {}
for _label, _one in shapes(128, 4).items():
    _g = max(_one["K"] // 128 // 4, 1)
    mixed_shapes[_label] = dict(_one, K4=128 * _g, G4=_g, Q2=(_one["K"] - 128 * _g) // 4, G2=(_one["K"] - 128 * _g) // 64)

CASES = [
    case("nf4_u4", NF4_U4, shapes(64, 16, **KG64), nf4_fills, nf4),
    case("nf4_bnb", NF4_BNB, shapes(64, 4, **KG64, **KH), {**nf4_fills, "W": bits}, nf4_bnb),
    Case("nf4_gemv", NF4_GEMV, gemv_shapes, product, fills=nf4_fills, reference=by(nf4), compiled=False, tolerance=1e-2),
    Case("ternary_i8", TERNARY, shapes(32, 8, KQ=lambda m, n, k: k // 4), product16, peers={"int_mm": int_mm},
         fills=ternary_fills, reference=ternary, compiled=False, tolerance=1e-2),
    Case("ternary_hf", TERNARY_HF, hf_shapes, product16, peers={"int_mm": int_mm}, fills=ternary_fills, reference=ternary_hf,
         compiled=False, tolerance=1e-2),
    case("trits_tq1", TRITS, shapes(160, 8, KG=lambda m, n, k: k // 160, KB=lambda m, n, k: k // 5),
         {"W": trits_bytes, "S": scales16}, trits),
    case("gptq3", GPTQ3, shapes(128, 8, KW=lambda m, n, k: k // 32, KG=lambda m, n, k: k // 128),
         {"W": words, "S": scales16, "Z": lambda s, t, d: torch.randint(0, 8, s, device=device(t), dtype=torch.uint8)}, gptq3),
    case("w3_rows", W3_ROWS, shapes(128, 1, KW=lambda m, n, k: 3 * k // 32, KG=lambda m, n, k: k // 128),
         {"W": words, "S": scales16}, w3_rows),
    case("awq", AWQ, awq_shapes, {"W": words, "S": scales16, "Z": words}, awq, peers={"tinygemm": tinygemm}),
    case("aqlm_2x8", AQLM, shapes(8, 4, K8=lambda m, n, k: k // 8), {"W": bits, "C": book, "S": scales16}, aqlm),
    case("aqlm_1x16", AQLM16, shapes(16, 1, K16=lambda m, n, k: k // 16), {"W": words, "C": book, "S": scales16}, aqlm16),
    case("mxfp4", MXFP4, shapes(32, 16, KG=lambda m, n, k: k // 32), {"W": nibbles, "S": e8m0}, mxfp4),
    case("mxfp4_table", MXFP4_TABLE, shapes(32, 4, KG=lambda m, n, k: k // 32),
         {"W": nibbles, "S": e8m0, "C": lambda s, t, d: torch.tensor(E2M1, device=device(t), dtype=torch.bfloat16)}, mxfp4),
    Case("w4a8_fp8", W4A8, shapes(16, 16), scaled_mm, fills=w4a8_fills, reference=w4a8, compiled=False, tolerance=1e-2),
    Case("w4a8_fp8_groups", W4A8_GROUPS, shapes(128, 16, KG=lambda m, n, k: k // 128), scaled_mm, fills=w4a8_fills,
         reference=w4a8_groups, compiled=False, tolerance=1e-2),
    case("q2k", Q2K, shapes(256, 1, KG=lambda m, n, k: k // 256, KQ=lambda m, n, k: k // 4, KS=lambda m, n, k: k // 16),
         {"W": bits, "SM": bits, "D": scales16, "L": scales16}, q2k),
    case("hqq2", HQQ2, shapes(64, 8, KQ=lambda m, n, k: k // 4, **KG64),
         {"W": bits, "S": scales16, "Z": lambda s, t, d: scales(s, t, d, 0, 3, t.X.dtype)}, hqq2),
    case("mixed_2_4", MIXED, mixed_shapes, {"W4": nibbles, "S4": scales16, "W2": bits, "S2": scales16}, mixed),
]
