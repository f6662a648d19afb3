"""The CPU's peers, straight from their libraries: OpenBLAS and oneDNN for f32 products, and a copy of memory by as many
threads. A library that is not there is Absent; docs/performance.md says which package has it."""
import concurrent.futures
import ctypes as c
import ctypes.util
import functools
import glob
import importlib.util
import os

import numpy

from .registry import Absent, Peer, Registry

PEERS = Registry()
REFERENCES = Registry()

ROW_MAJOR, NO_TRANSPOSE, TRANSPOSE = 101, 111, 112  # cblas.h


def opened(what, variable, names):
    """The first library of `names` that opens; $variable goes before them."""
    tried = [os.environ[variable]] if os.environ.get(variable) else []
    tried += [name for name in names if name]
    for name in tried:
        try:
            return c.CDLL(name)
        except OSError:
            pass
    raise Absent(f"{what} is not installed (tried {', '.join(tried)}; {variable} names it)")


@functools.lru_cache(maxsize=None)
def openblas_library():
    library = opened("OpenBLAS", "KACHEL_BENCH_OPENBLAS", ["libopenblas.so.0", ctypes.util.find_library("openblas")])
    number = c.c_int
    library.cblas_sgemm.restype = None
    library.cblas_sgemm.argtypes = [number] * 6 + [c.c_float, c.c_void_p, number, c.c_void_p, number, c.c_float,
                                                   c.c_void_p, number]
    library.openblas_get_config.restype = library.openblas_get_corename.restype = c.c_char_p
    return library


def openblas_version():
    library = openblas_library()
    return f"{library.openblas_get_config().decode().strip()}, core {library.openblas_get_corename().decode()}"


@PEERS("OpenBLAS")
def openblas(row, t):
    library, out = openblas_library(), numpy.empty_like(t["C"])
    m, n, k = (row.dims[name] for name in "MNK")
    a, b, target = t["A"].ctypes.data, t["B"].ctypes.data, out.ctypes.data
    keep = (t["A"], t["B"], out)

    def run():
        library.openblas_set_num_threads(row.threads)
        library.cblas_sgemm(ROW_MAJOR, NO_TRANSPOSE, TRANSPOSE, m, n, k, 1.0, a, k, b, k, 0.0, target, n)
        return keep[2]
    return Peer(run, out)


@functools.lru_cache(maxsize=None)
def onednn_library():
    """libdnnl, else the one inside torch, and the OpenMP runtime that it uses."""
    names = ["libdnnl.so.3", "libdnnl.so.2", ctypes.util.find_library("dnnl")]
    found = importlib.util.find_spec("torch")
    for folder in (found.submodule_search_locations or [] if found else []):
        names += glob.glob(os.path.join(folder, "lib", "libtorch_cpu.so"))
    library = opened("oneDNN", "KACHEL_BENCH_ONEDNN", names)
    if not hasattr(library, "dnnl_sgemm"):
        raise Absent(f"{library._name} does not export dnnl_sgemm")
    size = c.c_int64
    library.dnnl_sgemm.restype = c.c_int
    library.dnnl_sgemm.argtypes = [c.c_char, c.c_char, size, size, size, c.c_float, c.c_void_p, size, c.c_void_p, size,
                                   c.c_float, c.c_void_p, size]
    try:
        threads = library.omp_set_num_threads  # through the library's own dependency, not another copy
    except AttributeError:
        raise Absent(f"{library._name} is not built on OpenMP; its threads cannot be set") from None
    return library, threads


def onednn_version():
    library = onednn_library()[0]
    return f"{library._name} with dnnl_sgemm"


@PEERS("oneDNN")
def onednn(row, t):
    (library, set_threads), out = onednn_library(), numpy.empty_like(t["C"])
    m, n, k = (row.dims[name] for name in "MNK")
    a, b, target = t["A"].ctypes.data, t["B"].ctypes.data, out.ctypes.data
    keep = (t["A"], t["B"], out)

    def run():
        set_threads(row.threads)
        status = library.dnnl_sgemm(b"N", b"T", m, n, k, 1.0, a, k, b, k, 0.0, target, n)
        if status:
            raise RuntimeError(f"dnnl_sgemm: status {status}")
        return keep[2]
    return Peer(run, out)


@functools.lru_cache(maxsize=None)
def workers(threads):
    return concurrent.futures.ThreadPoolExecutor(threads)


@PEERS("copy")
def copy(row, t):
    """The C library's memcpy, a piece to each thread; ctypes lets go of Python's lock meanwhile."""
    size = int(row.bytes) // 2
    source, target = numpy.full(size, 1, numpy.uint8), numpy.full(size, 2, numpy.uint8)
    piece = -(-size // row.threads)
    parts = [(target.ctypes.data + at, source.ctypes.data + at, min(piece, size - at))
             for at in range(0, size, piece)]

    def run(keep=(source, target)):
        if len(parts) == 1:
            c.memmove(*parts[0])
        else:
            list(workers(row.threads).map(lambda part: c.memmove(*part), parts))
    return Peer(run, reference="")


@REFERENCES("matmul")
def matmul(row, t):
    return t["A"].astype(numpy.float64) @ t["B"].astype(numpy.float64).T


@REFERENCES("rmsnorm")
def rmsnorm(row, t):
    x = t["X"].astype(numpy.float64)
    return x / numpy.sqrt((x * x).mean(axis=-1, keepdims=True) + row.scalars["eps"]) * t["W"].astype(numpy.float64)


@REFERENCES("softmax")
def softmax(row, t):
    x = t["X"].astype(numpy.float64)
    power = numpy.exp(x - x.max(axis=-1, keepdims=True))
    return power / power.sum(axis=-1, keepdims=True)
