"""A CUDA device through torch: random tensors, float64 comparison, and timing with events around replays of a graph.

A side of a row is captured as one CUDA graph that walks over every set of buffers, so that neither Python nor the
launch itself is measured, on either side. What cannot be captured is timed with plain launches, and the row says so."""
import gc

import torch

from . import peers_further, peers_further_attention, peers_torch, peers_triton, references_further, references_torch
from . import stats
from .capi import CPU, CUDA
from .fills_torch import FILLS, normal

TYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "f8e4m3": torch.float8_e4m3fn,
         "i8": torch.int8, "i16": torch.int16, "i32": torch.int32, "i64": torch.int64, "u8": torch.uint8, "u4": torch.uint8}

PEERS = {**peers_torch.PEERS, **peers_triton.PEERS, **peers_further.PEERS, **peers_further_attention.PEERS}
REFERENCES = {**references_torch.REFERENCES, **references_further.REFERENCES}

GRAPH_MS, GRAPH_CALLS = 2.0, 512  # a graph is at least as long, of at most as many calls


class CudaBackend:
    kind = CUDA
    name = "cuda"

    def __init__(self, info, seed=1):
        torch.cuda.set_device(0)
        self.device = torch.device("cuda", 0)
        self.cache_bytes = info.l2_bytes or torch.cuda.get_device_properties(0).L2_cache_size
        self.generator = torch.Generator(self.device).manual_seed(seed)
        self.peers, self.references = PEERS, REFERENCES

    def free_bytes(self):
        return torch.cuda.mem_get_info()[0]

    def random(self, dtype, shape, fill):
        """Normal floats and integers over all values, or what fills_torch.py makes for `fill`."""
        if fill:
            name, *arguments = (fill,) if isinstance(fill, str) else fill
            return FILLS[name](self, shape, *arguments).to(TYPES[dtype])
        if dtype == "u4":
            shape = (*shape[:-1], shape[-1] // 2)
        if dtype in ("i8", "u8", "u4"):
            low, high = (-128, 128) if dtype == "i8" else (0, 256)
            return torch.randint(low, high, shape, dtype=TYPES[dtype], device=self.device, generator=self.generator)
        return normal(self, shape).to(TYPES[dtype])

    def empty(self, dtype, shape):
        return self.poison(torch.empty(shape, dtype=TYPES[dtype], device=self.device))

    def poison(self, tensor):
        """NaN in every float, the least value in every integer."""
        if tensor.dtype.is_floating_point and tensor.element_size() == 1:
            tensor.view(torch.uint8).fill_(0x7F)  # of e4m3 and of e5m2; torch fills none of these on the CPU
            return tensor
        if tensor.dtype.is_floating_point:
            return tensor.fill_(float("nan"))
        return tensor.fill_(torch.iinfo(tensor.dtype).min)

    def pointer(self, tensor):
        return tensor.data_ptr()

    def stream(self):
        return torch.cuda.current_stream().cuda_stream

    def synchronize(self):
        torch.cuda.synchronize()

    def release(self):
        gc.collect()
        torch.cuda.empty_cache()

    def error(self, output, expected):
        """(relative error in the norm, the worst element's)."""
        difference = (output.reshape(expected.shape).to(torch.float64) - expected).abs_()
        rms = expected.square().mean().sqrt()
        norm = difference.square().mean().sqrt() / rms
        worst = (difference / (rms + expected.abs())).max()
        return float(norm), float(worst)

    def side(self, calls, block_ms):
        return Side(calls, block_ms)


class CpuBackend(CudaBackend):
    """Tensors of torch on the CPU, for checks alone: nothing is timed."""
    kind = CPU
    name = "torch on the CPU"

    def __init__(self, info, seed=1):
        self.device = torch.device("cpu")
        self.generator = torch.Generator().manual_seed(seed)

    def release(self):
        gc.collect()


def _renew_generator():
    """A capture that fails leaves the default generator in it, and whoever asks that for a number later fails too."""
    if hasattr(torch.Generator, "graphsafe_set_state"):
        fresh = torch.Generator(device="cuda").manual_seed(1)
        torch.cuda.default_generators[torch.cuda.current_device()].graphsafe_set_state(fresh.graphsafe_get_state())


class Side:
    """One side of a row: `sample()` times a block of at least block_ms and returns microseconds a call."""

    def __init__(self, calls, block_ms):
        def eager():
            for call in calls:
                call()
        eager()
        estimate = max(0.5, _milliseconds(eager, 1) * 1000 / len(calls))
        self.calls = len(calls)
        walks = stats.repetitions(estimate * len(calls), GRAPH_MS, most=max(1, GRAPH_CALLS // len(calls)))
        try:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                for _ in range(walks):
                    eager()
            self.run, self.mode, self.calls = graph.replay, "graph", len(calls) * walks
        except RuntimeError as error:
            torch.cuda.synchronize()
            _renew_generator()
            self.run, self.mode = eager, "launches, since a capture failed: " + str(error).split("\n")[0]
        self.run()
        self.runs = stats.repetitions(_milliseconds(self.run, 3) * 1000, block_ms)

    def sample(self):
        self.run()  # untimed: the caches and the clock are this side's
        return _milliseconds(self.run, self.runs) * 1000 / self.calls


def _milliseconds(run, count):
    """Mean time of a run by events; the queue is filled before the first event passes."""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(count):
        run()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / count
