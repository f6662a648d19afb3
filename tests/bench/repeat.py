#!/usr/bin/env python3
"""Whether tunings of the same keys come to the same winners. Each time an engine that knows nothing tunes all keys, in
another order; binaries are shared by its keys, as they are in a host, so that most of the time goes into measuring.
Where winners differ, `apart` says by how much in the tunings' own medians: within the tie band either is right, but a
fleet that tunes one key twice should still find one. Needs torch with CUDA, or numpy for --device cpu."""
import argparse
import collections
import json
import math
import os
import sys
import time

sys.path[0] = os.path.dirname(os.path.abspath(__file__))

from compare import capi, kachel, machine  # noqa: E402
from compare.main import backend_for  # noqa: E402
from compare.measure import Program  # noqa: E402
from compare.row import select  # noqa: E402
from compare.rows_attention import attention  # noqa: E402
from compare.rows_matmul import plain  # noqa: E402
from compare.table import rows as table_rows  # noqa: E402


def keys(device):
    if device == "cpu":
        return select(table_rows(), "cpu", quick=True)
    return [plain((m, n, k), "bf16") for m, n, k in (
        (512, 512, 512), (1024, 1024, 1024), (2048, 2048, 2048), (4096, 4096, 4096), (128, 8192, 8192),
        (64, 4096, 4096), (32, 8192, 4096), (256, 5120, 5120), (300, 6144, 2048), (768, 3072, 768),
        (1536, 4608, 1536), (6144, 1024, 2048), (3000, 3072, 1024), (192, 2560, 10240), (4096, 1408, 2048),
        (16, 4096, 4096))] + [
        attention(1024, True), attention(2048, False), attention(4096, True, heads=8), attention(1536, False, depth=64)]


class Session:
    """An engine and its kernels, as compare.measure.Program wants them."""

    def __init__(self, library, kind):
        self.engine = kachel.Engine(library, store="", policy="blocking")
        self.info = self.engine.device(kind)
        self.kernels = {}

    def kernel(self, step, _threads):
        key = (step.program, step.kernel, tuple(step.consts.items()))
        if key not in self.kernels:
            self.kernels[key] = self.engine.kernel((capi.ROOT / step.program).read_text(), step.kernel, step.consts)
        return self.kernels[key]


def tune(row, session, backend, budget_s, trials):
    program = Program(session, row, backend)
    tensors = program.tensors(row.dims)
    args = program.arguments(program.kernels[0], tensors, row.dims)
    program.kernels[0].prepare(args, budget_s=budget_s, stream=backend.stream() or None, trials=trials)
    tuning = program.kernels[0].tuning(args)
    medians = {one["configuration"]: one["median_ns"] for one in tuning.candidates if one["median_ns"] > 0}
    return {"winner": tuning.winner, "seconds": tuning.total_ns / 1e9, "medians_ns": medians}


def summary(name, times):
    """One line about a key, and whether all times had one winner."""
    winners = collections.Counter(one["winner"] for one in times)
    common, count = winners.most_common(1)[0]
    apart = 0.0
    for one in times:
        both = [one["medians_ns"].get(which) for which in (common, one["winner"])]
        if all(both):
            apart = max(apart, abs(both[0] / both[1] - 1))
    seconds = sorted(one["seconds"] for one in times)
    text = (f"{name:44} {count:3}/{len(times)}  {len(winners)} winners  apart {apart:6.1%}  "
            f"{seconds[len(seconds) // 2]:.2f} s  {common}")
    return text, len(winners) == 1


def main():
    p = argparse.ArgumentParser(prog="repeat.py", description=__doc__)
    p.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    p.add_argument("--library", help="libkachel.so; default $KACHEL_LIBRARY, then build/")
    p.add_argument("--times", type=int, default=20)
    p.add_argument("--trials", type=int, default=8, help="configurations that a tuning measures")
    p.add_argument("--budget", type=float, default=10, help="seconds to tune a key")
    p.add_argument("--keys", default="", help="globs over names, with commas between them; default: all")
    p.add_argument("--json", metavar="FILE", help="every tuning")
    p.add_argument("--deadline", type=float, default=math.inf, help="begin no round after that many seconds")
    options = p.parse_args()
    library = capi.Library(options.library)
    kind = capi.CUDA if options.device == "cuda" else capi.CPU
    backend = backend_for(options.device, Session(library, kind).info, 1)
    rows = select(keys(options.device), options.device, [glob for glob in options.keys.split(",") if glob])
    found = {row.name: [] for row in rows}
    began = time.monotonic()
    for turn in range(options.times):
        if time.monotonic() - began > options.deadline:
            print(f"DEADLINE: {turn} of {options.times} rounds")
            break
        session, shift = Session(library, kind), turn % len(rows)
        for row in rows[shift:] + rows[:shift]:
            found[row.name].append(tune(row, session, backend, options.budget, options.trials))
            backend.release()
        if options.json:
            described = machine.describe(options.device, session.info, library, " ".join(["repeat.py", *sys.argv[1:]]))
            with open(options.json, "w", encoding="utf-8") as file:
                json.dump(described | {"keys": found}, file)
    lines = [summary(name, times) for name, times in found.items() if times]
    for text, _ in lines:
        print(text)
    print(f"{sum(alike for _, alike in lines)} of {len(lines)} keys have one winner in all tunings")
    return 0 if all(alike for _, alike in lines) else 1


if __name__ == "__main__":
    sys.exit(main())
