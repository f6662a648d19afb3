"""Weights of 8 bits, converted as they are read, beside the product of 16 bits alone."""
import torch
from unseen import Case

SHAPES = {"r16": (16, 8192, 8192), "r64": (64, 8192, 8192), "r128": (128, 8192, 8192), "r256": (256, 28672, 8192),
          "r512": (512, 8192, 8192), "large": (4096, 4096, 4096), "odd": (777, 1736, 2000), "odd_k": (200, 4099, 4000), "small": (17, 40, 200)}
SHAPES = {name: dict(M=m, N=n, K=k, KG=-(-k // 128)) for name, (m, n, k) in SHAPES.items()}


def text(kind, grouped):
    where = "where KG == ceildiv(K, 128)\n" if grouped else ""
    scale = "f32[N, KG]" if grouped else "f32[N]"
    value = "bf16(f32(q[i, j]) * S[n*BN + i, (k*BK + j) / 128])" if grouped else "bf16(q[i, j])"
    tail = "" if grouped else "  parallel i < BM, j < BN { c[i, j] *= S[n*BN + j] }\n"
    return f"""tile 1
kernel weights8(X: bf16[M, K], W: {kind}[N, K], S: {scale}, Y: out bf16[M, N])
{where}key bucket(M), N, K
tune BM = 16 | 32 | 64 | 128 | 256, BN = 64 | 128 | 256, BK = 64 | 128, stages = 3 | 4, threads = 128 | 256 | 384
grid m < ceildiv(M, BM), n < ceildiv(N, BN)
{{
  shared   x: bf16[BM, BK], q: {kind}[BN, BK]
  fragment w: bf16[BN, BK], c: f32[BM, BN] = 0
  pipelined k < ceildiv(K, BK), stages {{
    x = X[m*BM +: BM, k*BK +: BK]
    q = W[n*BN +: BN, k*BK +: BK]
    parallel i < BN, j < BK {{ w[i, j] = {value} }}
    c += x @ w^T
  }}
{tail}  Y[m*BM +: BM, n*BN +: BN] = c
}}
"""


def reference(t, d):
    w = t.W.to(t.X.dtype)
    if t.S.dim() == 1:
        return (t.X @ w.T) * t.S
    return t.X @ (w * t.S.repeat_interleave(128, 1)[:, :d["K"]]).T


def product(t, d):
    if not hasattr(t, "plain"):
        t.plain = torch.randn(d["N"], d["K"], device=t.X.device, dtype=t.X.dtype)
    return t.X @ t.plain.T


def case(name, kind, grouped):
    return Case(name, text(kind, grouped), SHAPES, product, reference=reference, compiled=False, tolerance=1e-2,
                fills={"S": lambda shape, t, d: torch.rand(shape, device=t.X.device) * 0.05 + 0.01})


CASES = [case("i8_rows", "i8", False), case("e4m3_rows", "f8e4m3", False), case("i8_groups", "i8", True),
         case("e4m3_groups", "f8e4m3", True)]
