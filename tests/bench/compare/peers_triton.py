"""Triton as a peer; see triton_kernels.py. Absent where it is not installed."""
import functools

import torch

from .registry import Absent, Peer, Registry

PEERS = Registry()

ROW_WARPS = 16


def kernels():
    try:
        from . import triton_kernels
        return triton_kernels
    except ImportError as error:
        raise Absent(f"Triton is not installed: {error}") from error


@functools.lru_cache(maxsize=None)
def tuned_matmul(element_bytes, few, described):
    """One tuner for each kind, so that sets of buffers of one row share what was tuned."""
    k = kernels()
    rows = 1 if few else 1 << 20
    if described:
        return k.tuned(k.matmul_described, element_bytes, rows, k.describe_blocks)
    return k.tuned(k.matmul_masked, element_bytes, rows)


def matmul(row, t):
    import triton
    import triton.language as tl
    a, b, out = t["A"], t["B"], torch.empty_like(t["C"])
    (m, depth), n = a.shape, b.shape[0]
    size = a.element_size()
    described = (depth * size) % 16 == 0 and (n * out.element_size()) % 16 == 0
    kernel = tuned_matmul(size, m <= 64, described)
    options = {"ACC": tl.int32 if row.type == "i8" else tl.float32, "TYPE": row.type,
               "PRECISION": "tf32" if row.type == "tf32" else "ieee"}
    if described:
        from triton.tools.tensor_descriptor import TensorDescriptor
        operands = tuple(TensorDescriptor.from_tensor(x, [16, 16]) for x in (a, b, out))
    else:
        operands = (a, b, out)

    def grid(meta):
        return (triton.cdiv(m, meta["BM"]) * triton.cdiv(n, meta["BN"]),)

    def run():
        kernel[grid](*operands, m, n, depth, **options)
        return out
    return Peer(run, out)


def by_row(row, t):
    k = kernels()
    import triton
    x, out = t["X"], torch.empty_like(t["Y"])
    n, depth = x.shape
    block = triton.next_power_of_2(depth)
    launch, arguments = {
        "rmsnorm": lambda: (k.rmsnorm_row, (x, t["W"], out, depth, row.scalars["eps"])),
        "layernorm": lambda: (k.layernorm_row, (x, t["W"], t["bias"], out, depth, row.scalars["eps"])),
        "softmax": lambda: (k.softmax_row, (x, out, depth)),
    }[row.reference]()

    def run():
        launch[(n,)](*arguments, BLOCK=block, num_warps=ROW_WARPS)
        return out
    return Peer(run, out)


@PEERS("Triton")
def triton_peer(row, t):
    kernels()
    return by_row(row, t) if row.group == "norm" else matmul(row, t)
