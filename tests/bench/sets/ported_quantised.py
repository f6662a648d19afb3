"""Quantised products, matrix-vector products and quantisation, as in TileLang's and Triton's collections."""
import torch
from sets.shared.everyday import B16, BF, DEV, const, wide
from unseen import Case


def bytes_(low=0, high=256):
    return lambda s, t, d: torch.randint(low, high, s, device=DEV).to(torch.uint8)


def uniform32(low, high, dtype=torch.float32):
    return lambda s, t, d: (torch.rand(s, device=DEV) * (high - low) + low).to(dtype)


# ---- int4 in bytes, low nibble first, symmetric, one scale for 64 weights (TileLang's dequantize_gemm)
W4 = """tile 1
kernel dequant_gemm_int4<T: f16 | bf16>(A: T[M, K], B: u8[N, K2], S: T[N, Kg], C: out T[M, N])
where K == 2 * K2, Kg == ceildiv(K, 64)
key bucket(M), N, K2
tune BM = 64 | 128 | 16, BN = 128 | 64, BK = 64 | 128, stages = 3 | 4
grid m < ceildiv(M, BM), n < ceildiv(N, BN)
{
  shared   a: T[BM, BK], q: u8[BN, BK / 2]
  fragment w: T[BN, BK], acc: f32[BM, BN] = 0
  pipelined k < ceildiv(K, BK), stages {
    a = A[m*BM +: BM, k*BK +: BK]
    q = B[n*BN +: BN, k*(BK / 2) +: BK / 2]
    parallel i < BN, j < BK {
      let v = (q[i, j / 2] >> (j % 2 * 4)) & 15
      w[i, j] = T(v - 8) * S[n*BN + i, (k*BK + j) / 64]
    }
    acc += a @ w^T
  }
  C[m*BM +: BM, n*BN +: BN] = acc
}
"""


def nibbles(q):
    return torch.stack((q & 15, q >> 4), -1).flatten(-2)


def dequant_gemm_int4(t, d):
    w = (nibbles(t.B).to(t.A.dtype) - 8) * t.S.repeat_interleave(64, 1)[:, :d["K"]]
    return t.A @ w.T


# ---- fp4 (e2m1) in bytes with a power of two for 32 elements (mxfp4), bf16 activations
FP4 = """tile 1
kernel dequant_gemm_fp4(A: bf16[M, K], B: u8[N, K2], E: u8[N, Kg], bias: bf16[N], C: out bf16[M, N])
where K == 2 * K2, K == 32 * Kg
key bucket(M), N, K2
tune BM = 64 | 128 | 16, BN = 128 | 64, BK = 64 | 128, stages = 3 | 4
grid m < ceildiv(M, BM), n < ceildiv(N, BN)
{
  shared   a: bf16[BM, BK], q: u8[BN, BK / 2]
  fragment w: bf16[BN, BK], acc: f32[BM, BN] = 0
  pipelined k < ceildiv(K, BK), stages {
    a = A[m*BM +: BM, k*BK +: BK]
    q = B[n*BN +: BN, k*(BK / 2) +: BK / 2]
    parallel i < BN, j < BK {
      let v = (q[i, j / 2] >> (j % 2 * 4)) & 15
      let e = (v >> 1) & 3, f = v & 1
      let size = e == 0 ? 0.5 * f : exp2(f32(e - 1)) * (1 + 0.5 * f)
      let p = exp2(f32(E[n*BN + i, (k*BK + j) / 32]) - 127)
      w[i, j] = (v >= 8 ? -size : size) * p
    }
    acc += a @ w^T
  }
  parallel i < BM, j < BN { acc[i, j] += bias[n*BN + j] }
  C[m*BM +: BM, n*BN +: BN] = acc
}
"""
VALUES = [0., .5, 1., 1.5, 2., 3., 4., 6., -0., -.5, -1., -1.5, -2., -3., -4., -6.]
TABLE = {}


def dequant_gemm_fp4(t, d):
    table = TABLE.setdefault(0, torch.tensor(VALUES, device=t.A.device))
    w = table[nibbles(t.B).int()] * torch.exp2(t.E.float() - 127).repeat_interleave(32, 1)
    return t.A @ w.to(t.A.dtype).T + t.bias


