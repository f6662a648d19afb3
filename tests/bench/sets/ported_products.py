"""Products as in TileLang's examples and Triton's tutorials."""
import torch
import torch.nn.functional as F
from sets.shared.everyday import B16, BF, DEV, const, wide
from unseen import Case

H16 = {"T": "f16"}

# ---- C = A^T B^T, both operands the other way round
TT = """tile 1
kernel gemm_tt<T: f16 | bf16>(A: T[K, M], B: T[N, K], C: out T[M, N])
key M, N, K
tune block_M = 128 | 64, block_N = 128 | 256 | 64, block_K = 64 | 32, num_stages = 3 | 4
grid by < ceildiv(M, block_M), bx < ceildiv(N, block_N)
{
  shared   A_shared: T[block_K, block_M], B_shared: T[block_N, block_K]
  fragment C_local: f32[block_M, block_N] = 0

  pipelined ko < ceildiv(K, block_K), num_stages {
    A_shared = A[ko*block_K +: block_K, by*block_M +: block_M]
    B_shared = B[bx*block_N +: block_N, ko*block_K +: block_K]
    C_local += A_shared^T @ B_shared^T
  }
  C[by*block_M +: block_M, bx*block_N +: block_N] = C_local
}
"""

# ---- alpha A B + beta C, all row-major (TritonBench addmm)
ADDMM = """tile 1
kernel addmm<T: f16 | bf16>(A: T[M, K], B: T[K, N], bias: T[N], R: T[M, N], C: out T[M, N], alpha: f32, beta: f32)
key bucket(M), N, K
tune auto BM, BN, BK, stages
grid m < ceildiv(M, BM), n < ceildiv(N, BN)
{
  shared   a: T[BM, BK], b: T[BK, BN]
  fragment acc: f32[BM, BN] = 0, r: T[BM, BN], bb: T[BN]
  pipelined k < ceildiv(K, BK), stages {
    a = A[m*BM +: BM, k*BK +: BK]
    b = B[k*BK +: BK, n*BN +: BN]
    acc += a @ b
  }
  r = R[m*BM +: BM, n*BN +: BN]
  bb = bias[n*BN +: BN]
  parallel i < BM, j < BN { acc[i, j] = alpha * acc[i, j] + beta * r[i, j] + bb[j] }
  C[m*BM +: BM, n*BN +: BN] = acc
}
"""


def addmm(t, d):
    return torch.addmm(t.R, t.A, t.B, beta=t.beta, alpha=t.alpha) + t.bias


# ---- fp8, sums of 128 columns scaled by a row's factor of A and a 128 x 128 block's of B (DeepGEMM, two-level sums)
FP8 = """tile 1
kernel fp8_two_level(A: f8e4m3[M, K], As: f32[M, Kg], B: f8e4m3[N, K], Bs: f32[Ng, Kg], C: out bf16[M, N])
where Kg == ceildiv(K, 128), Ng == ceildiv(N, 128)
key bucket(M), N, K
tune BM = 64 | 128, BN = 128 | 64, stages = 4 | 3 | 2
grid m < ceildiv(M, BM), n < ceildiv(N, BN)
{
  shared   a: f8e4m3[BM, 128], b: f8e4m3[BN, 128]
  fragment part: f32[BM, BN], acc: f32[BM, BN] = 0

  pipelined k < ceildiv(K, 128), stages {
    a = A[m*BM +: BM, k*128 +: 128]
    b = B[n*BN +: BN, k*128 +: 128]
    part = a @ b^T
    let sb = Bs[n*BN / 128, k]
    parallel i < BM, j < BN { acc[i, j] += part[i, j] * (As[m*BM + i, k] * sb) }
  }
  C[m*BM +: BM, n*BN +: BN] = acc
}
"""


def block_scales(t, d):
    a = wide(t.A.to(torch.float32) if t.A.dtype != torch.float64 else t.A)
    b = t.B.to(a.dtype)
    a = a * t.As.repeat_interleave(128, 1)[:, :d["K"]]
    b = b * t.Bs.repeat_interleave(128, 0)[:d["N"]].repeat_interleave(128, 1)[:, :d["K"]]
    return a, b


