"""Products with scales, dropout, two results, complex numbers, distances, adapters, and many small ones."""
import torch
import torch.nn.functional as F
from sets.shared.everyday import B16, BF, DEV, uniform, wide
from unseen import Case

# ---- 8-bit integers and 8-bit floats with a scale for each row and each column
SCALED = """tile 1
kernel scaled8<Q: i8 | f8e4m3, O: f16 | bf16>(a: Q[M, K], b: Q[N, K], sa: f32[M], sb: f32[N], c: out O[M, N])
key bucket(M), N, K
tune BM = 128 | 64, BN = 128 | 256 | 64, BK = 128 | 64, stages = 3 | 4
grid bx < ceildiv(N, BN), by < ceildiv(M, BM)
{
  shared   u: Q[BM, BK], v: Q[BN, BK]
  fragment sum_: acc(Q)[BM, BN] = 0, r: O[BM, BN]
  pipelined k < ceildiv(K, BK), stages {
    u = a[by*BM +: BM, k*BK +: BK]
    v = b[bx*BN +: BN, k*BK +: BK]
    sum_ += u @ v^T
  }
  parallel i < BM, j < BN { r[i, j] = f32(sum_[i, j]) * sa[by*BM + i] * sb[bx*BN + j] }
  c[by*BM +: BM, bx*BN +: BN] = r
}
"""

# ---- out = R + gamma * dropout(x w^T + b), the dropout by a hash of the place
DROPOUT = """tile 1
kernel scale_drop<T: f16 | bf16>(x: T[M, K], w: T[N, K], b: T[N], gamma: T[N], R: T[M, N], out_: out T[M, N], seed: i32, p: f32)
key bucket(M), N, K
tune BM = 64 | 128, BN = 64 | 128 | 256, BK = 64, stages = 3 | 4
grid mi < ceildiv(M, BM), ni < ceildiv(N, BN)
{
  shared   xs: T[BM, BK], ws: T[BN, BK]
  fragment acc: f32[BM, BN] = 0, res: T[BM, BN]
  let keep = 1 - p

  pipelined k < ceildiv(K, BK), stages {
    xs = x[mi*BM +: BM, k*BK +: BK]
    ws = w[ni*BN +: BN, k*BK +: BK]
    acc += xs @ ws^T
  }
  res = R[mi*BM +: BM, ni*BN +: BN]
  parallel i < BM, j < BN {
    let row = mi*BM + i, col = ni*BN + j
    let h0 = u32(row * N + col) ^ u32(seed)
    let h1 = (h0 ^ h0 >> 16) * 0x7feb352d
    let h2 = (h1 ^ h1 >> 15) * 0x846ca68b
    let h3 = h2 ^ h2 >> 16
    let y = acc[i, j] + b[col]
    if f32(h3 >> 8) * 5.9604645e-8 < keep {
      acc[i, j] = res[i, j] + gamma[col] * (y / keep)
    } else {
      acc[i, j] = res[i, j]
    }
  }
  out_[mi*BM +: BM, ni*BN +: BN] = acc
}
"""

# ---- gelu in bf16 for what follows, what goes into it in f32 for the way back
TWO_OUT = """tile 1
kernel gelu_and_pre<T: f16 | bf16>(A: T[M, K], B: T[N, K], act: out T[M, N], pre: out f32[M, N])
key bucket(M), N, K
tune auto BM, BN, BK, stages
grid y < ceildiv(M, BM), x < ceildiv(N, BN)
{
  shared   As: T[BM, BK], Bs: T[BN, BK]
  fragment c: f32[BM, BN] = 0
  pipelined k < ceildiv(K, BK), stages {
    Bs = B[x*BN +: BN, k*BK +: BK]
    As = A[y*BM +: BM, k*BK +: BK]
    c += As @ Bs^T
  }
  pre[y*BM +: BM, x*BN +: BN] = c
  parallel i < BM, j < BN {
    let v = c[i, j]
    c[i, j] = 0.5 * v * (1 + tanh(0.7978845608 * (v + 0.044715 * v * v * v)))
  }
  act[y*BM +: BM, x*BN +: BN] = c
}
"""

