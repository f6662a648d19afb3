"""Programs beside those of examples/ that move memory, judged as those of rows_memory.py are."""
from .rows_further import further

PEERS = ("eager", "compiled", "copy")


def xent(n, vocab):
    """Losses average over many logits, which are read as they are, hence the tolerance."""
    return further("xent", f"{n}x{vocab}", "bf16", {"n": n, "vocab": vocab}, "loss", PEERS, bytes=2.0 * n * vocab,
                   fills={"label": ("between", 0, vocab)}, tolerance=1e-4)


def rmsnorm_dx(n, wide):
    return further("rmsnorm_dx", f"{n}x{wide}", "bf16", {"n": n, "wide": wide}, "dx", PEERS, bytes=6.0 * n * wide,
                   fills={"inv": "near one", "w": "near one"})


def group_norm(nb, grp, cg, px):
    return further("group_norm", f"{nb}x{grp * cg}x{px} g{grp}", "bf16",
                   {"nb": nb, "grp": grp, "cg": cg, "span": cg * px}, "y", PEERS, bytes=4.0 * nb * grp * cg * px,
                   fills={"gamma": "near one"}, scalars={"eps": 1e-5})


def conv_silu(bs, length, ch, taps):
    return further("conv_silu", f"{bs}x{length}x{ch} t{taps}", "bf16",
                   {"bs": bs, "len": length, "ch": ch, "taps": taps}, "y", PEERS, bytes=4.0 * bs * length * ch,
                   fills={"ker": "unit columns"})


def dwconv(nb, ht, wd, ch):
    return further("dwconv", f"{nb}x{ht}x{wd}x{ch}", "bf16", {"nb": nb, "ht": ht, "wd": wd, "ch": ch}, "res", PEERS,
                   bytes=4.0 * nb * ht * wd * ch, fills={"ker": "unit columns"})


def max_pool(nb, ht, wd, ch):
    oh, ow = (ht + 1) // 2, (wd + 1) // 2
    return further("max_pool", f"{nb}x{ht}x{wd}x{ch}", "bf16",
                   {"nb": nb, "ht": ht, "wd": wd, "ch": ch, "oh": oh, "ow": ow}, "res", PEERS,
                   bytes=2.0 * nb * ch * (ht * wd + oh * ow), tolerance=0.0)


def qk_norm(tok, heads, hd):
    return further("qk_norm", f"{tok} h{heads} d{hd}", "bf16", {"tok": tok, "heads": heads, "hd": hd, "half": hd // 2},
                   "y", PEERS, bytes=4.0 * tok * heads * hd, fills={"gain": "near one"})


def log_probs(n, vocab):
    return further("log_probs", f"{n}x{vocab}", "bf16", {"n": n, "vocab": vocab}, "y", PEERS, bytes=4.0 * n * vocab,
                   scalars={"tau": 0.7})


def colsum(rows, cols):
    return further("colsum", f"{rows}x{cols}", "bf16", {"rows": rows, "cols": cols}, "db", PEERS,
                   bytes=2.0 * rows * cols, types={"E": "bf16", "R": "f32"}, tolerance=2e-5)


def transpose(rows, cols):
    return further("transpose", f"{rows}x{cols}", "bf16", {"rows": rows, "cols": cols}, "dst", PEERS,
                   bytes=4.0 * rows * cols, tolerance=0.0)


def turn_cast(bs, length, ch):
    return further("turn_cast", f"{bs}x{length}x{ch}", "bf16", {"bs": bs, "len": length, "ch": ch}, "y", PEERS,
                   bytes=6.0 * bs * length * ch)


def scatter_rows(n, wide, count):
    return further("scatter_rows", f"{n}x{wide} into {count}", "bf16", {"n": n, "wide": wide, "rows": count}, "sums",
                   PEERS, bytes=2.0 * n * wide + 4.0 * wide * (n + count), fills={"at": ("between", 0, count)},
                   tolerance=1e-5)


def prefix_sums(n, length):
    return further("prefix_sums", f"{n}x{length}", "f32", {"n": n, "len": length}, "y", PEERS, bytes=8.0 * n * length,
                   tolerance=1e-5)


def greedy(n, vocab):
    return further("greedy", f"{n}x{vocab}", "bf16", {"n": n, "vocab": vocab}, "at", PEERS, bytes=2.0 * n * vocab,
                   tolerance=0.0)


def nearest(n, m, d):
    return further("nearest", f"{n}x{d} to {m}", "bf16", {"n": n, "m": m, "d": d}, "at", PEERS, flops=2.0 * n * m * d,
                   bytes=2.0 * d * (n + m) + 4.0 * (n + m),
                   fills={"x": ("between", -2, 3), "centre": ("between", -2, 3), "length": ("between", 0, 256)},
                   tolerance=0.0)  # small integers: all is exact, in 16 bits as well


def rows():
    return [
        xent(8192, 50257), xent(3001, 32000),
        rmsnorm_dx(16384, 4096), rmsnorm_dx(8191, 2560),
        group_norm(32, 32, 10, 64 * 64), group_norm(64, 24, 8, 27 * 27),
        conv_silu(8, 4096, 3072, 4), conv_silu(3, 2049, 1000, 3),
        dwconv(16, 56, 56, 256), dwconv(3, 33, 47, 100),
        max_pool(32, 112, 112, 64), max_pool(16, 57, 63, 200),
        qk_norm(8192, 32, 128), qk_norm(777, 12, 64),
        log_probs(20000, 8191), log_probs(65536, 1000),
        colsum(16384, 3072), colsum(50001, 777),
        transpose(8192, 8192), transpose(8191, 4097),
        turn_cast(16, 4096, 1024), turn_cast(3, 777, 1001),
        prefix_sums(8192, 8192), prefix_sums(3001, 5555),
        greedy(512, 128256), greedy(3001, 32001), nearest(65536, 1024, 128), nearest(10007, 500, 96),
        scatter_rows(32768, 1024, 50000), scatter_rows(30001, 300, 7777),
    ]