def fp8_two_level(t, d):
    a, b = block_scales(t, d)
    if a.dtype == torch.float64:
        return a @ b.T
    return a.to(BF) @ b.to(BF).T


ONE = {}


def fp8_scaled_mm(t, d):
    one = ONE.setdefault(0, torch.ones((), device=t.A.device))
    return torch._scaled_mm(t.A, t.B.T, scale_a=one, scale_b=one, out_dtype=BF)


# ---- split-K in a program, with a reduction that also has the epilogue
SPLITK = """tile 1
kernel part<T: f16 | bf16>(A: T[M, K], B: T[K, N], P: out f32[S, M, N])
key M, N, K, S
tune BM = 64 | 128 | 16, BN = 64 | 128, stages = 4 | 3
grid s < S, m < ceildiv(M, BM), n < ceildiv(N, BN)
{
  shared   a: T[BM, 64], b: T[64, BN]
  fragment acc: f32[BM, BN] = 0
  let steps = ceildiv(K, 64)
  let share = ceildiv(steps, S)
  pipelined k in s*share .. min(steps, (s + 1)*share), stages {
    a = A[m*BM +: BM, k*64 +: 64]
    b = B[k*64 +: 64, n*BN +: BN]
    acc += a @ b
  }
  P[s, m*BM +: BM, n*BN +: BN] = acc
}

kernel reduce<T: f16 | bf16>(P: f32[S, M, N], C: out T[M, N])
key bucket(M*N), S
tune BN = 256 | 1024
grid m < M, n < ceildiv(N, BN)
{
  fragment x: f32[BN], y: f32[BN] = 0
  for s < S {
    x = P[s, m, n*BN +: BN]
    parallel j < BN { y[j] += x[j] }
  }
  C[m, n*BN +: BN] = y
}

program splitk<T: f16 | bf16>(A: T[M, K], B: T[K, N], C: out T[M, N])
key M, N, K
tune splits = 4 | 8 | 16 | 2
{
  temp P: f32[splits, M, N]
  part(A, B, P)
  reduce(P, C)
}
"""

# ---- grouped gemm, ragged groups of rows by offsets, weights [E, K, N] (TileLang's grouped_gemm_fwd)
GROUPED = """tile 1
kernel grouped<T: f16 | bf16>(X: T[N, K], W: T[E, K, O], ends: i32[E], Y: out T[N, O], most: i32)
key bucket(N), K, O, E
tune BM = 128 | 64, BN = 128 | 64 | 256, BK = 64, stages = 3 | 4
grid e < E, m < ceildiv(most, BM), n < ceildiv(O, BN)
{
  shared   x: T[BM, BK], w: T[BK, BN]
  fragment acc: f32[BM, BN] = 0
  let first = ends[e - 1], size = ends[e] - ends[e - 1]

  if m*BM < size {
    pipelined k < ceildiv(K, BK), stages {
      x = X[first + m*BM +: BM, k*BK +: BK] within first +: size
      w = W[e, k*BK +: BK, n*BN +: BN]
      acc += x @ w
    }
    Y[first + m*BM +: BM, n*BN +: BN] within first +: size = acc
  }
}
"""


def ragged_ends(shape, t, d):
    cuts = torch.randint(0, d["N"] + 1, (shape[0] - 1,)).sort().values.tolist()
    t.host = [0, *cuts, d["N"]]
    return torch.tensor(t.host[1:], dtype=torch.int32, device=DEV)


def most_rows(s, t, d):
    return max(b - a for a, b in zip(t.host, t.host[1:]))


def grouped(t, d):
    return torch.cat([t.X[a:b] @ t.W[e] for e, (a, b) in enumerate(zip(t.host, t.host[1:]))])


def grouped_mm(t, d):
    return torch._grouped_mm(t.X, t.W, offs=t.ends)


def one_matmul(t, d):
    return t.X @ t.W[0]