# ---- bitnet: activations of 8 bits, ternary weights, four a byte; scales of the rows and of the matrix
BITNET = """tile 1
kernel bitnet(A: i8[M, K], B: u8[N, K4], s: f32[M], C: out bf16[M, N], ws: f32)
where K == 4 * K4
key bucket(M), N, K4
tune BM = 64 | 128 | 16, BN = 128 | 64, BK = 128 | 64, stages = 3 | 4
grid m < ceildiv(M, BM), n < ceildiv(N, BN)
{
  shared   a: i8[BM, BK], q: u8[BN, BK / 4]
  fragment w: i8[BN, BK], acc: i32[BM, BN] = 0, y: f32[BM, BN]
  pipelined k < ceildiv(K, BK), stages {
    a = A[m*BM +: BM, k*BK +: BK]
    q = B[n*BN +: BN, k*(BK / 4) +: BK / 4]
    parallel i < BN, j < BK { w[i, j] = (q[i, j / 4] >> (j % 4 * 2) & 3) - 1 }
    acc += a @ w^T
  }
  parallel i < BM, j < BN { y[i, j] = acc[i, j] * (s[m*BM + i] * ws) }
  C[m*BM +: BM, n*BN +: BN] = y
}
"""


def ternary_bytes(s, t, d):
    v = torch.randint(0, 3, (*s, 4), device=DEV)
    return (v[..., 0] + v[..., 1] * 4 + v[..., 2] * 16 + v[..., 3] * 64).to(torch.uint8)


def ternary(t):
    q = t.B
    return torch.stack((q & 3, (q >> 2) & 3, (q >> 4) & 3, q >> 6), -1).flatten(-2).to(torch.int8) - 1


def bitnet(t, d):
    w = ternary(t)
    if t.A.is_cuda:
        return ((t.A.to(BF) @ w.to(BF).T).float() * (t.s * t.ws)[:, None]).to(BF)
    return (t.A.double() @ w.double().T) * (t.s * t.ws)[:, None]


def bitnet_reference(t, d):
    return (t.A.double() @ ternary(t).double().T) * (t.s * t.ws)[:, None]


# ---- int8, a scale for each row and column; bias
W8A8 = """tile 1
kernel w8a8(A: i8[M, K], B: i8[N, K], sa: f32[M], sb: f32[N], bias: bf16[N], C: out bf16[M, N])
key bucket(M), N, K
tune auto BM, BN, BK, stages
grid m < ceildiv(M, BM), n < ceildiv(N, BN)
{
  shared   a: i8[BM, BK], b: i8[BN, BK]
  fragment acc: i32[BM, BN] = 0, y: bf16[BM, BN]
  pipelined k < ceildiv(K, BK), stages {
    a = A[m*BM +: BM, k*BK +: BK]
    b = B[n*BN +: BN, k*BK +: BK]
    acc += a @ b^T
  }
  parallel i < BM, j < BN { y[i, j] = f32(acc[i, j]) * sa[m*BM + i] * sb[n*BN + j] + bias[n*BN + j] }
  C[m*BM +: BM, n*BN +: BN] = y
}
"""


def w8a8(t, d):
    if t.A.is_cuda and d["M"] > 16 and d["K"] % 8 == 0 and d["N"] % 8 == 0:
        c = torch._int_mm(t.A, t.B.T).float()
    elif t.A.is_cuda:
        c = (t.A.to(BF) @ t.B.to(BF).T).float()
    else:
        c = t.A.double() @ t.B.double().T
    return (c * t.sa[:, None] * t.sb + t.bias).to(BF)


def w8a8_reference(t, d):
    return (t.A.double() @ t.B.double().T) * t.sa[:, None] * t.sb + t.bias


def int_mm(t, d):
    return torch._int_mm(t.A, t.B.T)


