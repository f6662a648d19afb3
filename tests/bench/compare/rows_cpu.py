"""The CPU device, in f32: with one thread and with two, the peers with as many."""
from .row import Row, Step


def matmul(n, threads):
    return Row(group="matmul", shape=f"{n}^3", type="f32", device="cpu", threads=threads,
               steps=(Step("examples/matmul.tile", "matmul", {"tf32": 0, "fast": 0}),), types={"T": "f32", "O": "f32"},
               dims={"M": n, "N": n, "K": n}, output="C", reference="matmul", peers=("OpenBLAS", "oneDNN"),
               flops=2.0 * n ** 3, bytes=12.0 * n * n, quick=n == 512 and threads == 1)


def norm(name, threads, scalars=None):
    n, d = 16384, 4096
    return Row(group="norm", shape=f"{name} {n}x{d}", type="f32", device="cpu", threads=threads,
               steps=(Step(f"examples/{name}.tile", name),), types={"T": "f32"}, dims={"N": n, "D": d},
               scalars=scalars or {}, output="Y", reference=name, peers=("copy",), bytes=8.0 * n * d)


def rows():
    return [matmul(n, threads) for n in (512, 1024, 2048) for threads in (1, 2)] + [
        row for threads in (1, 2) for row in (norm("softmax", threads), norm("rmsnorm", threads, {"eps": 1e-6}))]
