"""The command: chooses rows and device, runs them, reports. Status 0: all ran and were right; 1: something failed or
was wrong; 2: the command line, or a device or package that is not there."""
import argparse
import os
import sys
import time
import traceback

from . import machine, report, svg, table
from .row import only_peers, select


def parser():
    p = argparse.ArgumentParser(prog="compare.py", description="Kachel beside its peers; docs/performance.md says how.")
    p.add_argument("--device", choices=("cuda", "cpu"), help="default: cuda where torch sees one, else cpu")
    p.add_argument("--rows", default="", help="comma-separated groups or globs over names; see --list")
    p.add_argument("--list", action="store_true", help="name the rows and end")
    p.add_argument("--rounds", type=int, help="default 7, with --quick 3")
    p.add_argument("--budget", type=float, help="seconds to tune a row; default 10, with --quick 4")
    p.add_argument("--long", action="store_true", help="blocks of 100 ms instead of 20: sustained clocks")
    p.add_argument("--quick", action="store_true", help="the few rows that stand for the others")
    p.add_argument("--json", metavar="FILE", help="write everything that was measured, after every row")
    p.add_argument("--plots", metavar="FOLDER", help="write an SVG for each group")
    p.add_argument("--render", metavar="FILE", nargs="+", help="measure nothing; results to Markdown, and to --plots")
    p.add_argument("--library", metavar="PATH", help="libkachel.so; default $KACHEL_LIBRARY, then build/")
    p.add_argument("--store", default="", metavar="PATH", help="keep binaries and decisions there; default: in memory")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--peers", default="", help="comma-separated globs: only those peers that one takes")
    p.add_argument("--deadline", type=float, metavar="SECONDS", help="begin no row after that long; says what is left")
    p.add_argument("--openblas-coretype", metavar="NAME", help="OPENBLAS_CORETYPE, for example SKYLAKEX")
    return p


def have_cuda():
    try:
        import torch
        return torch.cuda.is_available()
    except ImportError:
        return False


def backend_for(device, info, seed):
    """Imported here, since each needs its own package."""
    if device == "cuda":
        from .cuda import CudaBackend
        return CudaBackend(info, seed)
    from .cpu import CpuBackend
    return CpuBackend(info, seed)


def render(options):
    results = [report.read_json(path) for path in options.render]
    rows = [row for result in results for row in result["rows"]]
    if options.plots:
        for path in svg.write_plots(options.plots, rows, report.plot_name):
            print(f"wrote {path}", file=sys.stderr)
    print(report.markdown(results, os.path.basename(options.plots.rstrip("/")) if options.plots else None))
    return 0


def measure_all(rows, session, backend, method, options, result, say):
    """Runs rows and appends to result["rows"]; a row that fails is a result too."""
    from .measure import run_row
    began = time.monotonic()
    for index, row in enumerate(rows):
        if options.deadline and time.monotonic() - began > options.deadline:
            result["not_begun"] = [one.name for one in rows[index:]]
            say(f"DEADLINE: not begun: {', '.join(result['not_begun'])}")
            break
        say(f"[{index + 1}/{len(rows)}] {row.name}")
        try:
            done = run_row(row, session, backend, method)
        except Exception as error:  # noqa: BLE001  one row must not take the others along
            done = {"name": row.name, "group": row.group, "shape": row.shape, "type": row.type, "device": row.device,
                    "threads": row.threads, "failed": str(error) or type(error).__name__,
                    "trace": traceback.format_exc()}
        done["state_after"] = machine.gpu_state() if row.device == "cuda" else {"load": os.getloadavg()}
        slowed = machine.throttles(done["state_after"])
        backend.release()
        result["rows"].append(done)
        for cells in report.cells_of(done):
            say("  " + "  ".join(cells[3:]) + (f"  [{', '.join(slowed)}]" if slowed else ""))
        if options.json:
            report.write_json(options.json, result)


def finish(result, options):
    rows = result["rows"]
    print(report.aligned(rows))
    for text in report.reasons(rows):
        print("\n" + text)
    print(f"\nratio: the peer's time / Kachel's time, median of {result['method']['rounds']} rounds [min..max]; "
          "above 1, Kachel is quicker")
    if options.json:
        report.write_json(options.json, result)
    if options.plots:
        svg.write_plots(options.plots, rows, report.plot_name)
    wrong = [row for row in rows if "failed" in row or not row["sides"]["Kachel"]["check"]["ok"]]
    return 1 if wrong else 0


def main(argv=None):
    options = parser().parse_args(argv)
    if options.render:
        return render(options)

    def say(text):
        print(text, file=sys.stderr, flush=True)

    device = options.device or ("cuda" if have_cuda() else "cpu")
    try:
        rows = select(table.rows(), device, [p for p in options.rows.split(",") if p], options.quick)
        rows = only_peers(rows, [p for p in options.peers.split(",") if p])
    except ValueError as error:
        say(str(error))
        return 2
    if options.list:
        print("\n".join(row.name for row in rows))
        return 0
    if options.openblas_coretype:
        os.environ["OPENBLAS_CORETYPE"] = options.openblas_coretype  # before the library is opened
    try:
        from .measure import Method, Session
        from .kachel import KachelError
        from .capi import CPU, CUDA
        session = Session(options.library, CUDA if device == "cuda" else CPU, options.store)
        backend = backend_for(device, session.info, options.seed)
    except (ImportError, OSError, KachelError) as error:
        say(f"cannot run on {device}: {error}\n(cuda needs torch with CUDA, cpu needs numpy, both need --library)")
        return 2
    method = Method(options.rounds or (3 if options.quick else 7), 100.0 if options.long else 20.0,
                    options.budget if options.budget is not None else (4.0 if options.quick else 10.0))
    result = machine.describe(device, session.info, session.library, " ".join(["compare.py"] + (argv or sys.argv[1:])))
    result["method"] = {"rounds": method.rounds, "block_ms": method.block_ms, "budget_s": method.budget_s,
                        "cache_bytes": backend.cache_bytes, "seed": options.seed}
    result["state_before"] = machine.gpu_state() if device == "cuda" else {"load": os.getloadavg()}
    result["rows"] = []
    if device == "cpu" and os.getloadavg()[0] > 0.5:
        say(f"LOADED: other work runs here (load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores); "
            "these figures are no measurement")
    say(f"{result['device']['name']}, {result['versions']}, commit {result['commit']}")
    try:
        measure_all(rows, session, backend, method, options, result, say)
    except KeyboardInterrupt:
        say("interrupted; what is done is reported")
    return finish(result, options)
