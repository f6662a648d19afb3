"""Quantisation around the layers of a server, and the products of quantised operands (vLLM, SGLang, TensorRT-LLM)."""
import torch
import torch.nn.functional as F
from sets.shared.everyday import B16, BF, DEV, const, uniform, wide
from unseen import Case

F8 = torch.float8_e4m3fn


def normal(scale, dtype=BF):
    return lambda s, t, d: (torch.randn(s, device=DEV) * scale).to(dtype)


def around_one(s, t, d):
    return (1 + 0.1 * torch.randn(s, device=DEV)).to(BF)


# ---- silu(a) b, to 8-bit floats with a scale a token
SILU_FP8 = """tile 1
kernel silu_mul_fp8<T: f16 | bf16>(X: T[N, C], Q: out f8e4m3[N, H], scale: out f32[N])
where C == 2 * H
key bucket(N), H
tune threads = 256 | 512 | 1024
grid n < N
{
  fragment a: f32[H], b: f32[H], q: f8e4m3[H]
  a = X[n, 0 +: H]
  b = X[n, H +: H]
  parallel j < H { a[j] = a[j] * rcp(1 + exp(-a[j])) * b[j] }
  let s = max(max[j < H](abs(a[j])), 1e-6) / 448
  let inv = 1 / s
  parallel j < H { q[j] = a[j] * inv }
  Q[n, :] = q
  parallel i < 1 { scale[n] = s }
}
"""


def silu_mul_fp8(t, d):
    a, b = wide(t.X).chunk(2, -1)
    y = F.silu(a) * b
    s = y.abs().amax(-1).clamp(min=1e-6) / 448
    return (y / s[:, None]).to(F8), s


# ---- residual add, rmsnorm, signed bytes with a scale a token
NORM_INT8 = """tile 1
kernel add_rmsnorm_int8<T: f16 | bf16>(X: T[N, D], R: inout T[N, D], W: T[D], Q: out i8[N, D], scale: out f32[N, 1], eps: f32)
key bucket(N), D
tune rows = 1 | 2 | 4
grid b < ceildiv(N, rows)
{
  fragment x: f32[rows, D], r: f32[rows, D], q: i8[rows, D], s: f32[rows]
  x = X[b*rows +: rows, :]
  r = R[b*rows +: rows, :]
  parallel i < rows, d < D { x[i, d] += r[i, d] }
  R[b*rows +: rows, :] = x
  parallel i < rows, d < D { x[i, d] *= rsqrt(sum[k < D](x[i, k] * x[i, k]) / D + eps) * W[d] }
  parallel i < rows { s[i] = max(max[d < D](abs(x[i, d])), 1e-8) / 127 }
  parallel i < rows, d < D { q[i, d] = round(x[i, d] / s[i]) }
  Q[b*rows +: rows, :] = q
  scale[b*rows +: rows, 0] = s
}
"""


def add_rmsnorm_int8(t, d):
    h = wide(t.X) + wide(t.R)
    y = h * (h.square().mean(-1, keepdim=True) + t.eps).rsqrt() * t.W
    s = y.abs().amax(-1, keepdim=True).clamp(min=1e-8) / 127
    return h.to(t.X.dtype), (y / s).round().to(torch.int8), s


# ---- silu(a) b of each expert's tokens, 8-bit floats with a scale for 128 elements; what is not used stays as it is
MASKED_QUANT = """tile 1
kernel silu_mul_masked_quant<T: f16 | bf16>(X: T[E, M, C], used: i32[E], Q: inout f8e4m3[E, M, H], scale: inout f32[E, M, G])
where C == 2 * H && H == G * 128
key E, bucket(M), H
tune R = 4 | 8 | 16
grid e < E, m < ceildiv(M, R), g < G
{
  fragment a: f32[R, 128], b: f32[R, 128], q: f8e4m3[R, 128], s: f32[R]
  if m*R < used[e] {
    a = X[e, m*R +: R, g*128 +: 128]
    b = X[e, m*R +: R, H + g*128 +: 128]
    parallel i < R, j < 128 { a[i, j] = a[i, j] * rcp(1 + exp(-a[i, j])) * b[i, j] }
    parallel i < R { s[i] = exp2(ceil(log2(max(max[j < 128](abs(a[i, j])), 1e-6) / 448))) }
    parallel i < R, j < 128 { q[i, j] = a[i, j] / s[i] }
    Q[e, m*R +: R, g*128 +: 128] within 0 +: used[e] = q
    scale[e, m*R +: R, g] within 0 +: used[e] = s
  }
}
"""


