"""What several files of programs share: lowbit_products, lowbit_attention, lowbit_experts, lowbit_formats."""
import sys

import torch


DEVICE = "cpu" if "--check" in sys.argv or not torch.cuda.is_available() else "cuda"


def randint(low, high, dtype):
    return lambda shape, t, d: torch.randint(low, high, shape, device=DEVICE, dtype=dtype)


def nibbles(shape, t, d):
    return torch.randint(0, 256, (*shape[:-1], (shape[-1] + 1) // 2), device=DEVICE, dtype=torch.uint8)


def uniform(low, high, dtype=torch.float32):
    return lambda shape, t, d: (torch.rand(shape, device=DEVICE) * (high - low) + low).to(dtype)


def normal(dtype):
    return lambda shape, t, d: torch.randn(shape, device=DEVICE).to(dtype)


def low_first(w):
    return torch.stack((w & 15, w >> 4), -1).flatten(-2)


def plain(t, d, dtype=torch.bfloat16):
    if not hasattr(t, "plain"):
        t.plain = torch.randn(d["N"], d["K"], device=DEVICE).to(dtype)
    return t.plain


linear = {"decode": dict(M=24, N=28672, K=8192), "large": dict(M=256, N=28672, K=8192), "prefill": dict(M=4096, N=8192, K=8192),
          "odd": dict(M=777, N=4104, K=3016), "small": dict(M=18, N=24, K=200)}


def dense(t, d):
    return t.X @ plain(t, d).T
