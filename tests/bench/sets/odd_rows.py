"""Rows of odd length: gated norms of groups, a gradient, softmax, elementwise."""
import torch
import torch.nn.functional as F
from unseen import Case


def wide(x):
    return x.float() if x.dtype == torch.bfloat16 else x


GROUPS = """tile 1
kernel group_rms(X: bf16[M, H, D], Z: bf16[M, H, D], G: bf16[H, D], Y: out bf16[M, H, D])
where BD >= D && BD < 2 * D
tune BD = 128 | 256 | 512 | 1024, BM = 1 | 2 | 4 | 8, threads = 32 | 64 | 128 | 256
grid m < ceildiv(M, BM), h < H
{
  fragment x: f32[BM, BD], z: f32[BM, BD]
  x = X[m*BM +: BM, h, 0 +: BD]
  z = Z[m*BM +: BM, h, 0 +: BD]
  parallel i < BM, j < BD { x[i, j] *= z[i, j] / (1 + exp(-z[i, j])) }
  parallel i < BM, j < BD {
    x[i, j] *= rsqrt(sum[k < BD](x[i, k] * x[i, k]) / D + 1e-5) * f32(G[h, j])
  }
  Y[m*BM +: BM, h, 0 +: BD] = x
}
"""


def groups(t, d):
    y = wide(t.X) * F.silu(wide(t.Z))
    return (y * torch.rsqrt((y * y).mean(-1, keepdim=True) + 1e-5) * t.G).to(t.X.dtype)


GRADIENT = """tile 1
kernel rms_dx(X: bf16[M, D], G: bf16[M, D], W: bf16[D], DX: out bf16[M, D])
where BD >= D && BD < 2 * D
tune BD = 1024 | 2048 | 4096 | 8192, threads = 128 | 256 | 512
grid m < M
{
  fragment x: f32[BD], g: f32[BD], w: f32[BD]
  x = X[m, 0 +: BD]
  g = G[m, 0 +: BD]
  w = W[0 +: BD]
  parallel j < BD { g[j] *= w[j] }
  parallel j < BD {
    let r = rsqrt(sum[k < BD](x[k] * x[k]) / D + 1e-5)
    DX[m, j] = bf16(r * (g[j] - x[j] * r * r * sum[k < BD](x[k] * g[k]) / D))
  }
}
"""


def gradient(t, d):
    x, g, w = wide(t.X), wide(t.G), wide(t.W)
    r = torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5)
    return (r * (g * w - x * r * r * (x * g * w).mean(-1, keepdim=True))).to(t.X.dtype)


SOFTMAX = """tile 1
kernel sm(X: bf16[M, D], Y: out bf16[M, D])
where BD >= D && BD < 2 * D
tune BD = 512 | 1024 | 2048 | 4096 | 8192, BM = 1 | 4, threads = 128 | 256 | 512
grid m < ceildiv(M, BM)
{
  fragment x: f32[BM, BD]
  x = X[m*BM +: BM, 0 +: BD]
  parallel i < BM, j < BD { let top = max[k < BD](k < D ? x[i, k] : -inf)  x[i, j] = j < D ? exp(x[i, j] - top) : 0 }
  parallel i < BM, j < BD { x[i, j] = x[i, j] / sum[k < BD](x[i, k]) }
  Y[m*BM +: BM, 0 +: BD] = x
}
"""
SWIGLU = """tile 1
kernel swiglu(A: bf16[M, D], B: bf16[M, D], Y: out bf16[M, D])
tune BD = 512 | 1024 | 2048, threads = 128 | 256
grid m < M, d < ceildiv(D, BD)
{
  parallel j < BD { if d*BD + j < D { let a = f32(A[m, d*BD + j])  Y[m, d*BD + j] = bf16(a / (1 + exp(-a)) * f32(B[m, d*BD + j])) } }
}
"""

CASES = [
    Case("group_rms", GROUPS, {"odd": dict(M=5003, H=17, D=321), "even": dict(M=5003, H=17, D=320),
                               "large": dict(M=16384, H=16, D=512), "small": dict(M=5, H=3, D=129)}, groups),
    Case("rms_dx", GRADIENT, {"odd": dict(M=5003, D=3001), "even": dict(M=5003, D=3000), "large": dict(M=16384, D=4096),
                               "small": dict(M=3, D=1025)},
         gradient),
    Case("softmax", SOFTMAX, {"odd": dict(M=5003, D=3001), "even": dict(M=5003, D=3000), "small": dict(M=3, D=517)},
         lambda t, d: torch.softmax(wide(t.X), -1).to(t.X.dtype)),
    Case("swiglu", SWIGLU, {"odd": dict(M=5003, D=5001), "even": dict(M=5003, D=5000), "small": dict(M=3, D=517)}, lambda t, d: F.silu(t.A) * t.B),
]
