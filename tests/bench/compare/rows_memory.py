"""Kernels that move memory: judged by the bytes that they must move, beside a device copy of as many bytes."""
from .row import SIZES, Row, Step

ELEMENTWISE = "tests/bench/programs/elementwise.tile"


def norm(name, program, peers, scalars=None):
    n, d = 32768, 8192
    return Row(group="norm", shape=f"{name} {n}x{d}", type="bf16", steps=(Step(program, name),), types={"T": "bf16"},
               dims={"N": n, "D": d}, scalars=scalars or {}, output="Y", reference=name, peers=peers,
               bytes=2.0 * n * d * SIZES["bf16"], quick=name == "rmsnorm")


def elementwise(name, inputs):
    n = 2 ** 28 // SIZES["bf16"]
    return Row(group="elementwise", shape=f"{name} 2^28 B", type="bf16", steps=(Step(ELEMENTWISE, name),),
               types={"T": "bf16"}, dims={"N": n}, output="Y", reference=name, peers=("copy", "torch"),
               bytes=(inputs + 1) * n * SIZES["bf16"], quick=name == "gelu")


def rows():
    n = 8192
    return [
        norm("rmsnorm", "examples/rmsnorm.tile", ("copy", "torch", "Triton"), {"eps": 1e-6}),
        norm("layernorm", "examples/layernorm.tile", ("copy", "torch", "Triton"), {"eps": 1e-5}),
        norm("softmax", "examples/softmax.tile", ("copy", "torch", "Triton")),
        Row(group="gemv", shape=f"{n}^2", type="f16", steps=(Step("examples/gemv.tile"),), types={"T": "f16"},
            dims={"N": n, "K": n}, output="Y", reference="gemv", peers=("cuBLAS", "cuBLAS as GEMM", "copy"),
            bytes=2.0 * (n * n + 2 * n), quick=True),
        elementwise("relu", 1), elementwise("gelu", 1), elementwise("add", 2),
    ]
