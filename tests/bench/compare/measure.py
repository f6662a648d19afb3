"""One row: buffers, tuning, checks, then interleaved rounds.

1. Sets of random inputs are drawn, so many that a walk over them is four times the last cache: every call finds the
   cache cold, on both sides alike.
2. Kachel prepares, which tunes, and is bound; each peer is made on the same inputs. Peers tune themselves here too.
3. Every output is poisoned, every side runs over all sets, and the first and the last set's outputs are compared with a
   float64 reference. A side that is wrong is reported as wrong and not as quick.
4. Rounds: each side is timed once a round, right after one another, another one first in each round."""
import dataclasses
import pathlib
import time

from . import capi, kachel, stats
from .registry import Absent

ROOT = capi.ROOT


@dataclasses.dataclass
class Method:
    rounds: int = 7
    block_ms: float = 20.0
    budget_s: float = 10.0


class Session:
    """Engines and kernels that rows share: one engine for each number of CPU threads, one kernel for each step."""

    def __init__(self, library, kind, store=""):
        self.library, self.kind, self.store = capi.Library(library), kind, store
        self._engines, self._kernels = {}, {}
        self.info = self.engine(0).device(kind)

    def engine(self, threads):
        if threads not in self._engines:
            self._engines[threads] = kachel.Engine(self.library, store=self.store, cpu_threads=threads)
        return self._engines[threads]

    def kernel(self, step, threads):
        key = (step.program, step.kernel, tuple(sorted(step.consts.items())), threads)
        if key not in self._kernels:
            text = (ROOT / step.program).read_text()
            self._kernels[key] = self.engine(threads).kernel(text, step.kernel, step.consts,
                                                             pathlib.Path(step.program).name)
        return self._kernels[key]


class Program:
    """Kachel's side of a row: its kernels in order, on tensors by name."""

    def __init__(self, session, row, backend):
        self.session, self.row, self.backend = session, row, backend
        self.kernels = [session.kernel(step, row.threads) for step in row.steps]

    def tensors(self, dims):
        """{name: tensor} of one set. An input that an earlier step writes is that step's output."""
        found = {}
        for kernel in self.kernels:
            for index, param in enumerate(kernel.params):
                if param.kind == "scalar" or param.name in found:
                    continue
                shape, dtype = kernel.shape(index, dims), self.dtype(param)
                found[param.name] = (self.backend.empty(dtype, shape) if param.kind == "out" else
                                     self.backend.random(dtype, shape, self.row.fills.get(param.name)))
        return found

    def dtype(self, param):
        return self.row.types.get(param.type, param.type)

    def arguments(self, kernel, tensors, dims):
        values = []
        for index, param in enumerate(kernel.params):
            if param.kind == "scalar":
                values.append(self.row.scalars[param.name])
            else:
                values.append(kachel.Argument(self.dtype(param), kernel.shape(index, dims),
                                              self.backend.pointer(tensors[param.name])))
        return kernel.arguments(values, self.session.info.device)

    def tune(self, tensors, dims, budget_s):
        """Prepares every step, running them in order, so that the next one is tuned on real data. Returns what was
        decided for each."""
        decisions = []
        for kernel in self.kernels:
            args = self.arguments(kernel, tensors, dims)
            before = kernel.engine.stats().tunings
            kernel.prepare(args, budget_s=budget_s, stream=self.backend.stream() or None)
            kernel.launch(args, stream=self.backend.stream() or None)
            self.backend.synchronize()
            decisions.append(self._decision(kernel, args, kernel.engine.stats().tunings > before))
        return decisions

    @staticmethod
    def _decision(kernel, args, tuned_now):
        try:
            tuning = kernel.tuning(args)
        except kachel.KachelError as error:  # a kernel without tunables has nothing to decide
            return {"kernel": kernel.name, "winner": "", "note": error.message}
        return {"kernel": kernel.name, "winner": tuning.winner, "tuned_for_this_row": tuned_now,
                "seconds": tuning.total_ns / 1e9, "candidates": len(tuning.candidates),
                "measured": sum(one["state"] == "measured" for one in tuning.candidates),
                "failures": [f"{one['configuration']}: {one['state']}: {one['message']}" for one in tuning.candidates
                             if one["state"] in ("compile failed", "wrong result", "launch failed")]}

    def calls(self, sets, dims):
        """One function for each set that launches every step on the backend's current stream."""
        bound = []
        for kernel in self.kernels:
            args = [self.arguments(kernel, tensors, dims) for tensors in sets]
            call = kernel.bind(args[0])
            bound.append([call.with_arguments(one) for one in args])
        stream = self.backend.stream

        def together(launches):
            def run():
                where = stream() or None
                for launch in launches:
                    launch(where)
            return run
        return [together(launches) for launches in zip(*bound)]