# ---- block-scaled: fp8 both, powers of two for 32 elements of k on both sides (mxfp8, Triton's tutorial 10)
MX8 = """tile 1
kernel mxfp8(A: f8e4m3[M, K], EA: u8[M, Kg], B: f8e4m3[N, K], EB: u8[N, Kg], C: out f16[M, N])
where K == 32 * Kg
key bucket(M), N, K
tune BM = 128 | 64, BN = 128 | 64, BK = 128 | 64, stages = 3 | 4 | 2
grid m < ceildiv(M, BM), n < ceildiv(N, BN)
{
  shared   a8: f8e4m3[BM, BK], b8: f8e4m3[BN, BK]
  fragment a: f16[BM, BK], b: f16[BN, BK], acc: f32[BM, BN] = 0
  pipelined k < ceildiv(K, BK), stages {
    a8 = A[m*BM +: BM, k*BK +: BK]
    b8 = B[n*BN +: BN, k*BK +: BK]
    parallel i < BM, j < BK { a[i, j] = a8[i, j] * exp2(f32(EA[m*BM + i, (k*BK + j) / 32]) - 127) }
    parallel i < BN, j < BK { b[i, j] = b8[i, j] * exp2(f32(EB[n*BN + i, (k*BK + j) / 32]) - 127) }
    acc += a @ b^T
  }
  C[m*BM +: BM, n*BN +: BN] = acc
}
"""


def mx_scaled(t, d):
    real = torch.float64 if t.A.dtype == torch.float64 else torch.float16

    def one(x, e):
        return x.to(real) * torch.exp2(e.to(torch.float32) - 127).to(real).repeat_interleave(32, 1)
    return one(t.A, t.EA) @ one(t.B, t.EB).T


def f16_matmul(t, d):
    key = d["M"], d["N"], d["K"]
    if key not in TABLE:
        TABLE[key] = [torch.randn(n, d["K"], device=t.A.device).half() for n in key[:2]]
    return TABLE[key][0] @ TABLE[key][1].T


# ---- a vector by int4 weights with zero points, a block for a few rows (gemv variants of decoding)
GEMV4 = """tile 1
kernel gemv_int4<T: f16 | bf16>(X: T[K], W: u4[N, K], S: T[N, Kg], Z: u4[N, Kg], Y: out T[N])
where Kg == K / 128, K % 128 == 0
key N, K
tune rows = 4 | 8 | 16, groups = 4 | 8 | 16
grid n < ceildiv(N, rows)
{
  fragment q: u4[rows, groups * 128], x: T[groups * 128], acc: f32[rows] = 0
  for k < ceildiv(Kg, groups) {
    q = W[n*rows +: rows, k*groups*128 +: groups * 128]
    x = X[k*groups*128 +: groups * 128]
    parallel i < rows {
      acc[i] += sum[g < groups, j < 128]((q[i, g*128 + j] - Z[n*rows + i, k*groups + g]) * x[g*128 + j] * S[n*rows + i, k*groups + g])
    }
  }
  Y[n*rows +: rows] = acc
}
"""


def gemv_int4(t, d):
    z = nibbles(t.Z)[:, :d["Kg"]].to(t.X.dtype)
    w = nibbles(t.W).to(t.X.dtype).unflatten(1, (-1, 128))
    return ((w - z[..., None]) * t.S[..., None]).flatten(1) @ t.X


# ---- rows of experts' matrices by number, times one vector each (gather_gemv: mixture of experts with one token)
GATHER = """tile 1
kernel gather_gemv<T: f16 | bf16>(W: T[E, N, K], pick: i32[R], X: T[K], Y: out T[R, N])
key R, N, K
tune rows = 1 | 2 | 4 | 8, BK = 512 | 1024 | 2048
grid r < R, n < ceildiv(N, rows)
{
  fragment w: T[rows, BK], x: T[BK], acc: f32[rows] = 0
  let e = pick[r]
  for k < ceildiv(K, BK) {
    w = W[e, n*rows +: rows, k*BK +: BK]
    x = X[k*BK +: BK]
    parallel i < rows { acc[i] += sum[j < BK](w[i, j] * x[j]) }
  }
  Y[r, n*rows +: rows] = acc
}
"""


def gather_gemv(t, d):
    return t.W[t.pick.long()] @ t.X


