"""The Triton side: C = A B^T with tensor-map loads, the same with masked pointers where rows are not 16-byte aligned,
and one row a program for the norms. Written the way that Triton's own documentation teaches, with autotuning."""
import triton
import triton.language as tl


@triton.jit
def tile_of(pid, M, N, BM: tl.constexpr, BN: tl.constexpr, GROUP: tl.constexpr):
    """Walks GROUP rows of tiles at a time, for the L2."""
    rows, columns = tl.cdiv(M, BM), tl.cdiv(N, BN)
    band = pid // (GROUP * columns)
    height = min(rows - band * GROUP, GROUP)
    inside = pid % (GROUP * columns)
    return band * GROUP + inside % height, inside // height


@triton.jit
def matmul_described(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,
                     ACC: tl.constexpr, PRECISION: tl.constexpr, TYPE: tl.constexpr):
    row, column = tile_of(tl.program_id(0), M, N, BM, BN, GROUP)
    acc = tl.zeros((BM, BN), dtype=ACC)
    for k in range(0, tl.cdiv(K, BK)):
        x = a.load([row * BM, k * BK])
        y = b.load([column * BN, k * BK])
        acc = tl.dot(x, y.T, acc, input_precision=PRECISION, out_dtype=ACC)
    c.store([row * BM, column * BN], acc.to(c.dtype))


@triton.jit
def matmul_masked(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,
                  ACC: tl.constexpr, PRECISION: tl.constexpr, TYPE: tl.constexpr):
    row, column = tile_of(tl.program_id(0), M, N, BM, BN, GROUP)
    i = row * BM + tl.arange(0, BM)
    j = column * BN + tl.arange(0, BN)
    step = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), dtype=ACC)
    for k in range(0, tl.cdiv(K, BK)):
        at = k * BK + step
        x = tl.load(a + i[:, None] * K + at[None, :], mask=(i[:, None] < M) & (at[None, :] < K), other=0.0)
        y = tl.load(b + j[None, :] * K + at[:, None], mask=(j[None, :] < N) & (at[:, None] < K), other=0.0)
        acc = tl.dot(x, y, acc, input_precision=PRECISION, out_dtype=ACC)
    inside = (i[:, None] < M) & (j[None, :] < N)
    tl.store(c + i[:, None] * N + j[None, :], acc.to(c.dtype.element_ty), mask=inside)


def describe_blocks(arguments):
    """Before each launch: the descriptors take the configuration's block shape."""
    bm, bn, bk = arguments["BM"], arguments["BN"], arguments["BK"]
    arguments["a"].block_shape, arguments["b"].block_shape = [bm, bk], [bn, bk]
    arguments["c"].block_shape = [bm, bn]


# (BM, BN, bytes of BK, stages, warps)
SHAPES = [(128, 256, 128, 3, 8), (128, 256, 128, 4, 8), (256, 128, 128, 3, 8), (128, 128, 128, 4, 4),
          (128, 128, 128, 4, 8), (128, 64, 128, 4, 4), (64, 128, 128, 4, 4), (64, 64, 128, 6, 4), (64, 256, 128, 4, 4),
          (16, 64, 256, 5, 4), (16, 128, 256, 4, 4), (16, 32, 512, 4, 4)]


def fits(bm, bn, bk_bytes, stages):
    """In 227 KiB of shared memory."""
    return (bm + bn) * bk_bytes * stages <= 227 * 1024 - bm * bn


def configurations(element_bytes, rows, hook):
    """Of SHAPES those that make sense for so many rows of A: 16-row tiles for a few, larger ones otherwise."""
    few = rows <= 64
    return [triton.Config({"BM": bm, "BN": bn, "BK": bk // element_bytes, "GROUP": 8}, num_stages=stages,
                          num_warps=warps, pre_hook=hook)
            for bm, bn, bk, stages, warps in SHAPES
            if fits(bm, bn, bk, stages) and ((bm <= 64) if few else (bm > 16))]


def tuned(kernel, element_bytes, rows, hook=None):
    return triton.autotune(configurations(element_bytes, rows, hook), key=["M", "N", "K", "TYPE"])(kernel)


@triton.jit
def rmsnorm_row(x, w, y, D, eps, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    inside = at < D
    base = tl.program_id(0).to(tl.int64) * D
    value = tl.load(x + base + at, mask=inside, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(value * value, axis=0) / D + eps)
    weight = tl.load(w + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(y + base + at, (value * scale * weight).to(y.dtype.element_ty), mask=inside)


@triton.jit
def layernorm_row(x, w, bias, y, D, eps, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    inside = at < D
    base = tl.program_id(0).to(tl.int64) * D
    value = tl.load(x + base + at, mask=inside, other=0.0).to(tl.float32)
    centred = tl.where(inside, value - tl.sum(value, axis=0) / D, 0.0)
    scale = tl.rsqrt(tl.sum(centred * centred, axis=0) / D + eps)
    weight = tl.load(w + at, mask=inside, other=0.0).to(tl.float32)
    shift = tl.load(bias + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(y + base + at, (centred * scale * weight + shift).to(y.dtype.element_ty), mask=inside)


@triton.jit
def softmax_row(x, y, D, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    inside = at < D
    base = tl.program_id(0).to(tl.int64) * D
    value = tl.load(x + base + at, mask=inside, other=-float("inf")).to(tl.float32)
    power = tl.exp(value - tl.max(value, axis=0))
    tl.store(y + base + at, (power / tl.sum(power, axis=0)).to(y.dtype.element_ty), mask=inside)
