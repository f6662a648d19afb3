"""What several files of programs share: lowbit_tables, lowbit_words, lowbit_scaled."""
import torch
from unseen import Case


def shapes(step, m=8, **more):
    """step: what K must be a multiple of; more: dimension: function of (m, n, k)"""
    odd = (3000 // step | 1) * step
    table = {"decode": (m, 28672, 8192 // step * step), "large": (192, 28672, 8192 // step * step),
             "prefill": (4096, 8192, 8192 // step * step), "odd": (131, 4099, odd), "small": (5, 19, 3 * step if step < 200 else step)}
    return {label: dict(M=m, N=n, K=k, **{name: f(m, n, k) for name, f in more.items()})
            for label, (m, n, k) in table.items()}


def device(t):
    return next(v.device for v in vars(t).values() if hasattr(v, "device"))


def bits(shape, t, d):  # any bits, of u8 or i32 words
    return torch.randint(0, 256, shape, device=device(t), dtype=torch.uint8)


def nibbles(shape, t, d):
    return bits((*shape[:-1], (shape[-1] + 1) // 2), t, d)


def scales(shape, t, d, low=0.01, high=0.05, dtype=torch.float32):
    return (torch.rand(shape, device=device(t)) * (high - low) + low).to(dtype)


def scales16(shape, t, d):
    return scales(shape, t, d, dtype=t.X.dtype)


def table(values):
    return lambda shape, t, d: torch.tensor(values, device=device(t), dtype=torch.float32)


def low_first(w):  # bytes to nibbles, as u4 tensors lie
    return torch.stack((w & 15, w >> 4), -1).flatten(-2)


def wide(s, group):  # scales along the last axis
    return s.repeat_interleave(group, -1)


def product(t, d):
    """The same layer with weights of 16 bits: cuBLAS."""
    if not hasattr(t, "plain"):
        t.plain = torch.randn(d["N"], d["K"], device=t.X.device, dtype=t.X.dtype)
    return t.X @ t.plain.T


def by(dequantised):
    return lambda t, d: t.X @ dequantised(t, d).to(t.X.dtype).T


def case(name, text, sizes, fills, dequantised, **more):
    return Case(name, text, sizes, product, fills=fills, reference=by(dequantised), compiled=False, tolerance=1e-2, **more)


TUNE = """where BM * BN <= 256 * 128 && (BM <= 64 || BN >= 128)
tune BM = 16 | 64 | 128 | 256, BN = 64 | 128 | 256, BK = 64 | 128, stages = 3 | 4"""
HEAD = "key bucket(M), N, K\n" + TUNE


def rows(name, params, where, tiles, loads, value, head=HEAD, T="bf16"):
    """Weights as rows along k"""
    return f"""tile 1
kernel {name}(X: {T}[M, K], {params}, Y: out {T}[M, N])
where {where}
{head}
grid m < ceildiv(M, BM), n < ceildiv(N, BN)
{{
  shared   x: {T}[BM, BK], {tiles}
  fragment w: {T}[BN, BK], c: f32[BM, BN] = 0
{loads[0]}
  pipelined k < ceildiv(K, BK), stages {{
    x = X[m*BM +: BM, k*BK +: BK]
    {loads[1]}
    parallel i < BN, j < BK {{
      let row = n*BN + i, at = k*BK + j
      {value}
    }}
    c += x @ w^T
  }}
  Y[m*BM +: BM, n*BN +: BN] = c
}}
"""


KG64 = dict(KG=lambda m, n, k: k // 64)


def CPU():
    import sys
    return "--check" in sys.argv
