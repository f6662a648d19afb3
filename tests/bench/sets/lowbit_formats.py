"""Quantising to formats of few bits; 2:4 sparse weights."""
import torch
import torch.nn.functional as F
from sets.shared.lowbit import DEVICE, dense, linear, low_first, nibbles, normal, uniform
from unseen import Case


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
    # By numbers that the device holds: of others torch multiplies with the inverse, which is another quotient.
    six, factor = torch.tensor([6, t.factor], device=t.X.device)
    x = t.X.float().view(d["M"], -1, 16)
    s = (x.abs().amax(-1) / six * factor).clamp(max=448).to(torch.float8_e4m3fn)
    u = (s.float() / factor)[..., None]
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
    Case("to_mxfp8", MXFP8, mx8_sizes, mx(8), fills={"X": outliers}),
    Case("to_mxfp4", MXFP4, mx4_sizes, mx(4), fills={"X": outliers}),
    Case("to_nvfp4", NVFP4, nv4_sizes, nvfp4, fills={"X": outliers, "factor": lambda s, t, d: 0.75}),
    Case("sparse24", SPARSE24, sparse_sizes, dense, fills={"P": pairs, "V": normal(torch.bfloat16)}, reference=sparse24_reference,
         peers={"cusparselt": cusparselt}, compiled=False, tolerance=1e-2),
    Case("sparse24_w4", SPARSE24_W4, sparse_w4_sizes, dense, fills={"P": pairs, "V": nibbles, "S": uniform(0.01, 0.05, torch.bfloat16)},
         reference=sparse24_reference, peers={"cusparselt": cusparselt}, compiled=False, tolerance=1e-2),
]
