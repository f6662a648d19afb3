"""Matrix products with unusual operands, prologues and epilogues."""
import sys

import torch
import torch.nn.functional as F
from unseen import Case

DEV = "cpu" if "--check" in sys.argv or not torch.cuda.is_available() else "cuda"
BF = torch.bfloat16


def randn(shape, scale=1.0, dtype=BF):
    return (torch.randn(shape, device=DEV) * scale).to(dtype)


def positive(shape, scale):
    return (torch.rand(shape, device=DEV) + 0.5) * scale


# ---- a frozen weight with a low-rank adapter, in one kernel
LORA = """tile 1
# Y = X W^T + scale (X A^T) B^T
kernel lora<T: f16 | bf16>(X: T[M, K], W: T[N, K], A: T[R, K], B: T[N, R], Y: out T[M, N], scale: f32)
key  bucket(M), N, K, R
tune BM = 128 | 64, BN = 128 | 256 | 64, BK = 64 | 32, stages = 3 | 4
grid m < ceildiv(M, BM), n < ceildiv(N, BN)
{
  shared   x: T[BM, BK], w: T[BN, BK], a: T[R, BK], b: T[BN, R]
  fragment acc: f32[BM, BN] = 0, low: f32[BM, R] = 0, l: T[BM, R]

  pipelined k < ceildiv(K, BK), stages {
    x = X[m*BM +: BM, k*BK +: BK]
    w = W[n*BN +: BN, k*BK +: BK]
    a = A[:, k*BK +: BK]
    acc += x @ w^T
    low += x @ a^T
  }
  b = B[n*BN +: BN, :]
  parallel i < BM, r < R { low[i, r] *= scale }
  l = low
  acc += l @ b^T
  Y[m*BM +: BM, n*BN +: BN] = acc
}
"""


def lora(t, d):
    return F.linear(t.X, t.W) + t.scale * F.linear(F.linear(t.X, t.A), t.B)


def lora_addmm(t, d):
    return torch.addmm(F.linear(t.X, t.W), F.linear(t.X, t.A), t.B.t(), alpha=t.scale)


# ---- DeepSeek's products of 8-bit floats: a scale for each 128 elements of a row, and for each block of 128 x 128
FP8_BLOCK = """tile 1
kernel fp8_block<O: bf16 | f16>(A: f8e4m3[M, K], SA: f32[M, Kb], B: f8e4m3[N, K], SB: f32[Nb, Kb], C: out O[M, N])
where Kb == ceildiv(K, 128), Nb == ceildiv(N, 128)
key  bucket(M), N, K
tune BM = 128 | 64, BN = 128 | 64, stages = 4 | 3 | 6
grid m < ceildiv(M, BM), n < ceildiv(N, BN)
{
  shared   a: f8e4m3[BM, 128], b: f8e4m3[BN, 128]
  fragment part: f32[BM, BN], acc: f32[BM, BN] = 0

  pipelined k < Kb, stages {
    a = A[m*BM +: BM, k*128 +: 128]
    b = B[n*BN +: BN, k*128 +: 128]
    part = a @ b^T
    parallel i < BM, j < BN { acc[i, j] += part[i, j] * (SA[m*BM + i, k] * SB[(n*BN + j) / 128, k]) }
  }
  C[m*BM +: BM, n*BN +: BN] = acc
}
"""


def blocks(scale, count, dim):
    return scale.repeat_interleave(128, dim).narrow(dim, 0, count)


def fp8_block(t, d, dtype=BF):
    a = t.A.to(dtype) * blocks(t.SA, d["K"], 1).to(dtype)
    b = t.B.to(dtype) * blocks(blocks(t.SB, d["K"], 1), d["N"], 0).to(dtype)
    return F.linear(a, b)


def fp8_block_scaled_mm(t, d):
    return torch._scaled_mm(t.A, t.B.t(), scale_a=t.SA.t().contiguous().t(), scale_b=t.SB.t(), out_dtype=BF)


