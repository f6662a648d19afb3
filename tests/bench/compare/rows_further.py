"""Programs beside those of examples/: products with something before or after them. rows_further_attention.py and
rows_further_memory.py have the rest. Each at two shapes, of which one divides into no tile."""
from .row import SIZES, Row, Step


def further(program, shape, type_name, dims, output, peers, **more):
    """A row of the program of that name, whose symbol for its tensors' type is E unless `types` says otherwise."""
    steps = (Step(f"tests/bench/programs/{program}.tile", program, more.pop("consts", {})),)
    return Row(**{"group": "further", "shape": f"{program} {shape}", "type": type_name, "steps": steps, "dims": dims,
                  "output": output, "reference": program, "peers": peers, "types": {"E": type_name}, **more})


def product(program, shape, type_name, sizes, result="bf16", extra=0, **more):
    """The work of an M x N x K product that reads or writes `extra` bytes more."""
    m, n, k = sizes
    return further(program, shape, type_name, flops=2.0 * m * n * k,
                   bytes=float((m * k + n * k) * SIZES[type_name] + m * n * SIZES[result] + extra), **more)


def rope_gemm(tok, dm, heads, hd):
    return product("rope_gemm", f"{tok}x{dm} h{heads} d{hd}", "bf16", (tok, heads * hd, dm), extra=4 * tok * hd,
                   dims={"tok": tok, "dm": dm, "heads": heads, "hd": hd, "half": hd // 2}, output="y",
                   peers=("eager", "compiled"), fills={"w": "unit", "co": ("angles", "cos"), "si": ("angles", "sin")})


def swiglu_dual(rows, ff, dm):
    return product("swiglu_dual", f"{rows}x{ff}x{dm}", "bf16", (rows, 2 * ff, dm), extra=-2 * rows * ff,
                   dims={"rows": rows, "dm": dm, "ff": ff}, output="h", peers=("eager", "compiled"),
                   fills={"wg": "unit columns", "wu": "unit columns"})


def qkv_heads(tok, dm, heads, hd):
    return product("qkv_heads", f"{tok}x{dm} h{heads} d{hd}", "bf16", (tok, 3 * heads * hd, dm),
                   dims={"tok": tok, "dm": dm, "heads": heads, "hd": hd}, output="res", peers=("eager", "compiled"),
                   fills={"wgt": "unit", "gain": "near one"})


def head_lse(rows, vocab, dm):
    """Nothing of M x N is stored; the values that are average over many logits, hence the tolerance."""
    return further("head_lse", f"{rows}x{vocab}x{dm}", "bf16", {"rows": rows, "dm": dm, "vocab": vocab}, "lse",
                   ("eager", "compiled"), flops=2.0 * rows * vocab * dm,
                   bytes=2.0 * (rows + vocab) * dm + 4 * rows, fills={"w": "unit"}, tolerance=1e-4)


def geglu_left(rows, dm, ff):
    return product("geglu_left", f"{rows}x{dm}x{ff}", "bf16", (rows, dm, ff), extra=2 * rows * ff,
                   dims={"rows": rows, "ff": ff, "dm": dm}, output="z", peers=("eager", "compiled"),
                   fills={"w": "unit"})


def fp8_scaled(rows, cols, deep, fast):
    return product("fp8_scaled", f"{rows}x{cols}x{deep}" + " fast" * fast, "f8e4m3", (rows, cols, deep),
                   dims={"rows": rows, "cols": cols, "deep": deep}, output="y", peers=("eager",), types={"R": "bf16"},
                   consts={"quick": fast}, fills={"sa": "scale", "sb": "scale"}, tolerance=3e-2 if fast else None)


def i8_dequant(rows, cols, deep):
    """Rounded once, to f16, which does not reach as far as the sums."""
    return product("i8_dequant", f"{rows}x{cols}x{deep}", "i8", (rows, cols, deep), result="f16",
                   dims={"rows": rows, "cols": cols, "deep": deep}, output="y", peers=("eager", "compiled"),
                   types={"R": "f16"}, fills={"unit": ("positive", 1e-4)}, tolerance=2e-3)


def bmm_small(nb, rows, cols, inner):
    return further("bmm_small", f"{nb} of {rows}x{cols}x{inner}", "f16",
                   {"nb": nb, "rows": rows, "cols": cols, "inner": inner}, "r", ("eager",),
                   flops=2.0 * nb * rows * cols * inner, bytes=2.0 * nb * (rows * inner + inner * cols + rows * cols))


def wgrad(outs, ins, tok):
    return product("wgrad", f"{outs}x{ins}x{tok}", "bf16", (outs, ins, tok),
                   dims={"tok": tok, "outs": outs, "ins": ins}, output="dw", peers=("eager",),
                   types={"E": "bf16", "G": "bf16"}, fills={"dy": "unit columns"})


def lowrank(rows, dm, rank, outs):
    """Rounded twice: the product in the middle is of the operands' type."""
    return further("lowrank", f"{rows}x{dm} r{rank} {outs}", "f16",
                   {"rows": rows, "dm": dm, "rank": rank, "outs": outs}, "y", ("eager",),
                   flops=2.0 * rows * rank * (dm + outs), bytes=2.0 * (rows + rank) * (dm + outs),
                   fills={"down": "unit columns", "up": "unit columns"}, tolerance=4e-3)


def rows():
    return [
        rope_gemm(4096, 4096, 32, 128), rope_gemm(1111, 768, 12, 64),
        swiglu_dual(3000, 5504, 2048), swiglu_dual(33, 11008, 4096),
        qkv_heads(2047, 2048, 16, 128), qkv_heads(4100, 1280, 20, 64),
        head_lse(4096, 32000, 2048), head_lse(1000, 50257, 1536),
        geglu_left(4096, 1280, 5120), geglu_left(777, 1000, 3072),
    ] + [fp8_scaled(*shape, fast) for shape in ((4096, 4096, 4096), (1999, 2064, 3072)) for fast in (False, True)] + [
        i8_dequant(2048, 5120, 5120), i8_dequant(1001, 1032, 2056),
        bmm_small(96, 200, 136, 72), bmm_small(1000, 65, 64, 96),
        wgrad(512, 384, 65536), wgrad(136, 1000, 30001),
        lowrank(8192, 4096, 64, 4096), lowrank(1537, 5120, 24, 5120),
    ]
