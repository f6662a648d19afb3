"""Linear layers whose weights of 2 to 4 bits have scales by groups."""
import torch
from sets.shared.lowbit_tables import (
    CPU,
    KG64,
    TUNE,
    bits,
    case,
    device,
    low_first,
    nibbles,
    rows,
    scales,
    scales16,
    shapes,
    wide,
)
from unseen import Case


E2M1 = [0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6]

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