# ---- weights in MXFP4 (e2m1 with an e8m0 scale for each 32), as gpt-oss ships them
MXFP4 = """tile 1
kernel mxfp4_linear<T: f16 | bf16>(X: T[M, K], W: u4[N, K], S: u8[N, Kg], bias: T[N], Y: out T[M, N])
where K % 32 == 0 && Kg == K / 32
key  bucket(M), N, K
tune BM = 64 | 32 | 128, BN = 64 | 32 | 128, BK = 128 | 64, stages = 3 | 4
grid m < ceildiv(M, BM), n < ceildiv(N, BN)
{
  shared   x: T[BM, BK], q: u4[BN, BK]
  fragment w: T[BN, BK], acc: f32[BM, BN] = 0

  pipelined k < ceildiv(K, BK), stages {
    x = X[m*BM +: BM, k*BK +: BK]
    q = W[n*BN +: BN, k*BK +: BK]
    parallel i < BN, j < BK {
      let code = q[i, j] & 7
      let size = code < 4 ? 0.5 * code : code < 6 ? code - 2.0 : 2.0 * code - 8.0
      let power = exp2(S[n*BN + i, (k*BK + j) / 32] - 127.0)
      w[i, j] = (q[i, j] > 7 ? -size : size) * power
    }
    acc += x @ w^T
  }
  parallel i < BM, j < BN { acc[i, j] += bias[n*BN + j] }
  Y[m*BM +: BM, n*BN +: BN] = acc
}
"""
E2M1 = [0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6]


def mxfp4(t, d):
    table = torch.tensor(E2M1, dtype=t.X.dtype, device=t.X.device)
    codes = torch.stack((t.W & 15, t.W >> 4), -1).reshape(d["N"], d["Kg"], 32)
    w = table[codes.long()] * torch.exp2(t.S.to(t.X.dtype) - 127)[:, :, None]
    return F.linear(t.X, w.reshape(d["N"], d["K"]), t.bias)


# ---- gradients of the experts' weights: the sum goes over each expert's own rows
GROUPED = """tile 1
kernel grouped_wgrad<T: f16 | bf16>(G: T[M, N], X: T[M, K], ends: i32[E], dW: out T[E, N, K])
key  bucket(M), E, N, K
tune BN = 128 | 64, BK = 128 | 256 | 64, BM = 64 | 32, stages = 4 | 3
grid e < E, n < ceildiv(N, BN), c < ceildiv(K, BK)
{
  shared   g: T[BM, BN], x: T[BM, BK]
  fragment acc: f32[BN, BK] = 0
  let first = ends[e - 1], rows = ends[e] - first

  pipelined m < ceildiv(rows, BM), stages {
    g = G[first + m*BM +: BM, n*BN +: BN] within first +: rows
    x = X[first + m*BM +: BM, c*BK +: BK] within first +: rows
    acc += g^T @ x
  }
  dW[e, n*BN +: BN, c*BK +: BK] = acc
}
"""


def grouped_wgrad(t, d):
    ends = [0] + t.ends.tolist()
    return torch.stack([t.G[a:b].t() @ t.X[a:b] for a, b in zip(ends, ends[1:])])


def random_ends(shape, t, d):
    cuts = torch.randint(0, d["M"] + 1, (shape[0] - 1,), device=DEV).sort().values
    return torch.cat((cuts, torch.tensor([d["M"]], device=DEV))).to(torch.int32)


# ---- a lower triangle times a matrix; what lies above the diagonal is neither read nor zero
TRMM = """tile 1
kernel tril_matmul<T: f16 | bf16>(A: T[B, L, L], X: T[B, L, D], Y: out T[B, L, D])
key  B, bucket(L), D
tune BM = 128 | 64, BN = 128 | 64 | 256, BK = 64 | 32, stages = 3 | 4
where BM % BK == 0
grid b < B, m < ceildiv(L, BM), n < ceildiv(D, BN)
{
  shared   a: T[BM, BK], x: T[BK, BN]
  fragment low: T[BM, BK], acc: f32[BM, BN] = 0

  pipelined k < m * (BM / BK), stages {
    a = A[b, m*BM +: BM, k*BK +: BK]
    x = X[b, k*BK +: BK, n*BN +: BN]
    acc += a @ x
  }
  for k in m * (BM / BK) .. (m + 1) * (BM / BK) {
    a = A[b, m*BM +: BM, k*BK +: BK]
    x = X[b, k*BK +: BK, n*BN +: BN]
    parallel i < BM, j < BK { low[i, j] = k*BK + j <= m*BM + i ? a[i, j] : 0 }
    acc += low @ x
  }
  Y[b, m*BM +: BM, n*BN +: BN] = acc
}
"""

