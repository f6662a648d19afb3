"""Products of two matrices: square, oblong, tall and skinny, large K, small K, irregular, matrix by vector; f32 and
bf16."""
import torch
from sets.shared.operators import F32, both
from unseen import Case

# ---- C = A B, both row-major. One text for every form; the values of the tunables are the engine's.
MATMUL = """tile 1
kernel matmul<T: f32 | bf16>(A: T[M, K], B: T[K, N], C: out T[M, N])
key M, N, K
tune auto BM, BN, BK, stages
grid by < ceildiv(M, BM), bx < ceildiv(N, BN)
{
  shared   a: T[BM, BK], b: T[BK, BN]
  fragment acc: f32[BM, BN] = 0
  pipelined k < ceildiv(K, BK), stages {
    a = A[by*BM +: BM, k*BK +: BK]
    b = B[k*BK +: BK, bx*BN +: BN]
    acc += a @ b
  }
  C[by*BM +: BM, bx*BN +: BN] = acc
}
"""

# ---- the same with a list, as the examples have it
LISTED = """tile 1
kernel matmul_listed<T: f32 | bf16>(A: T[M, K], B: T[K, N], C: out T[M, N])
key bucket(M), N, K
tune BM = 128 | 64, BN = 128 | 256 | 64, BK = 64 | 32, stages = 4 | 3 | 2
grid by < ceildiv(M, BM), bx < ceildiv(N, BN)
{
  shared   a: T[BM, BK], b: T[BK, BN]
  fragment acc: f32[BM, BN] = 0
  pipelined k < ceildiv(K, BK), stages {
    a = A[by*BM +: BM, k*BK +: BK]
    b = B[k*BK +: BK, bx*BN +: BN]
    acc += a @ b
  }
  C[by*BM +: BM, bx*BN +: BN] = acc
}
"""

# ---- y = A x
MATVEC = """tile 1
kernel matvec<T: f32 | bf16>(A: T[M, K], X: T[K, 1], Y: out T[M, 1])
key M, K
tune rows = 1 | 4 | 8, BK = 512 | 1024 | 2048
where rows * BK <= 8192
grid m < ceildiv(M, rows)
{
  fragment a: f32[rows, BK], x: f32[BK], acc: f32[rows] = 0
  for k < ceildiv(K, BK) {
    a = A[m*rows +: rows, k*BK +: BK]
    x = X[k*BK +: BK, 0]
    parallel i < rows { acc[i] += sum[j < BK](a[i, j] * x[j]) }
  }
  Y[m*rows +: rows, 0] = acc
}
"""

# ---- C = A s
SCALAR = """tile 1
kernel times_scalar<T: f32 | bf16>(A: T[M, N], C: out T[M, N], s: f32)
key bucket(M), bucket(N)
tune rows = 1 | 4, BN = 1024 | 2048 | 4096
where rows * BN <= 8192
grid m < ceildiv(M, rows), n < ceildiv(N, BN)
{
  fragment a: f32[rows, BN]
  a = A[m*rows +: rows, n*BN +: BN]
  parallel i < rows, j < BN { a[i, j] *= s }
  C[m*rows +: rows, n*BN +: BN] = a
}
"""


def matmul(t, d):
    return torch.matmul(t.A, t.B)


def matvec(t, d):
    return torch.matmul(t.A, t.X)


CASES = [
    *both("square", MATMUL, {"large": {"M": 2048, "N": 2048, "K": 2048}, "odd": {"M": 1021, "N": 1013, "K": 1019},
                             "small": {"M": 37, "N": 51, "K": 70}}, matmul),
    *both("oblong", LISTED, {"large": {"M": 1024, "N": 2048, "K": 4096}, "odd": {"M": 515, "N": 1027, "K": 2051},
                             "small": {"M": 33, "N": 45, "K": 67}}, matmul),
    *both("tall_skinny", MATMUL, {"large": {"M": 16384, "N": 16, "K": 8192}, "odd": {"M": 8197, "N": 13, "K": 2051},
                                  "small": {"M": 131, "N": 7, "K": 29}}, matmul),
    *both("outer", MATMUL, {"large": {"M": 8192, "N": 8192, "K": 32}, "odd": {"M": 4099, "N": 4097, "K": 19},
                            "small": {"M": 67, "N": 71, "K": 5}}, matmul),
    *both("large_k", MATMUL, {"large": {"M": 256, "N": 256, "K": 131072}, "odd": {"M": 133, "N": 131, "K": 32771},
                              "small": {"M": 5, "N": 9, "K": 1031}}, matmul),
    *both("irregular", MATMUL, {"large": {"M": 2051, "N": 2949, "K": 1481}, "odd": {"M": 515, "N": 737, "K": 371},
                                "small": {"M": 21, "N": 29, "K": 37}}, matmul),
    *both("matvec", MATVEC, {"large": {"M": 2048, "K": 65536}, "odd": {"M": 257, "K": 65539},
                             "small": {"M": 11, "K": 1100}}, matvec),
    Case("scalar_f32", SCALAR, {"large": {"M": 16384, "N": 4096}, "odd": {"M": 1023, "N": 4097},
                                "small": {"M": 9, "N": 33}},
         lambda t, d: t.A * t.s, types=F32, fills={"s": lambda s, t, d: 3.14}),
]
