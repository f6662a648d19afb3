"""Products with rows of odd length, and what stands behind and in front of them."""
import torch
from unseen import Case


def text(name, params, tail):
    return f"""tile 1
kernel {name}(A: bf16[M, K], B: bf16[N, K], {params}C: out bf16[M, N])
key bucket(M), N, K
tune BM = 64 | 128, BN = 64 | 128 | 256, BK = 64, stages = 4 | 5, threads = 128 | 256 | 384
grid m < ceildiv(M, BM), n < ceildiv(N, BN)
{{
  shared   a: bf16[BM, BK], b: bf16[BN, BK]
  fragment acc: f32[BM, BN] = 0
  pipelined k < ceildiv(K, BK), stages {{
    a = A[m*BM +: BM, k*BK +: BK]
    b = B[n*BN +: BN, k*BK +: BK]
    acc += a @ b^T
  }}
{tail}
  C[m*BM +: BM, n*BN +: BN] = acc
}}
"""


ADDED = "  parallel i < BM, j < BN { acc[i, j] += f32(H[m*BM + i, n*BN + j]) }"
GELU = """  parallel i < BM, j < BN {
    let h = f32(H[m*BM + i, n*BN + j]), t = tanh(0.7978845608 * (h + 0.044715 * h * h * h))
    acc[i, j] *= 0.5 * (1 + t) + 0.5 * h * (1 - t * t) * 0.7978845608 * (1 + 0.134145 * h * h)
  }"""


def wide(x):
    return x.float() if x.dtype == torch.bfloat16 else x


def gelu_gradient(t, d):
    h = wide(t.H)
    u = torch.tanh(0.7978845608 * (h + 0.044715 * h * h * h))
    slope = 0.5 * (1 + u) + 0.5 * h * (1 - u * u) * 0.7978845608 * (1 + 0.134145 * h * h)
    return ((t.A @ t.B.T) * slope).to(t.A.dtype)


RMS_LINEAR = """tile 1
kernel rms_linear(X: bf16[M, K], G: bf16[K], W: bf16[N, K], Y: out bf16[M, N])
key bucket(M), N, K
tune BM = 64 | 128, BN = 64 | 128 | 256, BK = 64, stages = 3 | 4, threads = 128 | 256 | 384
grid m < ceildiv(M, BM), n < ceildiv(N, BN)
{
  shared   x: bf16[BM, BK], w: bf16[BN, BK], a: bf16[BM, BK]
  fragment c: f32[BM, BN] = 0, s: f32[BM] = 0
  pipelined k < ceildiv(K, BK), stages {
    x = X[m*BM +: BM, k*BK +: BK]
    w = W[n*BN +: BN, k*BK +: BK]
    parallel i < BM { s[i] += sum[j < BK](f32(x[i, j]) * f32(x[i, j])) }
    parallel i < BM, j < BK { a[i, j] = bf16(f32(x[i, j]) * (k*BK + j < K ? f32(G[k*BK + j]) : 0)) }
    c += a @ w^T
  }
  parallel i < BM, j < BN { c[i, j] *= rsqrt(s[i] / K + 1e-6) }
  Y[m*BM +: BM, n*BN +: BN] = c
}
"""


def rms_linear(t, d):
    x = wide(t.X)
    return ((x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6)).to(t.X.dtype) * t.G) @ t.W.T


H = "H: bf16[M, N], "
SHAPES = {"odd": dict(M=3001, N=5763, K=1725), "even_n": dict(M=3001, N=5764, K=1725),
          "even_k": dict(M=3001, N=5763, K=1728), "even": dict(M=3001, N=5768, K=1728),
          "small": dict(M=37, N=45, K=53)}
CASES = [
    Case("plain", text("plain", "", ""), SHAPES, lambda t, d: t.A @ t.B.T),
    Case("added", text("added", H, ADDED), SHAPES, lambda t, d: t.A @ t.B.T + t.H),
    Case("gelu_gradient", text("gelu_gradient", H, GELU), SHAPES, gelu_gradient),
    Case("rms_linear", RMS_LINEAR, {"odd": dict(M=1511, N=5763, K=2885), "even": dict(M=1512, N=5768, K=2888),
                                    "large": dict(M=4096, N=12288, K=4096), "small": dict(M=37, N=45, K=53)}, rms_linear, tolerance=1e-2),
]