# ---- complex numbers, real parts and imaginary parts apart
COMPLEX = """tile 1
kernel complex_mm<T: f16 | bf16>(A: T[2, M, K], B: T[2, K, N], C: out f32[2, M, N])
key bucket(M), N, K
tune BM = 64 | 128, BN = 64 | 128, BK = 32 | 64, stages = 2 | 3
grid m < ceildiv(M, BM), n < ceildiv(N, BN)
{
  shared   ar: T[BM, BK], ai: T[BM, BK], br: T[BK, BN], bi: T[BK, BN]
  fragment rr: f32[BM, BN] = 0, ii: f32[BM, BN] = 0, mixed: f32[BM, BN] = 0

  pipelined k < ceildiv(K, BK), stages {
    ar = A[0, m*BM +: BM, k*BK +: BK]
    ai = A[1, m*BM +: BM, k*BK +: BK]
    br = B[0, k*BK +: BK, n*BN +: BN]
    bi = B[1, k*BK +: BK, n*BN +: BN]
    rr += ar @ br
    ii += ai @ bi
    mixed += ar @ bi
    mixed += ai @ br
  }
  parallel i < BM, j < BN { rr[i, j] -= ii[i, j] }
  C[0, m*BM +: BM, n*BN +: BN] = rr
  C[1, m*BM +: BM, n*BN +: BN] = mixed
}
"""

# ---- squared distances of all pairs; the norms are summed beside the products
PAIRWISE = """tile 1
kernel pairwise<T: f16 | bf16>(X: T[M, D], Y: T[N, D], dist: out f32[M, N])
key bucket(M), bucket(N), D
tune BM = 64 | 128, BN = 64 | 128, BD = 32 | 64, stages = 2 | 3
grid m < ceildiv(M, BM), n < ceildiv(N, BN)
{
  shared   x: T[BM, BD], y: T[BN, BD]
  fragment dot: f32[BM, BN] = 0, xx: f32[BM] = 0, yy: f32[BN] = 0

  pipelined d < ceildiv(D, BD), stages {
    x = X[m*BM +: BM, d*BD +: BD]
    y = Y[n*BN +: BN, d*BD +: BD]
    parallel i < BM { xx[i] += sum[k < BD](x[i, k] * x[i, k]) }
    parallel j < BN { yy[j] += sum[k < BD](y[j, k] * y[j, k]) }
    dot += x @ y^T
  }
  parallel i < BM, j < BN { dot[i, j] = max(xx[i] + yy[j] - 2 * dot[i, j], 0) }
  dist[m*BM +: BM, n*BN +: BN] = dot
}
"""

# ---- x w^T + s (x a^T) b^T in one kernel
LORA = """tile 1
kernel lora<T: f16 | bf16>(x: T[M, K], w: T[N, K], a: T[r, K], b: T[N, r], y: out T[M, N], s: f32)
key bucket(M), N, K
tune BM = 128 | 64, BN = 128 | 64 | 256, BK = 64, stages = 3 | 4
grid mb < ceildiv(M, BM), nb < ceildiv(N, BN)
{
  shared   xs: T[BM, BK], ws: T[BN, BK], as_: T[r, BK], bs: T[BN, r]
  fragment acc: f32[BM, BN] = 0, low: f32[BM, r] = 0, lo: T[BM, r]

  pipelined k < ceildiv(K, BK), stages {
    xs  = x[mb*BM +: BM, k*BK +: BK]
    ws  = w[nb*BN +: BN, k*BK +: BK]
    as_ = a[:, k*BK +: BK]
    low += xs @ as_^T
    acc += xs @ ws^T
  }
  bs = b[nb*BN +: BN, :]
  parallel i < BM, q < r { lo[i, q] = low[i, q] * s }
  acc += lo @ bs^T
  y[mb*BM +: BM, nb*BN +: BN] = acc
}
"""

# ---- many small squares, some a block
SMALL = """tile 1
kernel small_squares<T: f16 | bf16>(A: T[B, S, S], X: T[B, S, S], Y: out T[B, S, S], alpha: f32)
where S <= 64
key bucket(B), S
tune each = 1 | 2 | 4 | 8
grid g < ceildiv(B, each)
{
  shared   a: T[S, S], x: T[S, S]
  fragment y: f32[S, S]
  for e < each {
    a = A[g*each + e, :, :]
    x = X[g*each + e, :, :]
    y = a @ x
    parallel i < S, j < S { y[i, j] = alpha * y[i, j] + (i == j ? 1.0 : 0.0) }
    Y[g*each + e, :, :] = y
  }
}
"""


def int8(t, d):
    if d["K"] % 8 or d["N"] % 8 or DEV == "cpu":
        z = t.a.double() @ t.b.double().T
    else:
        z = torch._int_mm(t.a, t.b.T).float()
    return (z * t.sa[:, None] * t.sb).to(BF)


def int8_reference(t, d):
    return (t.a.double() @ t.b.double().T) * t.sa[:, None] * t.sb


def fp8(t, d):
    if d["K"] % 16 or d["N"] % 16:
        return ((t.a.to(BF) @ t.b.to(BF).T).float() * t.sa[:, None] * t.sb).to(BF)
    return torch._scaled_mm(t.a, t.b.T, t.sa[:, None], t.sb[None], out_dtype=BF)


