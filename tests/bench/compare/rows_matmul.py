"""GEMM and what is made of it: M x N x K, C[M, N] = A[M, K] B[N, K]^T."""
from .row import SIZES, Row, Step

SHAPES = [(n, n, n) for n in (512, 1024, 2048, 4096, 8192)] + [
    (128, 8192, 8192), (16, 4096, 4096), (1, 8192, 8192), (4096, 14336, 4096), (8192, 8192, 2048), (300, 14336, 4096), (1000, 1032, 1000),
    (129, 2056, 520), (4095, 4097, 4099)]
QUICK = [(1024, 1024, 1024), (4096, 4096, 4096), (16, 4096, 4096)]

EXAMPLE = "examples/matmul.tile"


def label(shape):
    m, n, k = shape
    return f"{m}^3" if m == n == k else f"{m}x{n}x{k}"


def work(shape, operand, result):
    m, n, k = shape
    return {"flops": 2.0 * m * n * k,
            "bytes": (m * k + n * k) * SIZES[operand] + m * n * SIZES[result],
            "dims": {"M": m, "N": n, "K": k}}


def plain(shape, type_name):
    return Row(group="matmul", shape=label(shape), type=type_name, steps=(Step(EXAMPLE, "matmul", {"tf32": 0, "fast": 0}),),
               types={"T": type_name, "O": type_name}, output="C", reference="matmul",
               peers=("cuBLAS", "Triton"), quick=type_name == "f16" and shape in QUICK,
               **work(shape, type_name, type_name))


def rows():
    big, mid = (8192, 8192, 8192), (4096, 4096, 4096)
    return [plain(shape, name) for name in ("f16", "bf16") for shape in SHAPES] + [
        Row(group="lowp", shape=label(big), type="f8e4m3", steps=(Step(EXAMPLE, "matmul", {"tf32": 0, "fast": 0}),),
            types={"T": "f8e4m3", "O": "bf16"}, output="C", reference="matmul",
            peers=("cuBLAS",), quick=True, **work(big, "f8e4m3", "bf16")),
        # All sums are left to the tensor cores, as Triton does unless it is told otherwise.
        Row(group="lowp", shape=label(big) + " fast", type="f8e4m3",
            steps=(Step(EXAMPLE, "matmul", {"tf32": 0, "fast": 1}),), types={"T": "f8e4m3", "O": "bf16"}, output="C",
            reference="matmul", peers=("cuBLAS fast accumulation", "Triton"), quick=True, tolerance=3e-2,
            **work(big, "f8e4m3", "bf16")),
        Row(group="lowp", shape=label(big), type="i8", steps=(Step(EXAMPLE, "matmul", {"tf32": 0, "fast": 0}),), types={"T": "i8", "O": "i32"},
            output="C", reference="matmul", peers=("cuBLAS", "Triton"), **work(big, "i8", "i32")),
        Row(group="lowp", shape=label(big), type="tf32", steps=(Step(EXAMPLE, "matmul", {"tf32": 1, "fast": 0}),), types={"T": "f32", "O": "f32"}, output="C",
            reference="matmul", peers=("cuBLAS", "Triton"), **work(big, "f32", "f32")),
        Row(group="lowp", shape=label(mid), type="f32", steps=(Step(EXAMPLE, "matmul", {"tf32": 0, "fast": 0}),),
            types={"T": "f32", "O": "f32"}, output="C", reference="matmul", peers=("cuBLAS",),
            **work(mid, "f32", "f32")),
    ] + [
        Row(group="fused", shape=label(mid) + " +bias+gelu+residual", type=name,
            steps=(Step("examples/matmul_bias_gelu.tile"),), types={"T": name}, fills={"B": "unit"},
            output="C", reference="matmul_bias_gelu", peers=("cuBLAS, product alone", "torch, 3 kernels"),
            quick=name == "f16", **work(mid, name, name)) for name in ("f16", "bf16")
    ] + [
        # Weights of four bits, 128 to a scale. The peers: a product of that shape with 16-bit weights, and torch's own.
        Row(group="w4", shape=label(shape), type="bf16",
            steps=(Step("examples/matmul_w4.tile", consts={"group": 128}),), types={"T": "bf16"},
            fills={"scale": "scale"}, output="C", reference="matmul_w4",
            peers=("cuBLAS, 16-bit weights", "torch int4"), quick=shape[0] == 16,
            **{**work(shape, "u4", "bf16"), "dims": {**work(shape, "u4", "bf16")["dims"], "Kg": shape[2] // 128}})
        for shape in ((1, 8192, 8192), (16, 8192, 8192), (128, 8192, 8192), (4096, 4096, 4096))
    ]
