"""The CPU through numpy: random arrays, float64 comparison, and timing with the monotonic clock. f32 rows only."""
import gc
import itertools
import os
import time

import numpy

from . import peers_cpu, stats
from .capi import CPU

TYPES = {"f32": numpy.float32, "f16": numpy.float16, "i32": numpy.int32, "i16": numpy.int16, "i8": numpy.int8, "u8": numpy.uint8}


def last_level_cache():
    """Bytes of the largest cache that the kernel tells of; 32 MiB where it tells nothing."""
    sizes = [32 << 20]
    folder = "/sys/devices/system/cpu/cpu0/cache"
    for index in os.listdir(folder) if os.path.isdir(folder) else ():
        try:
            with open(os.path.join(folder, index, "size")) as file:
                text = file.read().strip()
        except OSError:
            continue
        if text.endswith("K") and text[:-1].isdigit():
            sizes.append(int(text[:-1]) << 10)
    return max(sizes)


class CpuBackend:
    kind = CPU
    name = "cpu"

    def __init__(self, info, seed=1):
        self.cache_bytes = last_level_cache()
        self.generator = numpy.random.default_rng(seed)
        self.peers = peers_cpu.PEERS
        self.references = peers_cpu.REFERENCES

    def free_bytes(self):
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")

    def random(self, dtype, shape, fill):
        return self.generator.standard_normal(shape, dtype=numpy.float32).astype(TYPES[dtype], copy=False)

    def empty(self, dtype, shape):
        return self.poison(numpy.empty(shape, TYPES[dtype]))

    def poison(self, array):
        array.fill(numpy.nan if array.dtype.kind == "f" else numpy.iinfo(array.dtype).min)
        return array

    def pointer(self, array):
        return array.ctypes.data

    def stream(self):
        return None

    def synchronize(self):
        pass

    def release(self):
        gc.collect()

    def error(self, output, expected):
        """(relative error in the norm, the worst element's)."""
        difference = numpy.abs(output.astype(numpy.float64) - expected)
        rms = numpy.sqrt(numpy.square(expected).mean())
        norm = numpy.sqrt(numpy.square(difference).mean()) / rms
        return float(norm), float((difference / (rms + numpy.abs(expected))).max())

    def side(self, calls, block_ms):
        return Side(calls, block_ms)


class Side:
    """One side of a row: `sample()` times a block of at least block_ms and returns microseconds a call. Calls go
    round the sets of buffers, each block on from where the last one ended."""
    mode = "calls"

    def __init__(self, calls, block_ms):
        self.walk = itertools.cycle(calls)
        self.timed(2)
        self.count = stats.repetitions(self.timed(2), block_ms)

    def timed(self, count):
        begin = time.perf_counter_ns()
        for call in itertools.islice(self.walk, count):
            call()
        return (time.perf_counter_ns() - begin) / 1000 / count

    def sample(self):
        self.timed(1)  # outside: the threads are awake
        return self.timed(self.count)
