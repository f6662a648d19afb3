"""Seconds of a first call and of next keys, as a host waits for them: one process, an empty store, `prepare` under the
policy `blocking`. Of the examples' product and causal attention in bf16, with 16 configurations listed and with 16
trials of the examples' own lists; the last is compiling what an earlier key did not need, for the most part.

    first_calls.py [--device cuda|cpu] [--times N] [--next-budget SECONDS]

With --next-budget all keys but the first are tuned within that. On the CPU the shapes are small: to see that it runs."""
import argparse
import re
import tempfile
import time

import torch

from compare import capi, kachel

LISTS = {"matmul": "tune BM = 128 | 64, BN = 128 | 256, BK = 64 | 32, stages = 4 | 3, cluster = 1, cluster_columns = 1",
         "attention": "tune BM = 128 | 64, BN = 128 | 64 | 80 | 96, stages = 2 | 3"}
CONSTS = {"matmul": {"tf32": 0, "fast": 0}, "attention": {"causal": 1}}


def text_of(name, listed):
    """The example; `listed`: with the list above in place of its own and of what that leaves out."""
    text = (capi.ROOT / f"examples/{name}.tile").read_text()
    begin = text.index(f"kernel {name}")
    head, rest = text[:begin], text[begin:]
    if listed:
        rest = re.sub(r"^where (BM|cluster).*\n", "", rest, flags=re.M)
        rest = re.sub(r"^tune .*$", LISTS[name], rest, count=1, flags=re.M)
    return head + rest


def keys(name, small):
    if name == "matmul":
        return [{"M": m, "N": 64 if small else 4096, "K": 64 if small else 4096}
                for m in ((64, 16) if small else (4000, 1000, 2000, 300))]
    heads = {"B": 1 if small else 2, "H": 2 if small else 16, "G": 2 if small else 16}
    width = 32 if small else 128
    return [{**heads, "Sq": s, "Sk": s, "D": width, "E": width} for s in ((64, 32) if small else (4096, 2048, 1000))]


def run(library, name, listed, device, next_budget):
    kind = capi.CUDA if device == "cuda" else capi.CPU
    store = tempfile.TemporaryDirectory()
    engine = kachel.Engine(library, store=store.name, policy="blocking")
    kernel = engine.kernel(text_of(name, listed), name, CONSTS[name])
    for number, dims in enumerate(keys(name, device == "cpu")):
        tensors, values = [], []
        for index, param in enumerate(kernel.params):
            if param.kind == "scalar":
                values.append(0.088)
                continue
            tensors.append(torch.randn(kernel.shape(index, dims), device=device, dtype=torch.bfloat16))
            values.append(kachel.Argument("bf16", tensors[-1].shape, tensors[-1].data_ptr()))
        args = kernel.arguments(values, engine.device(kind).device)
        if device == "cuda":
            torch.cuda.synchronize()
        began = time.monotonic()
        kernel.prepare(args, budget_s=next_budget if number else 10, trials=0 if listed else 16)
        seconds = time.monotonic() - began
        print(f"{name:9} {'16 listed' if listed else '16 trials'} {dims.get('M', dims.get('Sq')):5}: {seconds:.3f} s  "
              f"{kernel.tuning(args).winner}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument("--next-budget", type=float, default=10)
    options = parser.parse_args()
    if options.device == "cuda":
        torch.zeros(1, device="cuda")
    library = capi.Library(None)
    for _ in range(options.times):
        for name in LISTS:
            for listed in (True, False):
                run(library, name, listed, options.device, options.next_budget)


if __name__ == "__main__":
    main()