# ---- its weights' gradient: dW[e] = X_e^T dY_e over the rows of group e
GROUPED_BWD = """tile 1
kernel grouped_dw<T: f16 | bf16>(X: T[N, K], dY: T[N, O], ends: i32[E], dW: out T[E, K, O])
key bucket(N), K, O, E
tune BM = 128 | 64, BN = 128 | 256 | 64, BK = 64 | 32, stages = 3 | 4 | 2
grid e < E, m < ceildiv(K, BM), n < ceildiv(O, BN)
{
  shared   x: T[BK, BM], y: T[BK, BN]
  fragment acc: f32[BM, BN] = 0
  let first = ends[e - 1], size = ends[e] - first

  pipelined k < ceildiv(size, BK), stages {
    x = X[first + k*BK +: BK, m*BM +: BM] within first +: size
    y = dY[first + k*BK +: BK, n*BN +: BN] within first +: size
    acc += x^T @ y
  }
  dW[e, m*BM +: BM, n*BN +: BN] = acc
}
"""


def grouped_dw(t, d):
    return torch.stack([t.X[a:b].T @ t.dY[a:b] for a, b in zip(t.host, t.host[1:])])


def grouped_mm_dw(t, d):
    return torch._grouped_mm(t.X.T, t.dY, offs=t.ends)


# ---- batched, with bias, residual and silu
BMM = """tile 1
kernel bmm_epilogue<T: f16 | bf16>(A: T[B, M, K], W: T[B, K, N], bias: T[B, N], R: T[B, M, N], C: out T[B, M, N])
key bucket(B), bucket(M), N, K
tune BM = 128 | 64, BN = 128 | 64, BK = 64 | 32, stages = 3 | 4
grid z < B, m < ceildiv(M, BM), n < ceildiv(N, BN)
{
  shared   a: T[BM, BK], w: T[BK, BN]
  fragment acc: f32[BM, BN] = 0
  pipelined k < ceildiv(K, BK), stages {
    a = A[z, m*BM +: BM, k*BK +: BK]
    w = W[z, k*BK +: BK, n*BN +: BN]
    acc += a @ w
  }
  parallel i < BM, j < BN {
    let v = acc[i, j] + bias[z, n*BN + j]
    acc[i, j] = v / (1 + exp(-v)) + R[z, m*BM + i, n*BN + j]
  }
  C[z, m*BM +: BM, n*BN +: BN] = acc
}
"""


def bmm_epilogue(t, d):
    return F.silu(torch.baddbmm(t.bias[:, None], t.A, t.W)) + t.R


# ---- persistent: as many blocks as processors, each walks through the tiles, in groups of 8 rows (Triton's tutorial 9)
PERSISTENT = """tile 1
kernel persistent<T: f16 | bf16>(A: T[M, K], B: T[N, K], C: out T[M, N], programs: i32)
key M, N, K
tune BM = 128 | 64, BN = 128 | 256, BK = 64, stages = 3 | 4
grid pid < programs
{
  shared   a: T[BM, BK], b: T[BN, BK]
  fragment acc: f32[BM, BN]
  let rows = ceildiv(M, BM), cols = ceildiv(N, BN)
  let group = 8 * cols

  for step < ceildiv(rows * cols - pid, programs) {
    let tile_id = step * programs + pid
    let first = tile_id / group * 8
    let height = min(rows - first, 8)
    let m = first + tile_id % group % height, n = tile_id % group / height
    acc = 0
    pipelined k < ceildiv(K, BK), stages {
      a = A[m*BM +: BM, k*BK +: BK]
      b = B[n*BN +: BN, k*BK +: BK]
      acc += a @ b^T
    }
    C[m*BM +: BM, n*BN +: BN] = acc
  }
}
"""

# ---- y = x W^T + s (x A^T) B^T, of rank R, in one kernel (LoRA)
LORA = """tile 1
kernel lora<T: f16 | bf16, const R: i64>(X: T[M, K], W: T[N, K], A: T[R, K], B: T[N, R], Y: out T[M, N], s: f32)
key bucket(M), N, K
tune BM = 128 | 64, BN = 128 | 64 | 256, BK = 64 | 32, stages = 3 | 4
grid m < ceildiv(M, BM), n < ceildiv(N, BN)
{
  shared   x: T[BM, BK], w: T[BN, BK], a: T[R, BK], b: T[BN, R]
  fragment acc: f32[BM, BN] = 0, low: f32[BM, R] = 0, lows: T[BM, R]
  pipelined k < ceildiv(K, BK), stages {
    x = X[m*BM +: BM, k*BK +: BK]
    w = W[n*BN +: BN, k*BK +: BK]
    a = A[:, k*BK +: BK]
    acc += x @ w^T
    low += x @ a^T
  }
  parallel i < BM, r < R { lows[i, r] = low[i, r] * s }
  b = B[n*BN +: BN, :]
  acc += lows @ b^T
  Y[m*BM +: BM, n*BN +: BN] = acc
}
"""


