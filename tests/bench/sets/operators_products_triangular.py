"""Products: triangular, and with one or both operands transposed; f32 and bf16."""
import torch
from sets.shared.operators import DEV, both

# ---- C = A B, all upper triangular: A[i, k] is 0 for k < i, B[k, j] for k > j. Below the diagonal the loop is empty.
UPPER = """tile 1
kernel upper<T: f32 | bf16>(A: T[N, N], B: T[N, N], C: out T[N, N])
key N
tune auto BM, BN, BK, stages
grid by < ceildiv(N, BM), bx < ceildiv(N, BN)
{
  shared   a: T[BM, BK], b: T[BK, BN]
  fragment acc: f32[BM, BN] = 0
  pipelined k in by*BM / BK .. ceildiv(min(N, bx*BN + BN), BK), stages {
    a = A[by*BM +: BM, k*BK +: BK]
    b = B[k*BK +: BK, bx*BN +: BN]
    acc += a @ b
  }
  C[by*BM +: BM, bx*BN +: BN] = acc
}
"""

# ---- C = A B, all lower triangular: j <= k <= i
LOWER = """tile 1
kernel lower<T: f32 | bf16>(A: T[N, N], B: T[N, N], C: out T[N, N])
key N
tune BM = 128 | 64, BN = 128 | 64 | 256, BK = 64 | 32, stages = 4 | 3 | 2
grid by < ceildiv(N, BM), bx < ceildiv(N, BN)
{
  shared   a: T[BM, BK], b: T[BK, BN]
  fragment acc: f32[BM, BN] = 0
  pipelined k in bx*BN / BK .. ceildiv(min(N, by*BM + BM), BK), stages {
    a = A[by*BM +: BM, k*BK +: BK]
    b = B[k*BK +: BK, bx*BN +: BN]
    acc += a @ b
  }
  C[by*BM +: BM, bx*BN +: BN] = acc
}
"""

# ---- the same where neither input is clean: what lies above the diagonal is memory that means nothing
MASKED = """tile 1
kernel lower_masked<T: f32 | bf16>(A: T[N, N], B: T[N, N], C: out T[N, N])
key N
tune auto BM, BN, BK, stages
grid by < ceildiv(N, BM), bx < ceildiv(N, BN)
{
  shared   a: T[BM, BK], b: T[BK, BN]
  fragment acc: f32[BM, BN] = 0
  pipelined k in bx*BN / BK .. ceildiv(min(N, by*BM + BM), BK), stages {
    parallel i < BM, j < BK { a[i, j] = by*BM + i >= k*BK + j ? A[by*BM + i, k*BK + j] : 0 }
    parallel i < BK, j < BN { b[i, j] = k*BK + i >= bx*BN + j ? B[k*BK + i, bx*BN + j] : 0 }
    acc += a @ b
  }
  C[by*BM +: BM, bx*BN +: BN] = acc
}
"""

TN = """tile 1
kernel matmul_tn<T: f32 | bf16>(A: T[K, M], B: T[K, N], C: out T[M, N])
key M, N, K
tune auto BM, BN, BK, stages
grid by < ceildiv(M, BM), bx < ceildiv(N, BN)
{
  shared   a: T[BK, BM], b: T[BK, BN]
  fragment acc: f32[BM, BN] = 0
  pipelined k < ceildiv(K, BK), stages {
    a = A[k*BK +: BK, by*BM +: BM]
    b = B[k*BK +: BK, bx*BN +: BN]
    acc += a^T @ b
  }
  C[by*BM +: BM, bx*BN +: BN] = acc
}
"""

NT = """tile 1
kernel matmul_nt<T: f32 | bf16>(A: T[M, K], B: T[N, K], C: out T[M, N])
key M, N, K
tune auto BM, BN, BK, stages
grid by < ceildiv(M, BM), bx < ceildiv(N, BN)
{
  shared   a: T[BM, BK], b: T[BN, BK]
  fragment acc: f32[BM, BN] = 0
  pipelined k < ceildiv(K, BK), stages {
    a = A[by*BM +: BM, k*BK +: BK]
    b = B[bx*BN +: BN, k*BK +: BK]
    acc += a @ b^T
  }
  C[by*BM +: BM, bx*BN +: BN] = acc
}
"""

TT = """tile 1
kernel matmul_tt<T: f32 | bf16>(A: T[K, M], B: T[N, K], C: out T[M, N])
key M, N, K
tune BM = 128 | 64, BN = 128 | 256 | 64, BK = 64 | 32, stages = 4 | 3 | 2
grid by < ceildiv(M, BM), bx < ceildiv(N, BN)
{
  shared   a: T[BK, BM], b: T[BN, BK]
  fragment acc: f32[BM, BN] = 0
  pipelined k < ceildiv(K, BK), stages {
    a = A[k*BK +: BK, by*BM +: BM]
    b = B[bx*BN +: BN, k*BK +: BK]
    acc += a^T @ b^T
  }
  C[by*BM +: BM, bx*BN +: BN] = acc
}
"""


def triangular(cut):
    def fills(dtype):
        def fill(shape, t, d):
            return cut(torch.randn(shape, device=DEV)).to(dtype)
        return {"A": fill, "B": fill}
    return fills


N = {"large": {"N": 4096}, "odd": {"N": 1027}, "small": {"N": 77}}
MNK = {"large": {"M": 1024, "N": 2048, "K": 4096}, "odd": {"M": 515, "N": 1027, "K": 2051},
       "small": {"M": 33, "N": 45, "K": 67}}

CASES = [
    *both("upper", UPPER, N, lambda t, d: torch.triu(torch.matmul(t.A, t.B)), triangular(torch.triu)),
    *both("lower", LOWER, N, lambda t, d: torch.tril(torch.matmul(t.A, t.B)), triangular(torch.tril)),
    *both("masked", MASKED, {**N, "large": {"N": 2048}},
          lambda t, d: torch.tril(torch.matmul(torch.tril(t.A), torch.tril(t.B)))),
    *both("tn", TN, MNK, lambda t, d: torch.matmul(t.A.T, t.B)),
    *both("nt", NT, MNK, lambda t, d: torch.matmul(t.A, t.B.T)),
    *both("tt", TT, MNK, lambda t, d: torch.matmul(t.A.T, t.B.T)),
]
