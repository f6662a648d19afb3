"""Products of one row without tensor cores: sums over weights of 4, 8 and 16 bits, in registers, in stages, in place."""
import torch
from unseen import Case

SUM_I8 = """tile 1
kernel sum_i8(X: bf16[M, K], W: i8[N, K], S: f32[N], Y: out bf16[M, N])
key bucket(M), N, K
tune rows = 4 | 8 | 16 | 32, BK = 512 | 1024 | 2048, threads = 128 | 256
grid m < M, n < ceildiv(N, rows)
{
  fragment q: i8[rows, BK], x: f32[BK], acc: f32[rows] = 0
  for k < ceildiv(K, BK) {
    q = W[n*rows +: rows, k*BK +: BK]
    x = X[m, k*BK +: BK]
    parallel i < rows { acc[i] += sum[j < BK](f32(q[i, j]) * x[j]) }
  }
  parallel i < rows { Y[m, n*rows + i] = acc[i] * S[n*rows + i] }
}
"""

SUM_U4 = """tile 1
kernel sum_u4(X: bf16[M, K], W: u4[N, K], S: bf16[N, KG], Y: out bf16[M, N])
where K == 128 * KG
key bucket(M), N, K
tune rows = 4 | 8 | 16 | 32, BK = 512 | 1024 | 2048, threads = 128 | 256
grid m < M, n < ceildiv(N, rows)
{
  fragment q: u4[rows, BK], x: f32[BK], acc: f32[rows] = 0
  for k < ceildiv(K, BK) {
    q = W[n*rows +: rows, k*BK +: BK]
    x = X[m, k*BK +: BK]
    parallel i < rows { acc[i] += sum[j < BK]((f32(q[i, j]) - 8) * S[n*rows + i, (k*BK + j) / 128] * x[j]) }
  }
  Y[m, n*rows +: rows] = acc
}
"""

SUM_U4_STAGED = """tile 1
kernel sum_u4_staged(X: bf16[M, K], W: u4[N, K], S: bf16[N, KG], Y: out bf16[M, N])
where K == 128 * KG
key bucket(M), N, K
tune rows = 4 | 8 | 16 | 32, BK = 512 | 1024 | 2048, threads = 128 | 256, stages = 2 | 3
grid m < M, n < ceildiv(N, rows)
{
  shared q: u4[rows, BK], x: bf16[BK]
  fragment acc: f32[rows] = 0
  pipelined k < ceildiv(K, BK), stages {
    q = W[n*rows +: rows, k*BK +: BK]
    x = X[m, k*BK +: BK]
    parallel i < rows { acc[i] += sum[j < BK]((f32(q[i, j]) - 8) * S[n*rows + i, (k*BK + j) / 128] * f32(x[j])) }
  }
  Y[m, n*rows +: rows] = acc
}
"""

SUM_BYTES = """tile 1
kernel sum_bytes(X: bf16[M, K], W: u8[N, K2], S: bf16[N, KG], Y: out bf16[M, N])
where K == 128 * KG, K == 2 * K2
key bucket(M), N, K
tune rows = 4 | 8 | 16 | 32, BK = 512 | 1024 | 2048, threads = 128 | 256
grid m < M, n < ceildiv(N, rows)
{
  fragment q: u8[rows, BK / 2], x: f32[BK], acc: f32[rows] = 0
  for k < ceildiv(K, BK) {
    q = W[n*rows +: rows, k*(BK / 2) +: BK / 2]
    x = X[m, k*BK +: BK]
    parallel i < rows { acc[i] += sum[j < BK / 2]((f32(q[i, j] & 15) - 8) * S[n*rows + i, (k*BK + 2*j) / 128] * x[2*j] + (f32(q[i, j] >> 4) - 8) * S[n*rows + i, (k*BK + 2*j) / 128] * x[2*j + 1]) }
  }
  Y[m, n*rows +: rows] = acc
}
"""

SUM_WORDS = """tile 1
kernel sum_words(X: bf16[M, K], W: u32[N, K8], S: bf16[N, KG], Y: out bf16[M, N])
where K == 128 * KG, K == 8 * K8
key bucket(M), N, K
tune rows = 4 | 8 | 16 | 32, BK = 512 | 1024 | 2048, threads = 128 | 256
grid m < M, n < ceildiv(N, rows)
{
  fragment q: u32[rows, BK / 8], x: f32[BK], acc: f32[rows] = 0
  for k < ceildiv(K, BK) {
    q = W[n*rows +: rows, k*(BK / 8) +: BK / 8]
    x = X[m, k*BK +: BK]
    parallel i < rows { acc[i] += sum[j < BK](
       (f32(q[i, j / 8] >> (j % 8 * 4) & 15) - 8) * S[n*rows + i, (k*BK + j) / 128] * x[j]) }
  }
  Y[m, n*rows +: rows] = acc
}
"""