def run_row(row, session, backend, method):
    """Everything about one row as a JSON object; raises what keeps Kachel from running it."""
    began = time.monotonic()
    program = Program(session, row, backend)
    dims = row.dims
    decisions = program.tune(program.tensors(dims), dims, method.budget_s)
    backend.release()
    count = stats.rotating_sets(row.bytes, backend.cache_bytes, backend.free_bytes() * 0.3)
    sets = [program.tensors(dims) for _ in range(count)]

    sides, skipped = {"Kachel": Checked(program.calls(sets, dims), [t[row.output] for t in sets], row.reference)}, {}
    for name in row.peers:
        try:
            peers = [backend.peers[name](row, tensors) for tensors in sets]
            sides[name] = Checked([peer.run for peer in peers], [peer.out for peer in peers],
                                  row.reference if peers[0].reference is None else peers[0].reference)
        except Absent as reason:
            skipped[name] = str(reason)
        except Exception as error:  # noqa: BLE001  a peer that cannot do a row must not take the row along
            skipped[name] = f"failed: {type(error).__name__}: {error}"[:400]
    errors = check(row, sides, sets, backend, skipped)
    timed = {}
    for name, side in sides.items():
        try:
            timed[name] = backend.side(side.calls, method.block_ms)
        except Exception as error:  # noqa: BLE001
            if name == "Kachel":
                raise
            skipped[name] = f"failed: {type(error).__name__}: {error}"[:400]
    samples = rounds(timed, method.rounds)
    return describe(row, decisions, samples, errors, skipped, timed, count, time.monotonic() - began)


@dataclasses.dataclass
class Checked:
    calls: list
    outputs: list   # None where the call returns a new one
    reference: str  # "": not compared


def check(row, sides, sets, backend, skipped):
    """Runs every side over all sets; {side: {norm, worst, allowed, ok}}. A peer that fails to run leaves."""
    results, expected = {}, {}
    for name in list(sides):
        side = sides[name]
        for output in side.outputs:
            if output is not None:
                backend.poison(output)
        try:
            returned = [call() for call in side.calls]
            backend.synchronize()
        except Exception as error:  # noqa: BLE001
            if name == "Kachel":
                raise
            skipped[name] = f"failed: {type(error).__name__}: {error}"[:400]
            del sides[name]
            continue
        if not side.reference:
            continue
        worst = {"norm": 0.0, "worst": 0.0}
        for at in sorted({0, len(sets) - 1}):
            key = (side.reference, at)
            if key not in expected:
                expected[key] = backend.references[side.reference](row, sets[at])
            output = side.outputs[at] if side.outputs[at] is not None else returned[at]
            norm, most = backend.error(output, expected[key])
            worst = {"norm": stats.worse(worst["norm"], norm), "worst": stats.worse(worst["worst"], most)}
        allowed = row.allowed_error
        results[name] = {**worst, "allowed": allowed,
                         "ok": bool(worst["norm"] <= allowed and worst["worst"] <= 16 * allowed)}
        del returned
    return results


def rounds(timed, count):
    """{side: a sample of each round}; the order turns by one side each round."""
    names, samples = list(timed), {name: [] for name in timed}
    for turn in range(count):
        shift = turn % len(names)
        for name in names[shift:] + names[:shift]:
            samples[name].append(timed[name].sample())
    return samples


def describe(row, decisions, samples, errors, skipped, timed, count, seconds):
    ours = stats.median(samples["Kachel"])
    sides = {}
    for name, values in samples.items():
        sides[name] = {"samples_us": [round(value, 4) for value in values], "median_us": stats.median(values),
                       "rate": row.rate(stats.median(values)), "mode": timed[name].mode, "check": errors.get(name)}
        if name != "Kachel":
            per_round = stats.paired_ratios(values, samples["Kachel"])
            sides[name]["ratio"] = {**stats.spread(per_round), "per_round": [round(r, 4) for r in per_round]}
    return {"name": row.name, "group": row.group, "shape": row.shape, "type": row.type, "device": row.device,
            "threads": row.threads, "dims": row.dims, "programs": [step.program for step in row.steps],
            "flops": row.flops, "bytes": row.bytes, "unit": row.unit, "kachel_us": ours, "decisions": decisions,
            "winner": " | ".join(one["winner"] or "-" for one in decisions), "buffer_sets": count, "sides": sides,
            "skipped": skipped, "seconds": round(seconds, 2), "note": row.note}