def masked_quant(t, d):
    a, b = wide(t.X).chunk(2, -1)
    y = (F.silu(a) * b).unflatten(-1, (-1, 128))
    s = torch.exp2(torch.ceil(torch.log2(y.abs().amax(-1).clamp(min=1e-6) / 448)))
    live = torch.arange(d["M"], device=t.X.device) < t.used[:, None]
    q = torch.where(live[..., None], (y / s[..., None]).flatten(-2), 0).to(F8)
    return q, torch.where(live[..., None], s, 0)


# ---- signed bytes: scales of rows and columns, and a bias
W8A8 = """tile 1
kernel w8a8<T: f16 | bf16>(A: i8[M, K], B: i8[N, K], sa: f32[M], sb: f32[N], bias: T[N], C: out T[M, N])
key bucket(M), N, K
tune BM = 64 | 128, BN = 64 | 128 | 256, BK = 64 | 128, stages = 3 | 4
grid bm < ceildiv(M, BM), bn < ceildiv(N, BN)
{
  shared   a: i8[BM, BK], b: i8[BN, BK]
  fragment acc: i32[BM, BN] = 0, c: f32[BM, BN]
  pipelined k < ceildiv(K, BK), stages {
    a = A[bm*BM +: BM, k*BK +: BK]
    b = B[bn*BN +: BN, k*BK +: BK]
    acc += a @ b^T
  }
  parallel i < BM, j < BN { c[i, j] = acc[i, j] * sa[bm*BM + i] * sb[bn*BN + j] + bias[bn*BN + j] }
  C[bm*BM +: BM, bn*BN +: BN] = c
}
"""


def w8a8(t, d):
    return (torch._int_mm(t.A, t.B.T).float() * t.sa[:, None] * t.sb + t.bias).to(BF)


def w8a8_exact(t, d):
    return (t.A.double() @ t.B.double().T) * t.sa[:, None] * t.sb + t.bias


def bytes8(s, t, d):
    return torch.randint(-127, 128, s, device=DEV, dtype=torch.int8)


# ---- 8-bit floats: scales of 128 elements of A's rows and of 128 x 128 blocks of B
FP8_BLOCK = """tile 1
kernel fp8_block_gemm<T: f16 | bf16>(A: f8e4m3[M, K], B: f8e4m3[N, K], sa: f32[M, G], sb: f32[NB, G], C: out T[M, N])
where G == ceildiv(K, 128) && NB == ceildiv(N, 128)
key bucket(M), N, K
tune BM = 64 | 128, BN = 64 | 128, stages = 3 | 4
grid bm < ceildiv(M, BM), bn < ceildiv(N, BN)
{
  shared   a: f8e4m3[BM, 128], b: f8e4m3[BN, 128]
  fragment part: f32[BM, BN], acc: f32[BM, BN] = 0
  pipelined k < G, stages {
    a = A[bm*BM +: BM, k*128 +: 128]
    b = B[bn*BN +: BN, k*128 +: 128]
    part = a @ b^T
    let s = sb[bn*BN / 128, k]
    parallel i < BM, j < BN { acc[i, j] += part[i, j] * (sa[bm*BM + i, k] * s) }
  }
  C[bm*BM +: BM, bn*BN +: BN] = acc
}
"""


