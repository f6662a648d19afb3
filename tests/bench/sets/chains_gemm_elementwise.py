"""Gemms with chains of elementwise operations behind them, one of them of other layouts, and distances of all pairs."""
import torch
import torch.nn.functional as F
from sets.shared.chains import DEV, cases, mnk, value, wide

AUTO = "where BM <= 128\ntune auto BM, BN, BK, stages"
LIST = "tune BM = 64 | 128, BN = 64 | 128 | 256, BK = 64, stages = 6 | 4 | 3"


def gemm(name, params, tune, epilogue):
    return f"""tile 1

kernel {name}<T: f32 | f16 | bf16>(A: T[M, K], W: T[N, K], {params}C: out T[M, N])
key  bucket(M), N, K
{tune}
grid by < ceildiv(M, BM), bx < ceildiv(N, BN)
{{
  shared   a: T[BM, BK], w: T[BN, BK]
  fragment acc: f32[BM, BN] = 0

  pipelined k < ceildiv(K, BK), stages {{
    a = A[by*BM +: BM, k*BK +: BK]
    w = W[bx*BN +: BN, k*BK +: BK]
    acc += a @ w^T
  }}
  parallel i < BM, j < BN {{
    let row = by*BM + i, col = bx*BN + j
{epilogue}
  }}
  C[by*BM +: BM, bx*BN +: BN] = acc
}}
"""


# ---- relu(x W^T + b)
BIAS_RELU = gemm("gemm_bias_relu", "b: T[N], ", AUTO, "    acc[i, j] = max(acc[i, j] + b[col], 0)")
# ---- gelu(hardtanh(s * x W^T))
HARDTANH = gemm("gemm_scale_hardtanh_gelu", "s: T[N], ", AUTO, """\
    let x = clamp(acc[i, j] * s[col], -2, 2)
    acc[i, j] = 0.5 * x * (1 + erf(x * 0.70710678))""")
# ---- mish(mish(x W^T + b))
MISH = gemm("matmul_mish_mish", "b: T[N], ", LIST, """\
    let x = acc[i, j] + b[col]
    let y = x * tanh(log(1 + exp(x)))
    acc[i, j] = y * tanh(log(1 + exp(y)))""")
# ---- x sigmoid(x) scale
SWISH = gemm("matmul_swish_scaling", "b: T[N], scale: f32, ", AUTO, """\
    let x = acc[i, j] + b[col]
    acc[i, j] = x * rcp(1 + exp(-x)) * scale""")
# ---- x + scale * sigmoid(x), the residual is the product itself
RESADD = gemm("gemm_sigmoid_scaling_resadd", "b: T[N], scale: f32, ", LIST, """\
    let x = acc[i, j] + b[col]
    acc[i, j] = x + scale * rcp(1 + exp(-x))""")
# ---- leaky_relu(m * (x W^T + b))
LEAKY = gemm("gemm_multiply_leakyrelu", "b: T[N], m: f32, slope: f32, ", AUTO, """\
    let x = (acc[i, j] + b[col]) * m
    acc[i, j] = x > 0 ? x : x * slope""")
# ---- min(x W^T + b, c) - c
MIN_SUB = gemm("matmul_min_subtract", "b: T[N], c: f32, ", AUTO, "    acc[i, j] = min(acc[i, j] + b[col], c) - c")
# ---- dropout with a mask that is given, then the residual
DROPOUT = gemm("gemm_dropout_residual", "b: T[N], keep: u8[M, N], R: T[M, N], scale: f32, ", LIST, """\
    let x = acc[i, j] + b[col]
    acc[i, j] = (keep[row, col] != 0 ? x * scale : 0.0) + R[row, col]""")
# ---- clamp(tanh(clamp(swish(x) / 2)))
CLAMPS = gemm("gemm_swish_divide_clamp_tanh_clamp", "b: T[N], ", AUTO, """\
    let x = acc[i, j] + b[col]
    let y = clamp(x * rcp(1 + exp(-x)) / 2, -1, 1)
    acc[i, j] = clamp(tanh(y), -1, 1)""")
# ---- hardtanh(gelu(tanh(swish(x + a))))
ADD_CHAIN = gemm("matmul_add_swish_tanh_gelu_hardtanh", "b: T[N], add: T[N], ", AUTO, """\
    let x = acc[i, j] + b[col] + add[col]
    let y = tanh(x * rcp(1 + exp(-x)))
    acc[i, j] = clamp(0.5 * y * (1 + erf(y * 0.70710678)), -1, 1)""")

