#!/usr/bin/env python3
"""Programs of one's own beside torch: unseen.py FILE... [--only GLOB,...] [--shapes large,odd].

A FILE is Python with a list CASES of unseen.Case. Each case is tuned within a budget, its outputs are poisoned and
compared with what the same torch function makes of float64 inputs (or with a reference of its own), and it is timed in
interleaved rounds beside torch, torch.compile and whatever peers it names. Caches are cold on all sides. A ratio is a
peer's time over Kachel's. Needs a CUDA device and torch; with --check, which compares results of the CPU and times
nothing, torch alone."""
import argparse
import dataclasses
import fnmatch
import importlib.util
import os
import sys
import time
import types

sys.path[0] = os.path.dirname(os.path.abspath(__file__))
sys.modules.setdefault("unseen", sys.modules[__name__])


@dataclasses.dataclass
class Case:
    name: str
    text: str       # the program
    shapes: dict    # label, such as large or odd: {dimension: value}; one called small is for --check
    torch: callable  # (t, d) -> output or tuple of outputs, in the order of the kernel's. t.NAME is an argument
    kernel: str = None
    consts: dict = dataclasses.field(default_factory=dict)
    types: dict = dataclasses.field(default_factory=dict)    # type symbol: element type
    fills: dict = dataclasses.field(default_factory=dict)    # parameter: (shape, t, d) -> tensor or scalar
    peers: dict = dataclasses.field(default_factory=dict)    # name: (t, d) -> anything, timed and not compared
    reference: callable = None  # (t, d) -> as torch, on float64 copies of float tensors. None: torch
    compiled: bool = True       # torch.compile of `torch` is a peer
    tolerance: float = None


def load(path):
    name = os.path.splitext(os.path.basename(path))[0]
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(name, module)  # what is compiled looks there for what it names
    spec.loader.exec_module(module)
    return module.CASES


class Runner:
    """One case with one shape: sets of tensors by name, and functions that run either side on a set."""

    def __init__(self, case, dims, engine, info, backend):
        from compare import kachel
        self.case, self.dims, self.backend, self.info, self.wrap = case, dims, backend, info, kachel.Argument
        self.kernel = engine.kernel(case.text, case.kernel, case.consts, case.name)

    def tensors(self):
        t = types.SimpleNamespace()
        for index, param in enumerate(self.kernel.params):
            dtype = self.case.types.get(param.type, param.type)
            shape = self.kernel.shape(index, self.dims) if param.kind != "scalar" else ()
            if param.kind == "out":
                value = self.backend.empty(dtype, shape)
            elif param.name in self.case.fills:
                value = self.case.fills[param.name](shape, t, self.dims)
                value = value.contiguous() if hasattr(value, "contiguous") else value
            elif param.kind == "scalar":
                raise SystemExit(f"{self.case.name}: the scalar {param.name} needs an entry of fills")
            else:
                value = self.backend.random(dtype, shape, None)
            setattr(t, param.name, value)
        return t

    def arguments(self, t):
        values = []
        for index, param in enumerate(self.kernel.params):
            value = getattr(t, param.name)
            if param.kind != "scalar":
                dtype = self.case.types.get(param.type, param.type)
                value = self.wrap(dtype, self.kernel.shape(index, self.dims), value.data_ptr())
            values.append(value)
        return self.kernel.arguments(values, self.info.device)

    def outputs(self, t):
        return [getattr(t, param.name) for param in self.kernel.params if param.kind in ("out", "inout")]


def doubled(t):
    return types.SimpleNamespace(**{name: value.double() if hasattr(value, "double") and value.is_floating_point()
                                    else value for name, value in vars(t).items()})


def as_list(values):
    return list(values) if isinstance(values, (tuple, list)) else [values]


def error_of(outputs, expected, backend, tolerance):
    """(the worst norm of errors, whether all are allowed)"""
    from compare.row import TOLERANCES
    worst, fine = 0.0, True
    for output, wanted in zip(outputs, expected, strict=True):
        name = str(output.dtype).replace("torch.", "")
        short = {"float32": "f32", "float16": "f16", "bfloat16": "bf16", "float8_e4m3fn": "f8e4m3"}.get(name)
        allowed = tolerance if tolerance is not None else TOLERANCES[short] if short else 0.0
        norm, most = backend.error(output, wanted.double())
        if wanted.double().abs().max() == 0:
            norm = most = float(output.double().abs().max())
        fine = fine and norm <= allowed and most <= 16 * allowed
        worst = max(worst, norm) if norm == norm else norm
    return worst, fine


def check_case(case, label, engine, info, backend, options):
    runner = Runner(case, case.shapes[label], engine, info, backend)
    t = runner.tensors()
    expected = [value.clone() for value in as_list((case.reference or case.torch)(doubled(t), case.shapes[label]))]
    runner.kernel.launch(runner.arguments(t), policy="off", configuration=options.configuration)
    norm, fine = error_of(runner.outputs(t), expected, backend, case.tolerance)
    print(f"{case.name + ' ' + label:28} error {norm:.1e} {'' if fine else 'WRONG'}", flush=True)