def lora(t, d):
    return t.X @ t.W.T + ((t.X @ t.A.T) * t.s) @ t.B.T


def scaled_normal(factor):
    return lambda s, t, d: (torch.randn(s, device=DEV) * factor).to(BF)


CASES = [
    Case("gemm_tt", TT, {"large": dict(M=4096, N=4096, K=4096), "odd": dict(M=1021, N=2011, K=1511),
                         "small": dict(M=70, N=50, K=90)}, lambda t, d: t.A.T @ t.B.T, types=H16),
    Case("addmm", ADDMM, {"large": dict(M=8192, N=4096, K=2048), "odd": dict(M=1999, N=1301, K=777),
                          "small": dict(M=75, N=66, K=130)}, addmm, types=B16, fills={"alpha": const(0.5), "beta": const(1.5)},
         peers={"addmm": lambda t, d: torch.addmm(t.R, t.A, t.B, beta=t.beta, alpha=t.alpha)}),
    Case("fp8_two_level", FP8, {"large": dict(M=4096, N=7168, K=2048, Kg=16, Ng=56), "odd": dict(M=1013, N=1552, K=1168, Kg=10, Ng=13),
                                "small": dict(M=67, N=150, K=272, Kg=3, Ng=2)}, fp8_two_level,
         fills={"As": lambda s, t, d: torch.rand(s, device=DEV) + 0.5, "Bs": lambda s, t, d: torch.rand(s, device=DEV) + 0.5},
         peers={"scaled_mm": fp8_scaled_mm}),
    Case("splitk", SPLITK, {"large": dict(M=128, N=4096, K=16384), "odd": dict(M=37, N=1801, K=9973),
                            "small": dict(M=20, N=70, K=600)}, lambda t, d: t.A @ t.B, kernel="splitk", types=B16),
    Case("grouped_fwd", GROUPED, {"large": dict(N=16384, K=2048, O=2048, E=16), "odd": dict(N=5003, K=1000, O=1208, E=11),
                                  "small": dict(N=100, K=72, O=50, E=4)}, grouped, types=B16, compiled=False,
         fills={"ends": ragged_ends, "most": most_rows}, peers={"grouped_mm": grouped_mm, "one_matmul": one_matmul}),
    Case("grouped_dw", GROUPED_BWD, {"large": dict(N=16384, K=2048, O=2048, E=16), "odd": dict(N=5003, K=1000, O=1208, E=11),
                                     "small": dict(N=100, K=72, O=50, E=4)}, grouped_dw, types=B16, compiled=False,
         fills={"ends": ragged_ends}, peers={"grouped_mm": grouped_mm_dw}),
    Case("bmm_epilogue", BMM, {"large": dict(B=32, M=1024, N=1024, K=512), "odd": dict(B=7, M=523, N=611, K=331),
                               "small": dict(B=2, M=50, N=70, K=66)}, bmm_epilogue, types=B16,
         peers={"baddbmm": lambda t, d: torch.baddbmm(t.R, t.A, t.W)}),
    Case("persistent", PERSISTENT, {"large": dict(M=4096, N=4096, K=4096), "odd": dict(M=3001, N=2053, K=1999),
                                    "small": dict(M=300, N=290, K=70)}, lambda t, d: t.A @ t.B.T, types=H16,
         fills={"programs": lambda s, t, d: 3 if DEV == "cpu" else 132}),
    Case("lora", LORA, {"large": dict(M=8192, N=4096, K=4096, R=16), "odd": dict(M=1201, N=1999, K=1000, R=16),
                        "small": dict(M=70, N=90, K=130, R=16)}, lora, types=B16, consts={"R": 16},
         fills={"s": const(2.0), "A": scaled_normal(0.05), "B": scaled_normal(0.5)},
         peers={"matmul": lambda t, d: t.X @ t.W.T}),
]