def fp8_block(t, d):
    a = (wide(t.A.to(BF) if t.A.dtype == F8 else t.A).mul(t.sa.repeat_interleave(128, -1)[:, :d["K"]]))
    s = t.sb.repeat_interleave(128, 0)[:d["N"]].repeat_interleave(128, 1)[:, :d["K"]]
    kind = BF if t.A.dtype == F8 else torch.float64
    b = wide(t.B.to(BF) if t.B.dtype == F8 else t.B) * s
    return a.to(kind) @ b.to(kind).T


def scaled_mm(t, d):
    return torch._scaled_mm(t.A, t.B.T, scale_a=t.sa[:, :1].contiguous(), scale_b=t.sb[:, 0].repeat_interleave(128)[None, :d["N"]].contiguous(),
                            out_dtype=BF)


def float8(s, t, d):
    return torch.randn(s, device=DEV).to(F8)


# ---- four-bit weights as AWQ has them: [K, N], scales and zero points of 128 rows
AWQ = """tile 1
kernel awq_gemm<T: f16 | bf16>(A: T[M, K], Q: u4[K, N], scale: T[G, N], zero: u4[G, N], C: out T[M, N])
where K == G * 128
key bucket(M), N, K
tune BM = 16 | 32 | 64 | 128, BN = 64 | 128, BK = 64 | 128, stages = 3 | 4
grid bm < ceildiv(M, BM), bn < ceildiv(N, BN)
{
  shared   a: T[BM, BK], q: u4[BK, BN]
  fragment w: T[BK, BN], acc: f32[BM, BN] = 0
  pipelined k < ceildiv(K, BK), stages {
    a = A[bm*BM +: BM, k*BK +: BK]
    q = Q[k*BK +: BK, bn*BN +: BN]
    parallel i < BK, j < BN {
      let g = (k*BK + i) / 128, n = bn*BN + j
      w[i, j] = (T(q[i, j]) - T(zero[g, n])) * scale[g, n]
    }
    acc += a @ w
  }
  C[bm*BM +: BM, bn*BN +: BN] = acc
}
"""


def nibbles(x):
    return torch.stack((x & 15, x >> 4), -1).flatten(-2)


def awq(t, d):
    w = (nibbles(t.Q).view(d["G"], 128, -1).to(t.A.dtype) - nibbles(t.zero)[:, None].to(t.A.dtype)) * t.scale[:, None]
    return t.A @ w.view(d["K"], -1)