# ---- to fp8, a scale for 128 elements of a token
CAST = """tile 1
kernel per_token_cast<T: f16 | bf16>(X: T[M, N], Y: out f8e4m3[M, N], S: out f32[M, G])
where G == ceildiv(N, 128)
key bucket(M), N
tune rows = 1 | 4 | 8 | 16
grid m < ceildiv(M, rows), g < G
{
  fragment x: f32[rows, 128], s: f32[rows]
  x = X[m*rows +: rows, g*128 +: 128]
  parallel i < rows { s[i] = max(max[j < 128](abs(x[i, j])), 1e-4) / 448.0 }
  parallel i < rows, j < 128 { x[i, j] = clamp(x[i, j] / s[i], -448.0, 448.0) }
  Y[m*rows +: rows, g*128 +: 128] = x
  S[m*rows +: rows, g] = s
}
"""


def per_token_cast(t, d):
    x = torch.nn.functional.pad(wide(t.X), (0, -d["N"] % 128)).unflatten(1, (-1, 128))
    s = x.abs().amax(-1).clamp(1e-4) / 448
    y = (x / s[..., None]).clamp(-448, 448).flatten(1)[:, :d["N"]]
    return (y.float().to(torch.float8_e4m3fn), s.float()) if x.dtype != torch.float64 else (
        y.float().to(torch.float8_e4m3fn), s)


CASES = [
    Case("w4_packed", W4, {"large": dict(M=2048, N=4096, K=4096, K2=2048, Kg=64), "odd": dict(M=37, N=1999, K=1416, K2=708, Kg=23),
                           "small": dict(M=20, N=70, K=136, K2=68, Kg=3)}, dequant_gemm_int4, types={"T": "f16"},
         fills={"S": uniform32(0.01, 0.1, torch.float16)}),
    Case("fp4_mx", FP4, {"large": dict(M=1024, N=5760, K=2880, K2=1440, Kg=90), "odd": dict(M=101, N=1201, K=1440, K2=720, Kg=45),
                         "small": dict(M=20, N=70, K=160, K2=80, Kg=5)}, dequant_gemm_fp4, fills={"E": bytes_(122, 128)}),
    Case("bitnet", BITNET, {"large": dict(M=4096, N=4096, K=4096, K4=1024), "odd": dict(M=77, N=1201, K=1452, K4=363),
                            "small": dict(M=20, N=70, K=140, K4=35)}, bitnet, reference=bitnet_reference,
         fills={"B": ternary_bytes, "s": uniform32(0.01, 0.02), "ws": const(0.125)},
         peers={"int_mm": lambda t, d: torch._int_mm(t.A, t.A[:d["N"]].T)}),
    Case("w8a8", W8A8, {"large": dict(M=8192, N=4096, K=4096), "odd": dict(M=1013, N=1208, K=1400),
                        "small": dict(M=40, N=72, K=136)}, w8a8, reference=w8a8_reference,
         fills={"sa": uniform32(0.001, 0.01), "sb": uniform32(0.001, 0.01)}, peers={"int_mm": int_mm}),
    Case("mxfp8", MX8, {"large": dict(M=4096, N=4096, K=4096, Kg=128), "odd": dict(M=901, N=1303, K=1376, Kg=43),
                        "small": dict(M=40, N=70, K=160, Kg=5)}, mx_scaled, fills={"EA": bytes_(123, 129), "EB": bytes_(123, 129)},
         peers={"f16_matmul": f16_matmul}),
    Case("gemv_int4", GEMV4, {"large": dict(N=14336, K=8192, Kg=64), "odd": dict(N=5003, K=6400, Kg=50),
                              "small": dict(N=30, K=768, Kg=6)}, gemv_int4, types=B16,
         fills={"S": uniform32(0.01, 0.1, BF), "Z": lambda s, t, d: bytes_()((s[0], (s[1] + 1) // 2), t, d)}),
    Case("gather_gemv", GATHER, {"large": dict(E=16, R=8, N=4096, K=4096), "odd": dict(E=7, R=3, N=2999, K=2003),
                                 "small": dict(E=3, R=2, N=21, K=300)}, gather_gemv, types=B16,
         fills={"pick": lambda s, t, d: torch.randperm(d["E"], device=DEV)[:s[0]].to(torch.int32)}),
    Case("per_token_cast", CAST, {"large": dict(M=16384, N=7168, G=56), "odd": dict(M=2039, N=3001, G=24),
                                  "small": dict(M=20, N=300, G=3)}, per_token_cast, types=B16),
]