SUM_16_STAGED = """tile 1
kernel sum_16_staged(X: bf16[M, K], W: bf16[N, K], Y: out bf16[M, N])
key bucket(M), N, K
tune rows = 4 | 8 | 16 | 32, BK = 512 | 1024 | 2048, threads = 128 | 256, stages = 2 | 3
grid m < M, n < ceildiv(N, rows)
{
  shared q: bf16[rows, BK], x: bf16[BK]
  fragment acc: f32[rows] = 0
  pipelined k < ceildiv(K, BK), stages {
    q = W[n*rows +: rows, k*BK +: BK]
    x = X[m, k*BK +: BK]
    parallel i < rows { acc[i] += sum[j < BK](f32(q[i, j]) * f32(x[j])) }
  }
  Y[m, n*rows +: rows] = acc
}
"""

SUM_16_BOUNDS = """tile 1
kernel sum_16_bounds(X: bf16[M, K], W: bf16[N, K], Y: out bf16[M, N])
key bucket(M), N, K
tune rows = 4 | 8 | 16 | 32, BK = 512 | 1024 | 2048, threads = 128 | 256
grid m < M, n < ceildiv(N, rows)
{
  fragment acc: f32[rows] = 0
  for k < ceildiv(K, BK) {
    parallel i < rows { acc[i] += sum[j < BK](n*rows + i < N && k*BK + j < K ? f32(W[n*rows + i, k*BK + j]) * f32(X[m, k*BK + j]) : 0) }
  }
  Y[m, n*rows +: rows] = acc
}
"""


def device(t):
    return next(v.device for v in vars(t).values() if hasattr(v, "device"))


def some_bytes(s, t, d):
    return torch.randint(0, 256, s, device=device(t), dtype=torch.uint8)


def nibbles(s, t, d):
    return some_bytes((s[0], s[1] // 2), t, d)


def words(s, t, d):
    return torch.randint(-2**31, 2**31, s, device=device(t), dtype=torch.int64).to(torch.int32)


def signed(s, t, d):
    return torch.randint(-128, 128, s, device=device(t), dtype=torch.int8)


def scales(s, t, d):
    return torch.rand(s, device=device(t)) * 0.04 + 0.01


def scales16(s, t, d):
    return scales(s, t, d).bfloat16()


def in_groups(t, d):
    if t.W.dtype == torch.int32:
        w = t.W.long() & 0xffffffff
        q = torch.stack([w >> 4 * j & 15 for j in range(8)], -1).flatten(-2)
    else:
        q = torch.stack((t.W & 15, t.W >> 4), -1).flatten(-2)
    return ((q.to(t.S.dtype) - 8).view(d["N"], -1, 128) * t.S[:, :, None]).view(d["N"], -1)


def by_rows(t, d):
    return t.W.to(t.S.dtype) * t.S[:, None]


def product(weights):
    """With 16-bit weights, made once."""
    def run(t, d):
        if not hasattr(t, "w"):
            t.w = weights(t, d).to(t.X.dtype)
        return t.X @ t.w.T
    return run


def case(name, text, fills, weights, **parts):
    shapes = {"decode": (1, 28672, 8192), "large": (1, 4096, 4096), "odd": (1, 4099, 3072), "small": (2, 37, 384)}
    dims = {k: dict(M=m, N=n, K=l, **{p: l // by for p, by in parts.items()}) for k, (m, n, l) in shapes.items()}
    return Case(name, text, dims, product(weights), fills=fills, reference=product(weights), compiled=False, tolerance=1e-2)


CASES = [
    case("sum_i8", SUM_I8, {"W": signed, "S": scales}, by_rows),
    case("sum_u4", SUM_U4, {"W": nibbles, "S": scales16}, in_groups, KG=128),
    case("sum_u4_staged", SUM_U4_STAGED, {"W": nibbles, "S": scales16}, in_groups, KG=128),
    case("sum_bytes", SUM_BYTES, {"W": some_bytes, "S": scales16}, in_groups, KG=128, K2=2),
    case("sum_words", SUM_WORDS, {"W": words, "S": scales16}, in_groups, KG=128, K8=8),
    case("sum_16_staged", SUM_16_STAGED, {}, lambda t, d: t.W),
    case("sum_16_bounds", SUM_16_BOUNDS, {}, lambda t, d: t.W),
]