def packed(s, t, d):
    return torch.randint(0, 256, (*s[:-1], s[-1] // 2), device=DEV, dtype=torch.uint8)


PLAIN = {}


def plain_matmul(t, d):
    key = d["K"], d["N"]
    if key not in PLAIN:
        PLAIN.clear()
        PLAIN[key] = torch.randn(key, device=DEV).to(BF)
    return t.A @ PLAIN[key]


# ---- rmsnorm to 8-bit floats with one known scale
STATIC_FP8 = """tile 1
kernel rmsnorm_static_fp8<T: f16 | bf16>(X: T[N, D], W: T[D], scale: f32[1], Q: out f8e4m3[N, D], eps: f32)
key bucket(N), D
tune rows = 1 | 2 | 4
grid b < ceildiv(N, rows)
{
  fragment x: f32[rows, D], q: f8e4m3[rows, D]
  x = X[b*rows +: rows, :]
  let inv = 1 / scale[0]
  parallel i < rows, d < D { q[i, d] = x[i, d] * rsqrt(sum[k < D](x[i, k] * x[i, k]) / D + eps) * W[d] * inv }
  Q[b*rows +: rows, :] = q
}
"""


def static_fp8(t, d):
    x = wide(t.X)
    y = x * (x.square().mean(-1, keepdim=True) + t.eps).rsqrt() * t.W / t.scale
    return y.clamp(-448, 448).to(F8)


# ---- what eight ranks have, summed up; residual; rmsnorm
ALLREDUCE = """tile 1
kernel allreduce_rmsnorm<T: f16 | bf16>(X: T[P, N, D], R: T[N, D], W: T[D], H: out T[N, D], Y: out T[N, D], eps: f32)
key P, bucket(N), D
tune threads = 128 | 256 | 512 | 1024
grid n < N
{
  fragment x: f32[D], h: f32[D]
  h = R[n, :]
  for p < P {
    x = X[p, n, :]
    parallel d < D { h[d] += x[d] }
  }
  H[n, :] = h
  let inv = rsqrt(sum[d < D](h[d] * h[d]) / D + eps)
  parallel d < D { h[d] = h[d] * inv * W[d] }
  Y[n, :] = h
}
"""


def allreduce(t, d):
    h = wide(t.X).sum(0) + t.R
    return h.to(BF), (h * (h.square().mean(-1, keepdim=True) + t.eps).rsqrt() * t.W).to(BF)


# ---- rmsnorm of each head of queries and keys, then the rotary embedding; Q, K and V are one tensor, in place
QK_NORM_ROPE = """tile 1
kernel qk_norm_rope<T: f16 | bf16>(X: inout T[N, C, D], wq: T[D], wk: T[D], position: i64[N], cosine: T[L, half], sine: T[L, half],
                                   heads: i32, groups: i32, eps: f32)
where D == 2 * half
key bucket(N), C, D
tune R = 4 | 8 | 16
grid n < N, b < ceildiv(heads + groups, R)
{
  fragment x: f32[R, D], inv: f32[R]
  let p = position[n]
  x = X[n, b*R +: R, :]
  parallel i < R { inv[i] = rsqrt(sum[d < D](x[i, d] * x[i, d]) / D + eps) }
  parallel i < R, d < D { x[i, d] *= inv[i] * (b*R + i < heads ? wq[d] : wk[d]) }
  parallel i < R, d < half {
    let c = cosine[p, d], s = sine[p, d], low = x[i, d], high = x[i, d + half]
    x[i, d] = low * c - high * s
    x[i, d + half] = high * c + low * s
  }
  X[n, b*R +: R, :] within 0 +: heads + groups = x
}
"""


def qk_norm_rope(t, d):
    n = t.heads + t.groups
    x = wide(t.X[:, :n])
    w = torch.cat((t.wq.expand(t.heads, -1), t.wk.expand(t.groups, -1)))
    x = x * (x.square().mean(-1, keepdim=True) + t.eps).rsqrt() * w
    low, high = x.chunk(2, -1)
    c, s = t.cosine[t.position][:, None], t.sine[t.position][:, None]
    x = torch.cat((low * c - high * s, high * c + low * s), -1).to(t.X.dtype)
    return torch.cat((x, t.X[:, n:]), 1)


def angles(f):
    def fill(s, t, d):
        a = torch.arange(s[-2], device=DEV)[:, None] * 10000.0 ** (-torch.arange(s[-1], device=DEV) / s[-1])
        return f(a).to(BF)
    return fill


CASES = [
    Case("silu_mul_fp8", SILU_FP8,
         {"large": dict(N=8192, C=28672, H=14336), "odd": dict(N=3001, C=2 * 6007, H=6007), "small": dict(N=9, C=302, H=151)},
         silu_mul_fp8, types=B16, fills={"X": normal(1)}, tolerance=1e-2),
    Case("add_rmsnorm_int8", NORM_INT8,
         {"large": dict(N=16384, D=4096), "odd": dict(N=5003, D=2570), "small": dict(N=13, D=75)},
         add_rmsnorm_int8, types=B16, fills={"X": normal(1), "R": normal(1), "W": around_one, "eps": const(1e-6)}, tolerance=5e-3),
    Case("silu_mul_masked_quant", MASKED_QUANT,
         {"large": dict(E=32, M=1024, C=4096, H=2048, G=16), "odd": dict(E=13, M=777, C=2 * 896, H=896, G=7),
          "small": dict(E=3, M=29, C=512, H=256, G=2)},
         masked_quant, types=B16, tolerance=1e-2,
         fills={"X": normal(1), "used": lambda s, t, d: torch.randint(d["M"] // 4, d["M"] + 1, s, device=DEV, dtype=torch.int32),
                "Q": lambda s, t, d: torch.zeros(s, device=DEV).to(F8), "scale": lambda s, t, d: torch.zeros(s, device=DEV)}),
    Case("w8a8", W8A8,
         {"large": dict(M=4096, N=4096, K=4096), "odd": dict(M=1531, N=2728, K=3000), "small": dict(M=37, N=72, K=136)},
         w8a8, types=B16, reference=w8a8_exact,
         fills={"A": bytes8, "B": bytes8, "sa": uniform(0.001, 0.01), "sb": uniform(0.001, 0.01), "bias": normal(1)},
         peers={"_int_mm": lambda t, d: torch._int_mm(t.A, t.B.T)}),
    Case("fp8_block_gemm", FP8_BLOCK,
         {"large": dict(M=4096, N=7168, K=2048, G=16, NB=56), "odd": dict(M=1531, N=2736, K=2000, G=16, NB=22),
          "small": dict(M=37, N=144, K=272, G=3, NB=2)},
         fp8_block, types=B16, tolerance=1e-2, fills={"A": float8, "B": float8, "sa": uniform(0.5, 2), "sb": uniform(0.5, 2)},
         peers={"_scaled_mm": scaled_mm}),
    Case("awq_gemm", AWQ,
         {"large": dict(M=512, N=8192, K=8192, G=64), "odd": dict(M=301, N=2730, K=2944, G=23), "small": dict(M=17, N=70, K=256, G=2)},
         awq, types=B16, tolerance=1e-2, peers={"matmul": plain_matmul},
         fills={"A": normal(1), "Q": packed, "zero": packed, "scale": uniform(0.01, 0.02, BF)}),
    Case("awq_gemv", AWQ,
         {"large": dict(M=8, N=14336, K=4096, G=32), "odd": dict(M=3, N=11006, K=2944, G=23)},
         awq, types=B16, tolerance=1e-2, peers={"matmul": plain_matmul},
         fills={"A": normal(1), "Q": packed, "zero": packed, "scale": uniform(0.01, 0.02, BF)}),
    Case("rmsnorm_static_fp8", STATIC_FP8,
         {"large": dict(N=16384, D=7168), "odd": dict(N=5003, D=2570), "small": dict(N=13, D=75)},
         static_fp8, types=B16, tolerance=1e-2,
         fills={"X": normal(1), "W": around_one, "scale": lambda s, t, d: torch.full(s, 0.01, device=DEV), "eps": const(1e-6)}),
    Case("allreduce_rmsnorm", ALLREDUCE,
         {"large": dict(P=8, N=4096, D=8192), "odd": dict(P=7, N=1501, D=5003), "small": dict(P=3, N=7, D=101)},
         allreduce, types=B16, fills={"X": normal(1), "R": normal(1), "W": around_one, "eps": const(1e-6)}),
    Case("qk_norm_rope", QK_NORM_ROPE,
         {"large": dict(N=16384, C=48, D=128, half=64, L=8192), "odd": dict(N=5003, C=19, D=80, half=40, L=2003),
          "small": dict(N=7, C=19, D=24, half=12, L=50)},
         qk_norm_rope, types=B16,
         fills={"X": normal(1), "wq": around_one, "wk": around_one, "position": lambda s, t, d: torch.randint(0, d["L"], s, device=DEV),
                "cosine": angles(torch.cos), "sine": angles(torch.sin),
                "heads": lambda s, t, d: 32 if d["C"] == 48 else 11, "groups": lambda s, t, d: 8 if d["C"] == 48 else 4,
                "eps": const(1e-6)}),
]