# ---- a step of Newton and Schulz, as Muon takes five of them
MUON = """tile 1
# A = X X^T: one half is computed, both are written.
kernel gram<T: f16 | bf16>(X: T[M, N], A: out T[M, M])
key  M, N
tune S = 128 | 64, BK = 64 | 32, stages = 4 | 3
grid by < ceildiv(M, S), bx < ceildiv(M, S)
{
  shared   a: T[S, BK], b: T[S, BK]
  fragment acc: f32[S, S] = 0
  if bx >= by {
    pipelined k < ceildiv(N, BK), stages {
      a = X[by*S +: S, k*BK +: BK]
      b = X[bx*S +: S, k*BK +: BK]
      acc += a @ b^T
    }
    A[by*S +: S, bx*S +: S] = acc
    if bx > by {
      parallel i < S, j < S { A[bx*S + j, by*S + i] = acc[i, j] }
    }
  }
}

# P = b A + c A A
kernel poly<T: f16 | bf16>(A: T[M, M], P: out T[M, M])
key  M
tune BM = 128 | 64, BN = 128 | 64, BK = 64 | 32, stages = 4 | 3
grid by < ceildiv(M, BM), bx < ceildiv(M, BN)
{
  shared   a: T[BM, BK], b: T[BN, BK]
  fragment acc: f32[BM, BN] = 0
  pipelined k < ceildiv(M, BK), stages {
    a = A[by*BM +: BM, k*BK +: BK]
    b = A[bx*BN +: BN, k*BK +: BK]
    acc += a @ b^T
  }
  parallel i < BM, j < BN { acc[i, j] = 2.0315 * acc[i, j] - 4.775 * A[by*BM + i, bx*BN + j] }
  P[by*BM +: BM, bx*BN +: BN] = acc
}

# Y = a X + P X
kernel apply<T: f16 | bf16>(P: T[M, M], X: T[M, N], Y: out T[M, N])
key  M, N
tune BM = 128 | 64, BN = 128 | 256 | 64, BK = 64 | 32, stages = 4 | 3
grid by < ceildiv(M, BM), bx < ceildiv(N, BN)
{
  shared   p: T[BM, BK], x: T[BK, BN]
  fragment acc: f32[BM, BN] = 0
  pipelined k < ceildiv(M, BK), stages {
    p = P[by*BM +: BM, k*BK +: BK]
    x = X[k*BK +: BK, bx*BN +: BN]
    acc += p @ x
  }
  parallel i < BM, j < BN { acc[i, j] += 3.4445 * X[by*BM + i, bx*BN + j] }
  Y[by*BM +: BM, bx*BN +: BN] = acc
}

program newton_schulz<T: f16 | bf16>(X: T[M, N], Y: out T[M, N])
key  M, N
{
  temp A: T[M, M], P: T[M, M]
  gram(X, A)
  poly(A, P)
  apply(P, X, Y)
}
"""


def newton_schulz(t, d):
    a = t.X @ t.X.t()
    p = torch.addmm(a, a, a, beta=-4.775, alpha=2.0315)
    return torch.addmm(t.X, p, t.X, beta=3.4445)


# ---- queries into the latent space of MLA: a product for each head, of rows that lie apart
ABSORB = """tile 1
kernel mla_absorb<T: f16 | bf16>(Q: T[B, H, D], W: T[H, D, R], O: out T[B, H, R])
key  bucket(B), H, D, R
tune auto BM, BR
grid h < H, r < ceildiv(R, BR), m < ceildiv(B, BM)
{
  shared   q: T[BM, D], w: T[D, BR]
  fragment o: f32[BM, BR]
  q = Q[m*BM +: BM, h, :]
  w = W[h, :, r*BR +: BR]
  o = q @ w
  O[m*BM +: BM, h, r*BR +: BR] = o
}
"""