# ---- interleaved GLU: column 2j is the value, column 2j + 1 its gate
GLU = """tile 1

kernel gemm_glu_interleaved<T: f32 | f16 | bf16>(A: T[M, K], W: T[N, K], b: T[N], C: out T[M, H])
where N == 2 * H
key  bucket(M), N, K
tune BM = 128 | 64, BH = 64 | 128 | 32, BK = 64 | 32, stages = 4 | 3
grid by < ceildiv(M, BM), bx < ceildiv(H, BH)
{
  shared   a: T[BM, BK], w: T[2*BH, BK]
  fragment acc: f32[BM, 2*BH] = 0, y: f32[BM, BH]

  pipelined k < ceildiv(K, BK), stages {
    a = A[by*BM +: BM, k*BK +: BK]
    w = W[bx*2*BH +: 2*BH, k*BK +: BK]
    acc += a @ w^T
  }
  parallel i < BM, j < BH {
    let col = 2*(bx*BH + j)
    let x = acc[i, 2*j] + b[col], g = acc[i, 2*j + 1] + b[col + 1]
    y[i, j] = x * rcp(1 + exp(-g))
  }
  C[by*BM +: BM, bx*BH +: BH] = y
}
"""

# ---- exp(-gamma |x - y|^2): all pairs
RBF = """tile 1

kernel rbf<T: f32 | f16 | bf16>(X: T[M, K], Y: T[N, K], C: out T[M, N], gamma: f32)
key  bucket(M), N, K
tune BM = 128 | 64, BN = 128 | 64, BK = 32 | 64, stages = 3 | 2 | 4
grid by < ceildiv(M, BM), bx < ceildiv(N, BN)
{
  shared   x: T[BM, BK], y: T[BN, BK]
  fragment acc: f32[BM, BN] = 0, xx: f32[BM] = 0, yy: f32[BN] = 0

  pipelined k < ceildiv(K, BK), stages {
    x = X[by*BM +: BM, k*BK +: BK]
    y = Y[bx*BN +: BN, k*BK +: BK]
    acc += x @ y^T
    parallel i < BM { xx[i] += sum[c < BK](let v = f32(x[i, c]) in v * v) }
    parallel j < BN { yy[j] += sum[c < BK](let v = f32(y[j, c]) in v * v) }
  }
  parallel i < BM, j < BN { acc[i, j] = exp(-gamma * max(xx[i] + yy[j] - 2 * acc[i, j], 0)) }
  C[by*BM +: BM, bx*BN +: BN] = acc
}
"""

# ---- gelu(A^T W + b)^T: A is stored by k, the result by column
TRANSPOSED = """tile 1

kernel gemm_ta_bias_gelu_tc<T: f32 | f16 | bf16>(A: T[K, M], W: T[K, N], b: T[N], C: out T[N, M])
key  bucket(M), N, K
tune BM = 128 | 64, BN = 128 | 256 | 64, BK = 64 | 32, stages = 4 | 3
grid by < ceildiv(M, BM), bx < ceildiv(N, BN)
{
  shared   a: T[BK, BM], w: T[BK, BN]
  fragment acc: f32[BM, BN] = 0, y: T[BN, BM]

  pipelined k < ceildiv(K, BK), stages {
    a = A[k*BK +: BK, by*BM +: BM]
    w = W[k*BK +: BK, bx*BN +: BN]
    acc += a^T @ w
  }
  parallel j < BN, i < BM {
    let x = acc[i, j] + b[bx*BN + j]
    y[j, i] = 0.5 * x * (1 + erf(x * 0.70710678))
  }
  C[bx*BN +: BN, by*BM +: BM] = y
}
"""


def glu(t, d):
    x = F.linear(t.A, t.W, t.b)
    return x[:, 0::2] * torch.sigmoid(x[:, 1::2])


