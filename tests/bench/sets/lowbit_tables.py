"""Linear layers whose weights are numbers of a table, or ternary."""
import torch
from sets.shared.lowbit_tables import (
    CPU,
    HEAD,
    KG64,
    bits,
    by,
    case,
    device,
    low_first,
    nibbles,
    product,
    rows,
    scales,
    scales16,
    shapes,
    table,
    wide,
)
from unseen import Case


NF4 = [-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
       -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
       0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0]
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
]