def run_case(case, label, engine, info, backend, options):
    import torch
    from compare import kachel, stats
    from compare.measure import rounds
    runner = Runner(case, case.shapes[label], engine, info, backend)
    stream = backend.stream
    t = runner.tensors()
    size = sum(value.numel() * value.element_size() for value in vars(t).values() if hasattr(value, "numel"))
    expected = [value.clone() for value in as_list((case.reference or case.torch)(doubled(t), case.shapes[label]))]
    began = time.monotonic()
    args = runner.arguments(t)
    runner.kernel.prepare(args, budget_s=options.budget, stream=stream() or None, configuration=options.configuration)
    tuned = time.monotonic() - began
    try:
        winner = runner.kernel.tuning(args).winner
    except kachel.KachelError:
        winner = ""
    runner.kernel.launch(args, stream=stream() or None, configuration=options.configuration)
    backend.synchronize()
    norm, fine = error_of(runner.outputs(t), expected, backend, case.tolerance)
    del expected
    backend.release()

    sets = [t] + [runner.tensors() for _ in range(
        stats.rotating_sets(size, backend.cache_bytes, backend.free_bytes() * 0.3, most=64) - 1)]
    call = runner.kernel.bind(args, configuration=options.configuration)
    launches = [call.with_arguments(runner.arguments(one)) for one in sets]
    sides = {"Kachel": backend.side([lambda go=go: go(stream() or None) for go in launches], options.block_ms)}
    peers = {"torch": case.torch, **case.peers}
    if case.compiled and not options.uncompiled:
        torch._dynamo.reset()
        peers["compiled"] = torch.compile(case.torch, dynamic=False)
    failed = {}
    for name, peer in peers.items():
        try:
            sides[name] = backend.side([lambda one=one, peer=peer: peer(one, case.shapes[label]) for one in sets],
                                       options.block_ms)
        except Exception as error:  # noqa: BLE001  a peer that cannot do a case must not take it along
            failed[name] = f"{type(error).__name__}: {error}".split("\n")[0][:120]
    samples = rounds(sides, options.rounds)
    ours = samples.pop("Kachel")
    ratios = {name: stats.median(stats.paired_ratios(values, ours)) for name, values in samples.items()}
    best = min(ratios.values(), default=float("nan"))
    print(f"{case.name + ' ' + label:28} {best:6.2f} {stats.median(ours):9.1f} us  " +
          " ".join(f"{name} {ratio:.2f}" for name, ratio in ratios.items()) +
          f"  error {norm:.1e} {'' if fine else 'WRONG'}  tuned {tuned:.1f} s  {winner}", flush=True)
    for name, text in failed.items():
        print(f"    {name} failed: {text}", flush=True)


def main():
    p = argparse.ArgumentParser(prog="unseen.py", description=__doc__)
    p.add_argument("files", nargs="+", metavar="FILE")
    p.add_argument("--library", help="libkachel.so; default $KACHEL_LIBRARY, then build/")
    p.add_argument("--only", default="*", help="globs over names, with commas between them")
    p.add_argument("--shapes", default="*", help="globs over the labels of shapes, with commas between them")
    p.add_argument("--budget", type=float, default=3, help="seconds to tune a shape")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--block-ms", type=float, default=10)
    p.add_argument("--configuration", help="this one in place of a tuning")
    p.add_argument("--uncompiled", action="store_true", help="without torch.compile")
    p.add_argument("--deadline", type=float, default=float("inf"), help="begin no case after that many seconds")
    p.add_argument("--check", action="store_true", help="results of the CPU alone, of the shapes called small")
    options = p.parse_args()
    if options.check and options.shapes == "*":
        options.shapes = "small"
    began = time.monotonic()
    cases = [case for path in options.files for case in load(path)]

    from compare import capi, kachel
    from compare.cuda import CpuBackend, CudaBackend
    library = capi.Library(options.library)
    engine = kachel.Engine(library, store="", policy="blocking")
    info = engine.device(capi.CPU if options.check else capi.CUDA)
    backend = (CpuBackend if options.check else CudaBackend)(info)

    def wanted(name, globs):
        return any(fnmatch.fnmatch(name, glob) for glob in globs.split(","))

    for case in cases:
        for label in case.shapes:
            if not wanted(case.name, options.only) or not wanted(label, options.shapes) or (
                    label == "small" and not options.check):
                continue
            if time.monotonic() - began > options.deadline:
                print(f"DEADLINE: {case.name} {label} not begun")
                continue
            try:
                (check_case if options.check else run_case)(case, label, engine, info, backend, options)
            except (Exception, SystemExit) as error:  # noqa: BLE001  one that fails must not take the others along
                print(f"{case.name} {label}: FAILED: {type(error).__name__}: {str(error)[:600]}", flush=True)
            backend.release()


if __name__ == "__main__":
    main()
