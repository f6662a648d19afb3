"""Linear layers whose weights are packed in words, or rows of codebooks."""
import torch
from sets.shared.lowbit_tables import HEAD, bits, case, device, scales16, shapes, wide


def words(shape, t, d):
    return torch.randint(-2**31, 2**31, shape, device=device(t), dtype=torch.int64).to(torch.int32)


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

CASES = [
    case("gptq3", GPTQ3, shapes(128, 8, KW=lambda m, n, k: k // 32, KG=lambda m, n, k: k // 128),
         {"W": words, "S": scales16, "Z": lambda s, t, d: torch.randint(0, 8, s, device=device(t), dtype=torch.uint8)}, gptq3),
    case("w3_rows", W3_ROWS, shapes(128, 1, KW=lambda m, n, k: 3 * k // 32, KG=lambda m, n, k: k // 128),
         {"W": words, "S": scales16}, w3_rows),
    case("awq", AWQ, awq_shapes, {"W": words, "S": scales16, "Z": words}, awq, peers={"tinygemm": tinygemm}),
    case("aqlm_2x8", AQLM, shapes(8, 4, K8=lambda m, n, k: k // 8), {"W": bits, "C": book, "S": scales16}, aqlm),
    case("aqlm_1x16", AQLM16, shapes(16, 1, K16=lambda m, n, k: k // 16), {"W": words, "C": book, "S": scales16}, aqlm16),
]