def halves(shapes):
    return {label: {**of, "H": of["N"] // 2} for label, of in shapes.items()}


def rbf(t, d):
    x, y = wide(t.X), wide(t.Y)
    dots = wide(t.X @ t.Y.t())
    square = x.square().sum(1)[:, None] + y.square().sum(1) - 2 * dots
    return torch.exp(-t.gamma * square.clamp(min=0)).to(t.X.dtype)


def dropout(t, d):
    return torch.where(t.keep != 0, F.linear(t.A, t.W, t.b) * t.scale, 0.0) + t.R


CASES = [
    *cases("gemm_bias_relu", BIAS_RELU, lambda t, d: F.relu(F.linear(t.A, t.W, t.b)),
           mnk((4096, 8192, 4096), (1001, 1777, 1003)), mnk((1024, 4096, 4096), (333, 517, 259))),
    *cases("gemm_scale_hardtanh_gelu", HARDTANH, lambda t, d: F.gelu(F.hardtanh(F.linear(t.A, t.W) * t.s, -2.0, 2.0)),
           mnk((2048, 8192, 8192), (1009, 1501, 999)), mnk((2048, 2048, 4096), (411, 389, 501))),
    *cases("matmul_mish_mish", MISH, lambda t, d: F.mish(F.mish(F.linear(t.A, t.W, t.b))),
           mnk((4096, 8192, 4096), (1007, 1201, 1511)), t16="f16"),
    *cases("matmul_swish_scaling", SWISH, lambda t, d: F.silu(F.linear(t.A, t.W, t.b)) * t.scale,
           mnk((4096, 4096, 8192), (777, 2049, 1111)), mnk((1024, 4096, 4096), (255, 1023, 511)),
           fills={"scale": value(2.0)}),
    *cases("gemm_sigmoid_scaling_resadd", RESADD,
           lambda t, d: (lambda x: x + torch.sigmoid(x) * t.scale)(F.linear(t.A, t.W, t.b)),
           mnk((4096, 8192, 4096), (1001, 1003, 1005)), fills={"scale": value(2.0)}),
    *cases("gemm_multiply_leakyrelu", LEAKY, lambda t, d: F.leaky_relu(F.linear(t.A, t.W, t.b) * t.m, t.slope),
           mnk((1024, 8192, 8192), (129, 4099, 2051)), mnk((512, 4096, 8192), (129, 1027, 517)), t16="f16",
           fills={"m": value(2.0), "slope": value(0.1)}),
    *cases("matmul_min_subtract", MIN_SUB, lambda t, d: F.linear(t.A, t.W, t.b).clamp(max=t.c) - t.c,
           mnk((128, 16384, 16384), (61, 3001, 4099)), fills={"c": value(0.5)}),
    *cases("gemm_dropout_residual", DROPOUT, dropout, mnk((8192, 4096, 4096), (1501, 999, 1013)),
           fills={"scale": value(1 / 0.9)},
           plain={"keep": lambda s, d: (torch.rand(s, device=DEV) < 0.9).to(torch.uint8)}),
    *cases("gemm_swish_divide_clamp_tanh_clamp", CLAMPS,
           lambda t, d: torch.tanh((F.silu(F.linear(t.A, t.W, t.b)) / 2.0).clamp(-1.0, 1.0)).clamp(-1.0, 1.0),
           mnk((2048, 8192, 8192), (517, 1025, 2047))),
    *cases("matmul_add_swish_tanh_gelu_hardtanh", ADD_CHAIN,
           lambda t, d: F.hardtanh(F.gelu(torch.tanh(F.silu(F.linear(t.A, t.W, t.b) + t.add)))),
           mnk((2048, 8192, 8192), (517, 1025, 2047))),
    *cases("gemm_glu_interleaved", GLU, glu, halves(mnk((4096, 8192, 4096), (1001, 1002, 1003), (13, 22, 17))),
           halves(mnk((1024, 4096, 4096), (333, 514, 259), (13, 22, 17)))),
    *cases("rbf_kernel", RBF, rbf, mnk((8192, 8192, 512), (1501, 2003, 301)), mnk((4096, 4096, 512), (501, 703, 131)),
           fills={"gamma": lambda s, d: 0.5 / d["K"]}),
    *cases("gemm_ta_bias_gelu_tc", TRANSPOSED, lambda t, d: F.gelu(t.A.t() @ t.W + t.b).t().contiguous(),
           mnk((4096, 4096, 8192), (1001, 777, 1003)), mnk((1024, 4096, 4096), (333, 517, 259)),
           fills={"W": lambda s, d: torch.randn(s, device=DEV) * s[0] ** -0.5}),
]
