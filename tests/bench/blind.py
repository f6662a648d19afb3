#!/usr/bin/env python3
"""What a configuration without a trial, and a tuning of 16 trials, are worth on shapes that no list, rule or test
knows. For each shape these are timed side by side: what an engine that knows nothing would serve under `off`, what one
chooses that measures 16 configurations, and the three quickest of a tuning that measured all that are listed. A share
is the time of the quickest of those divided by the time of the one in question. With --derived, also what 16 trials
find where the program lists nothing: `tune auto` for its list, without the conditions on what it tunes. Needs a CUDA
device and torch."""
import argparse
import json
import math
import os
import re
import sys
import time

sys.path[0] = os.path.dirname(os.path.abspath(__file__))

from compare import capi, kachel, machine, stats  # noqa: E402
from compare.cuda import CudaBackend  # noqa: E402
from compare.measure import Program, rounds  # noqa: E402
from compare.row import select  # noqa: E402
from compare.rows_attention import attention  # noqa: E402
from compare.rows_matmul import plain  # noqa: E402

TRIALS, ROUNDS, BLOCK_MS = 16, 7, 20.0


def unseen():
    bf16, f16 = "bf16", "f16"
    return [plain(shape, name) for shape, name in (
        ((896, 3584, 1792), bf16), ((40, 4608, 6144), bf16), ((6144, 1024, 2560), bf16), ((11000, 640, 1280), bf16),
        ((1344, 1344, 4032), bf16), ((160, 2560, 10240), bf16), ((8, 6400, 5376), bf16), ((2720, 2720, 2720), f16),
        ((336, 8448, 2112), f16), ((88, 9216, 1152), f16), ((4480, 3200, 640), f16), ((1200, 2000, 1784), f16))] + [
        attention(2304, True, batch=1, heads=24), attention(900, False, batch=8, heads=12),
        attention(4608, False, depth=64, batch=1, heads=10), attention(1800, True, depth=80, batch=2),
        attention(3584, True, depth=64, batch=2, heads=14, groups=2), attention(768, True, depth=256, batch=6, heads=8)]


def fitted():
    """What the cost model's exponent was chosen by."""
    bf16, f16 = "bf16", "f16"
    return [plain(shape, name) for shape, name in (
        ((640, 2304, 1536), bf16), ((96, 5120, 5120), bf16), ((7168, 2048, 1408), bf16), ((3328, 3328, 832), bf16),
        ((200, 6144, 4096), bf16), ((5000, 1280, 5120), bf16), ((1728, 1728, 1728), bf16), ((1536, 6144, 1536), f16),
        ((2304, 768, 3072), f16), ((48, 7168, 2304), f16), ((768, 768, 768), f16), ((24, 11008, 4096), f16))] + [
        attention(1536, True, depth=64, batch=3, heads=12), attention(2816, False, batch=1, heads=40),
        attention(3000, True, batch=2, heads=24, groups=8), attention(640, False, depth=64, batch=16),
        attention(6144, True, depth=96, batch=1, heads=20), attention(1200, False, depth=256, batch=4, heads=8)]


class Session:
    """An engine and its kernels, as compare.measure.Program wants them; `threads` of rows are not asked for."""

    def __init__(self, library, policy, edit=lambda text: text):
        self.engine = kachel.Engine(library, store="", policy=policy)
        self.edit = edit
        self.info = self.engine.device(capi.CUDA)
        self.kernels = {}

    def kernel(self, step, _threads):
        key = (step.program, step.kernel, tuple(step.consts.items()))
        if key not in self.kernels:
            self.kernels[key] = self.engine.kernel(self.edit((capi.ROOT / step.program).read_text()), step.kernel,
                                                   step.consts)
        return self.kernels[key]


def without_lists(text):
    """A program that tunes the same names and lists no values for them."""
    def derived(match):
        names = re.findall(r"(\w+) *=", match[2])
        conditions = [line for line in match[1].splitlines(True)
                      if not line.startswith("where") or not set(re.findall(r"\w+", line)) & set(names)]
        return "".join(conditions) + f"tune auto {', '.join(names)}\n"
    return re.sub(r"((?:^(?:where|key) .*\n)*)^tune (?!auto)(.*)\n", derived, text, flags=re.M)


def tuned_by_few(session, row, backend, budget_s):
    """(kernel, its tuning) after TRIALS configurations."""
    program = Program(session, row, backend)
    args = program.arguments(program.kernels[0], program.tensors(row.dims), row.dims)
    program.kernels[0].prepare(args, budget_s=budget_s, stream=backend.stream() or None, trials=TRIALS)
    return program.kernels[0], program.kernels[0].tuning(args)


def first_launch(library, row, backend):
    """(configuration, seconds) of a launch by an engine that has just been made, under `off`."""
    fresh = Program(Session(library, "off"), row, backend)
    tensors = fresh.tensors(row.dims)
    args = fresh.arguments(fresh.kernels[0], tensors, row.dims)
    chosen = fresh.kernels[0].configuration(args)
    backend.synchronize()
    began = time.monotonic()
    fresh.kernels[0].launch(args, stream=backend.stream() or None)
    backend.synchronize()
    return chosen, time.monotonic() - began