def kept(d, seed, keep, device):
    h = torch.arange(d["M"] * d["N"], device=device).view(d["M"], d["N"]) ^ seed
    h = (h ^ h >> 16) * 0x7FEB352D & 0xFFFFFFFF
    h = (h ^ h >> 15) * 0x846CA68B & 0xFFFFFFFF
    h = h ^ h >> 16
    return (h >> 8).float() * 5.9604645e-8 < keep


def scale_drop(t, d):
    y = F.linear(t.x, t.w, t.b)
    return t.R + t.gamma * torch.where(kept(d, t.seed, 1 - t.p, y.device), y / (1 - t.p), 0)


def library_dropout(t, d):
    return torch.addcmul(t.R, t.gamma, F.dropout(F.linear(t.x, t.w, t.b), t.p))


def gelu_and_pre(t, d):
    pre = F.linear(t.A, t.B)
    return F.gelu(pre, approximate="tanh"), pre.to(torch.promote_types(pre.dtype, torch.float32))


def complex_mm(t, d):
    (ar, ai), (br, bi) = t.A, t.B
    re, im = ar @ br - ai @ bi, ar @ bi + ai @ br
    return torch.stack((re, im)).to(torch.promote_types(re.dtype, torch.float32))


def complex_reference(t, d):
    return torch.view_as_real(torch.complex(*t.A) @ torch.complex(*t.B)).permute(2, 0, 1)


def pairwise(t, d):
    wide = torch.promote_types(t.X.dtype, torch.float32)
    xx, yy = t.X.to(wide).square().sum(-1), t.Y.to(wide).square().sum(-1)
    return (xx[:, None] + yy - 2 * (t.X @ t.Y.T).to(wide)).clamp(min=0)


def lora(t, d):
    return F.linear(t.x, t.w) + t.s * F.linear(F.linear(t.x, t.a), t.b)


def small_squares(t, d):
    eye = torch.eye(d["S"], dtype=t.A.dtype, device=t.A.device).expand(d["B"], -1, -1)
    return torch.baddbmm(eye, t.A, t.X, alpha=t.alpha)


scales = {"sa": uniform(0.5e-3, 1e-3), "sb": uniform(0.5, 1)}


CASES = [
    Case("scaled_s8", SCALED, {"large": dict(M=4096, N=8192, K=4096), "odd": dict(M=1111, N=1501, K=1004),
                               "small": dict(M=40, N=35, K=99)}, int8, types={"Q": "i8", "O": "bf16"}, fills=scales,
         reference=int8_reference),
    Case("scaled_e4m3", SCALED, {"large": dict(M=8192, N=4096, K=4096), "odd": dict(M=1000, N=1203, K=1070),
                                 "small": dict(M=36, N=45, K=130)}, fp8, types={"Q": "f8e4m3", "O": "bf16"},
         fills={"sa": uniform(0.5, 1), "sb": uniform(0.5, 1)}, reference=int8_reference, tolerance=1e-2),
    Case("scale_drop", DROPOUT, {"large": dict(M=8192, K=4096, N=1024), "odd": dict(M=2003, K=700, N=1037),
                                 "small": dict(M=40, K=55, N=67)}, scale_drop, types=B16,
         fills={"seed": lambda s, t, d: 12345, "p": lambda s, t, d: 0.1}, peers={"library": library_dropout}),
    Case("gelu_and_pre", TWO_OUT, {"large": dict(M=4096, K=1024, N=4096), "odd": dict(M=1500, K=801, N=1999),
                                   "small": dict(M=30, K=80, N=53)}, gelu_and_pre, types=B16),
    Case("complex_mm", COMPLEX, {"large": dict(M=2048, K=2048, N=2048), "odd": dict(M=701, K=503, N=611),
                                 "small": dict(M=21, K=33, N=27)}, complex_mm, types=B16, reference=complex_reference),
    Case("pairwise", PAIRWISE, {"large": dict(M=8192, N=8192, D=256), "odd": dict(M=3001, N=1999, D=101),
                                "small": dict(M=33, N=44, D=29)}, pairwise, types=B16),
    Case("lora", LORA, {"large": dict(M=4096, K=4096, N=4096, r=16), "odd": dict(M=1003, K=1710, N=2050, r=12),
                        "small": dict(M=30, K=65, N=40, r=4)}, lora, types=B16, fills={"s": lambda s, t, d: 0.5}),
    Case("small_squares", SMALL, {"large": dict(B=20000, S=48), "odd": dict(B=7001, S=37), "small": dict(B=11, S=15)},
         small_squares, types=B16, fills={"alpha": lambda s, t, d: 0.25}),
]
