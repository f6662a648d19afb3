"""What the programs of everyday_*.py are filled and compared with."""
import functools
import sys

import torch
import torch.nn.functional as F

DEV = "cpu" if "--check" in sys.argv or not torch.cuda.is_available() else "cuda"
BF = torch.bfloat16


def uniform(low, high, dtype=torch.float32):
    return lambda s, t, d: (torch.rand(s, device=DEV) * (high - low) + low).to(dtype)


B16 = {"T": "bf16"}
sdpa = F.scaled_dot_product_attention


def wide(x):
    return x.to(torch.promote_types(x.dtype, torch.float32))


def swap(*xs):
    return [x.transpose(1, 2) for x in xs]


def grouped(x, h):
    return x if x.shape[1] == h else x.repeat_interleave(h // x.shape[1], 1)


@functools.cache
def flex_attention():
    from torch.nn.attention.flex_attention import flex_attention as function
    return torch.compile(function, dynamic=False)


MASKS = {}


def block_mask(key, mod, b, h, sq, sk):
    if key not in MASKS:
        from torch.nn.attention.flex_attention import create_block_mask
        MASKS[key] = create_block_mask(mod, b, h, sq, sk, device="cuda")
    return MASKS[key]


def scaled(s, t, d):
    return d["D"] ** -0.5


def const(value):
    return lambda s, t, d: value


def positive(low, high, dtype=torch.float32):
    return lambda s, t, d: (torch.rand(s, device=DEV) * (high - low) + low).to(dtype)
