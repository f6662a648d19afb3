"""Products: batched, 3-D and 4-D tensors by a matrix, diagonal, symmetric; f32 and bf16."""
import torch
from sets.shared.operators import DEV, both

# ---- C[b] = A[b] B[b]
BATCHED = """tile 1
kernel bmm<T: f32 | bf16>(A: T[L, M, K], B: T[L, K, N], C: out T[L, M, N])
key bucket(L), M, N, K
tune auto BM, BN, BK, stages
grid l < L, by < ceildiv(M, BM), bx < ceildiv(N, BN)
{
  shared   a: T[BM, BK], b: T[BK, BN]
  fragment acc: f32[BM, BN] = 0
  pipelined k < ceildiv(K, BK), stages {
    a = A[l, by*BM +: BM, k*BK +: BK]
    b = B[l, k*BK +: BK, bx*BN +: BN]
    acc += a @ b
  }
  C[l, by*BM +: BM, bx*BN +: BN] = acc
}
"""

# ---- C[n, m, l] = sum over k of A[n, m, k] B[k, l]
TENSOR3 = """tile 1
kernel tensor3<T: f32 | bf16>(A: T[N, M, K], B: T[K, L], C: out T[N, M, L])
key bucket(N), M, K, L
tune BM = 128 | 64, BN = 128 | 256 | 64, BK = 64 | 32, stages = 4 | 3 | 2
grid n < N, by < ceildiv(M, BM), bx < ceildiv(L, BN)
{
  shared   a: T[BM, BK], b: T[BK, BN]
  fragment acc: f32[BM, BN] = 0
  pipelined k < ceildiv(K, BK), stages {
    a = A[n, by*BM +: BM, k*BK +: BK]
    b = B[k*BK +: BK, bx*BN +: BN]
    acc += a @ b
  }
  C[n, by*BM +: BM, bx*BN +: BN] = acc
}
"""

# ---- einsum bijl,lk->bijk
TENSOR4 = """tile 1
kernel tensor4<T: f32 | bf16>(A: T[B, I, J, L], W: T[L, K], C: out T[B, I, J, K])
key bucket(B), bucket(I), J, L, K
tune auto BJ, BK, BL, stages
grid b < B, i < I, y < ceildiv(J, BJ), x < ceildiv(K, BK)
{
  shared   a: T[BJ, BL], w: T[BL, BK]
  fragment acc: f32[BJ, BK] = 0
  pipelined l < ceildiv(L, BL), stages {
    a = A[b, i, y*BJ +: BJ, l*BL +: BL]
    w = W[l*BL +: BL, x*BK +: BK]
    acc += a @ w
  }
  C[b, i, y*BJ +: BJ, x*BK +: BK] = acc
}
"""

# ---- C = diag(d) B
DIAGONAL = """tile 1
kernel diagonal<T: f32 | bf16>(D: T[M], B: T[M, N], C: out T[M, N])
key bucket(M), N
tune rows = 1 | 2 | 4 | 8, BN = 1024 | 2048 | 4096
where rows * BN <= 8192
grid m < ceildiv(M, rows), n < ceildiv(N, BN)
{
  fragment x: f32[rows, BN]
  x = B[m*rows +: rows, n*BN +: BN]
  parallel i < rows, j < BN { x[i, j] *= D[m*rows + i] }
  C[m*rows +: rows, n*BN +: BN] = x
}
"""

# ---- C = A B, both symmetric, so that rows of B serve as columns
SYMMETRIC = """tile 1
kernel symmetric<T: f32 | bf16>(A: T[N, N], B: T[N, N], C: out T[N, N])
key N
tune auto BM, BN, BK, stages
grid by < ceildiv(N, BM), bx < ceildiv(N, BN)
{
  shared   a: T[BM, BK], b: T[BN, BK]
  fragment acc: f32[BM, BN] = 0
  pipelined k < ceildiv(N, BK), stages {
    a = A[by*BM +: BM, k*BK +: BK]
    b = B[bx*BN +: BN, k*BK +: BK]
    acc += a @ b^T
  }
  C[by*BM +: BM, bx*BN +: BN] = acc
}
"""


def mirrored(dtype):
    def fill(shape, t, d):
        x = torch.randn(shape, device=DEV)
        return ((x + x.T) * 0.5).to(dtype)
    return {"A": fill, "B": fill}


def matmul(t, d):
    return torch.matmul(t.A, t.B)


CASES = [
    *both("batched", BATCHED, {"large": {"L": 128, "M": 512, "N": 512, "K": 256},
                               "odd": {"L": 7, "M": 131, "N": 253, "K": 515},
                               "small": {"L": 3, "M": 21, "N": 35, "K": 41}}, lambda t, d: torch.bmm(t.A, t.B)),
    *both("tensor3", TENSOR3, {"large": {"N": 16, "M": 1024, "K": 1024, "L": 768},
                               "odd": {"N": 3, "M": 517, "K": 1031, "L": 389},
                               "small": {"N": 2, "M": 19, "K": 33, "L": 27}}, matmul),
    *both("tensor4", TENSOR4, {"large": {"B": 8, "I": 64, "J": 256, "L": 256, "K": 768},
                               "odd": {"B": 3, "I": 5, "J": 253, "L": 255, "K": 387},
                               "small": {"B": 2, "I": 2, "J": 13, "L": 21, "K": 30}},
          lambda t, d: torch.einsum("bijl,lk->bijk", t.A, t.W)),
    *both("diagonal", DIAGONAL, {"large": {"M": 8192, "N": 8192}, "odd": {"M": 2047, "N": 2049},
                                 "small": {"M": 9, "N": 21}},
          lambda t, d: t.D.unsqueeze(1) * t.B),
    *both("symmetric", SYMMETRIC, {"large": {"N": 2048}, "odd": {"N": 1023}, "small": {"N": 45}}, matmul, mirrored),
]