# ---- a weight of blocks of 64 x 64, most of which are absent
SPARSE = """tile 1
kernel block_sparse<T: f16 | bf16>(X: T[M, K], values: T[Z, 64, 64], crow: i32[P], col: i32[Z], Y: out T[M, N])
where N == 64 * (P - 1) && K % 64 == 0
key  bucket(M), bucket(Z), N, K
tune BM = 128 | 64 | 256, stages = 4 | 3 | 2
grid m < ceildiv(M, BM), n < P - 1
{
  shared   x: T[BM, 64], w: T[64, 64]
  fragment acc: f32[BM, 64] = 0
  pipelined z in crow[n] .. crow[n + 1], stages {
    x = X[m*BM +: BM, col[z]*64 +: 64]
    w = values[z, :, :]
    acc += x @ w^T
  }
  Y[m*BM +: BM, n*64 +: 64] = acc
}
"""


def sparse_rows(shape, t, d):
    columns = d["K"] // 64
    t.places = torch.randperm((d["P"] - 1) * columns, device=DEV)[:d["Z"]].sort().values
    counts = torch.bincount(t.places // columns, minlength=d["P"] - 1)
    return F.pad(counts.cumsum(0), (1, 0)).to(torch.int32)


def sparse_columns(shape, t, d):
    columns = d["K"] // 64
    dense = torch.zeros((d["P"] - 1) * columns, 64, 64, dtype=t.values.dtype, device=DEV)
    dense[t.places] = t.values
    t.dense = dense.view(d["P"] - 1, columns, 64, 64).transpose(1, 2).reshape(d["N"], d["K"])
    return (t.places % columns).to(torch.int32)


def bsr(t, d):
    return F.linear(t.X, torch.sparse_bsr_tensor(t.crow, t.col, t.values, size=(d["N"], d["K"])))


# ---- the way out of a block of a diffusion transformer: a gate for each image, onto the residual
ADALN = """tile 1
kernel adaln_proj<T: f16 | bf16>(X: T[B, S, K], W: T[N, K], bias: T[N], gate: T[B, N], R: T[B, S, N], Y: out T[B, S, N])
key  B, bucket(S), N, K
tune auto BM, BN, BK, stages
grid b < B, m < ceildiv(S, BM), n < ceildiv(N, BN)
{
  shared   x: T[BM, BK], w: T[BN, BK]
  fragment acc: f32[BM, BN] = 0
  pipelined k < ceildiv(K, BK), stages {
    x = X[b, m*BM +: BM, k*BK +: BK]
    w = W[n*BN +: BN, k*BK +: BK]
    acc += x @ w^T
  }
  parallel i < BM, j < BN {
    let col = n*BN + j
    acc[i, j] = R[b, m*BM + i, col] + gate[b, col] * (acc[i, j] + bias[col])
  }
  Y[b, m*BM +: BM, n*BN +: BN] = acc
}
"""

# ---- nn.Bilinear
BILINEAR = """tile 1
kernel bilinear<T: f16 | bf16>(X: T[M, I], Z: T[M, J], W: T[O, I, J], bias: T[O], Y: out T[M, O])
key  bucket(M), O, I, J
tune BM = 64 | 128, BO = 8 | 16 | 32, stages = 2 | 3
grid m < ceildiv(M, BM), n < ceildiv(O, BO)
{
  shared   x: T[BM, I], w: T[I, J]
  fragment z: T[BM, J], p: f32[BM, J], y: f32[BM, BO]
  x = X[m*BM +: BM, :]
  z = Z[m*BM +: BM, :]
  pipelined o < BO, stages {
    w = W[n*BO + o, :, :]
    p = x @ w
    parallel i < BM { y[i, o] = sum[j < J](p[i, j] * z[i, j]) + bias[n*BO + o] }
  }
  Y[m*BM +: BM, n*BO +: BO] = y
}
"""

def bilinear_matmul(t, d):
    p = (t.X @ t.W.transpose(0, 1).reshape(d["I"], -1)).unflatten(1, (d["O"], -1))
    return (p @ t.Z[..., None])[..., 0] + t.bias


B16 = {"T": "bf16"}
CASES = [
    Case("lora", LORA, {"large": dict(M=4096, N=4096, K=4096, R=64), "odd": dict(M=3001, N=2999, K=3011, R=48),
                        "small": dict(M=70, N=50, K=96, R=16)}, lora, types=B16,
         fills={"scale": lambda s, t, d: 2.0, "A": lambda s, t, d: randn(s, d["K"] ** -0.5)},
         peers={"addmm": lora_addmm}),
    Case("fp8_block", FP8_BLOCK,
         {"large": dict(M=4096, N=7168, K=2048, Kb=16, Nb=56), "odd": dict(M=1031, N=2056, K=3344, Kb=27, Nb=17),
          "small": dict(M=40, N=150, K=272, Kb=3, Nb=2)}, fp8_block, types={"O": "bf16"},
         fills={"SA": lambda s, t, d: positive(s, 0.01), "SB": lambda s, t, d: positive(s, 0.01)},
         reference=lambda t, d: fp8_block(t, d, torch.float64), peers={"scaled_mm": fp8_block_scaled_mm}),
    Case("mxfp4_linear", MXFP4,
         {"large": dict(M=64, N=16384, K=8192, Kg=256), "odd": dict(M=37, N=5003, K=2880, Kg=90),
          "small": dict(M=9, N=37, K=160, Kg=5)}, mxfp4, types=B16,
         fills={"S": lambda s, t, d: torch.randint(118, 123, s, device=DEV).to(torch.uint8)}),
    Case("grouped_wgrad", GROUPED,
         {"large": dict(M=16384, E=16, N=2048, K=2048), "odd": dict(M=7001, E=7, N=1409, K=1013),
          "small": dict(M=90, E=3, N=40, K=50)}, grouped_wgrad, types=B16, fills={"ends": random_ends}, compiled=False,
         peers={"grouped_mm": lambda t, d: torch._grouped_mm(t.G.t(), t.X, offs=t.ends)}),
    Case("tril_matmul", TRMM, {"large": dict(B=8, L=4096, D=512), "odd": dict(B=3, L=2999, D=331),
                               "small": dict(B=2, L=150, D=40)}, lambda t, d: torch.tril(t.A) @ t.X, types=B16),
    Case("newton_schulz", MUON, {"large": dict(M=2048, N=8192), "odd": dict(M=1021, N=3067),
                                 "small": dict(M=70, N=150)}, newton_schulz, types=B16,
         fills={"X": lambda s, t, d: randn(s, (s[0] * s[1]) ** -0.5)}),
    Case("mla_absorb", ABSORB, {"large": dict(B=256, H=128, D=128, R=512), "odd": dict(B=211, H=61, D=128, R=499),
                                "small": dict(B=20, H=3, D=32, R=72)},
         lambda t, d: torch.einsum("bhd,hdr->bhr", t.Q, t.W), types=B16),
    Case("block_sparse", SPARSE,
         {"large": dict(M=8192, K=4096, N=4096, P=65, Z=512), "odd": dict(M=3001, K=2752, N=1984, P=32, Z=193),
          "small": dict(M=40, K=192, N=128, P=3, Z=3)}, lambda t, d: F.linear(t.X, t.dense), types=B16,
         fills={"crow": sparse_rows, "col": sparse_columns}, peers={"bsr": bsr}),
    Case("adaln_proj", ADALN,
         {"large": dict(B=8, S=1024, N=1152, K=4608), "odd": dict(B=5, S=577, N=1001, K=1531),
          "small": dict(B=2, S=30, N=50, K=70)},
         lambda t, d: torch.addcmul(t.R, t.gate[:, None], F.linear(t.X, t.W, t.bias)), types=B16),
    Case("bilinear", BILINEAR,
         {"large": dict(M=8192, I=128, J=128, O=64), "odd": dict(M=5003, I=96, J=72, O=37),
          "small": dict(M=40, I=24, J=40, O=11)}, lambda t, d: F.bilinear(t.X, t.Z, t.W, t.bias), types=B16,
         peers={"matmul": bilinear_matmul}),
]
