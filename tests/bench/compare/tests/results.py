"""A made-up result, as a run would have written it: the figures mean nothing."""


def side(us, ratio=None, check=True, error=2e-4):
    made = {"samples_us": [us], "median_us": us, "rate": 700.0, "mode": "graph",
            "check": {"norm": error, "worst": 3e-4, "allowed": 2e-3, "ok": check}}
    if ratio:
        made["ratio"] = {"median": ratio, "min": ratio * 0.97, "max": ratio * 1.02, "per_round": [ratio]}
    return made


def row(shape="4096^3", group="matmul", **more):
    made = {"name": f"{group} {shape} f16", "group": group, "shape": shape, "type": "f16", "device": "cuda",
            "threads": 0, "unit": "TFLOP/s", "kachel_us": 190.0, "winner": "BM=128,BN=256 | -", "skipped": {},
            "sides": {"Kachel": side(190.0), "cuBLAS": side(183.0, 0.963), "Triton": side(240.0, 1.263)}}
    made.update(more)
    return made


def result(*rows):
    return {"schema": 1, "date": "2026-01-02T03:04:05+00:00", "commit": "0123456789ab", "command": "compare.py",
            "device": {"name": "a made-up GPU", "driver": "1.2", "kind": "cuda"}, "versions": {"torch": "0.0"},
            "method": {"rounds": 7, "block_ms": 20.0, "budget_s": 10.0}, "rows": list(rows)}


FAILED = {"name": "matmul 1^3 f16", "group": "matmul", "shape": "1^3", "type": "f16", "device": "cuda", "threads": 0,
          "failed": "compile: no candidate compiled\nand more"}