def measure(row, library, session, backend, budget_s, derived):
    guess, first_s = first_launch(library, row, backend)
    program = Program(session, row, backend)
    kernel = program.kernels[0]
    args = program.arguments(kernel, program.tensors(row.dims), row.dims)
    kernel.prepare(args, budget_s=budget_s, stream=backend.stream() or None)
    tuning = kernel.tuning(args)
    measured = sorted((one for one in tuning.candidates if one["median_ns"] > 0), key=lambda one: one["median_ns"])
    _, few_tuning = tuned_by_few(Session(library, "blocking"), row, backend, budget_s)
    names = {"guess": guess, "few": few_tuning.winner, "winner": tuning.winner}
    names |= {f"measured {i}": one["configuration"] for i, one in enumerate(measured[:3])}
    kernels = {name: (kernel, configuration) for name, configuration in names.items()}
    if derived:
        other, other_tuning = tuned_by_few(Session(library, "blocking", without_lists), row, backend, budget_s)
        names["derived"] = "derived: " + other_tuning.winner
        kernels["derived"] = (other, other_tuning.winner)

    count = stats.rotating_sets(row.bytes, backend.cache_bytes, backend.free_bytes() * 0.3)
    sets = [program.tensors(row.dims) for _ in range(count)]
    sides = {}
    for name, (side, configuration) in kernels.items():
        if names[name] in sides:
            continue
        many = [program.arguments(side, one, row.dims) for one in sets]
        call = side.bind(many[0], configuration=configuration)
        launches = [call.with_arguments(one) for one in many]
        sides[names[name]] = backend.side([lambda go=go: go(backend.stream() or None) for go in launches], BLOCK_MS)
    times = {name: stats.median(samples) / 1e3 for name, samples in rounds(sides, ROUNDS).items()}
    best = min(times, key=times.get)
    shares = {name: times[best] / times[names[name]] for name in names if not name.startswith("measured")}
    return {"name": row.name, "best": best, "best_us": times[best] * 1e3, "names": names, "shares": shares,
            "dims": row.dims, "measured": len(measured),
            "candidates": [one | {"median_ns": one["median_ns"] or None} for one in tuning.candidates],
            "winner": next(i for i, one in enumerate(tuning.candidates) if one["configuration"] == tuning.winner),
            "tuning_s": tuning.total_ns / 1e9, "few_s": few_tuning.total_ns / 1e9, "first_launch_s": first_s}


def main():
    p = argparse.ArgumentParser(prog="blind.py", description=__doc__)
    p.add_argument("--library", help="libkachel.so; default $KACHEL_LIBRARY, then build/")
    p.add_argument("--budget", type=float, default=60, help="seconds to tune a shape")
    p.add_argument("--json", metavar="FILE", help="everything; an entry of rows is what bench_ranking reads")
    p.add_argument("--fitted", action="store_true", help="the shapes that the cost model was fitted with instead")
    p.add_argument("--shapes", default="", help="globs over names, with commas between them; default: all")
    p.add_argument("--deadline", type=float, default=math.inf, help="begin no shape after that many seconds")
    p.add_argument("--derived", action="store_true", help="also the same programs without their lists")
    options = p.parse_args()
    library = capi.Library(options.library)
    session = Session(library, "blocking")
    backend = CudaBackend(session.info)
    result = machine.describe("cuda", session.info, library, " ".join(["blind.py", *sys.argv[1:]])) | {"rows": []}
    began = time.monotonic()
    columns = ["guess", "few", "winner"] + ["derived"] * options.derived
    print(f"{'shape':44}" + "".join(f" {column:>7}" for column in columns) +
          f"  best us   first launch s, {TRIALS} trials s (few), tuning s")
    globs = [glob for glob in options.shapes.split(",") if glob]
    for row in select(fitted() if options.fitted else unseen(), "cuda", globs):
        if time.monotonic() - began > options.deadline:
            print(f"DEADLINE: {row.name} and what follows not begun")
            break
        done = measure(row, library, session, backend, options.budget, options.derived)
        result["rows"].append(done)
        backend.release()
        share = done["shares"]
        print(f"{done['name']:44}" + "".join(f" {share[column]:7.3f}" for column in columns) +
              f" {done['best_us']:8.1f}"
              f"   {done['first_launch_s']:.2f} {done['few_s']:.2f} {done['tuning_s']:.2f}"
              f"  {done['measured']}/{len(done['candidates'])}"
              f"  best {done['best']}  guess {done['names']['guess']}  {done['names'].get('derived', '')}", flush=True)
        if options.json:
            with open(options.json, "w", encoding="utf-8") as file:
                json.dump(result, file)
    for name in columns:
        shares = sorted((row["shares"][name], row["name"]) for row in result["rows"])
        mean = math.exp(sum(math.log(share) for share, _ in shares) / len(shares))
        print(f"{name}: geometric mean {mean:.3f}, worst {shares[0][0]:.3f} ({shares[0][1]})")


if __name__ == "__main__":
    main()
