"""Attention forward, B batches of H heads on G key heads, bf16; what a mask leaves out is no operation."""
import math

from .row import Row, Step


def attention(length, causal, depth=128, batch=4, heads=16, groups=None, values=None, quick=False):
    """`depth`: the width of queries and keys, and of values where these have none of their own."""
    groups, values = groups or heads, values or depth
    kind = "causal" if causal else "full"
    who = f"{heads}:{groups}" if groups != heads else str(heads)
    size = batch * length * (depth + values) * 2 * (heads + groups)
    wide = f"{depth}/{values}" if values != depth else depth
    return Row(group="attention", shape=f"{length} {kind} d{wide} b{batch} h{who}", type="bf16",
               steps=(Step("examples/attention.tile", consts={"causal": causal}),), types={"T": "bf16"},
               dims={"B": batch, "Sq": length, "Sk": length, "H": heads, "G": groups, "D": depth, "E": values},
               scalars={"scale": 1 / math.sqrt(depth)}, output="O", reference="attention",
               peers=("cuDNN", "flash") if values == depth else ("cuDNN",),
               flops=2.0 * batch * heads * length * length * (depth + values) * (0.5 if causal else 1),
               bytes=size, quick=quick)


def windowed(length, window, depth=128, batch=4, heads=16):
    """Causal, each query with the `window` keys up to its own place."""
    seen = sum(min(i + 1, window) for i in range(length))
    return Row(group="attention", shape=f"{length} window {window} d{depth} b{batch} h{heads}", type="bf16",
               steps=(Step("examples/attention_window.tile"),), types={"T": "bf16"},
               dims={"B": batch, "Sq": length, "Sk": length, "H": heads, "G": heads, "D": depth},
               scalars={"scale": 1 / math.sqrt(depth), "window": window}, output="O", reference="attention",
               peers=("flash window",), flops=4.0 * batch * heads * seen * depth,
               bytes=batch * length * depth * 2 * 4 * heads)


def decode(batch, length=8192, heads=32, groups=8, depth=128):
    return Row(group="decode", shape=f"1x{length} d{depth} b{batch} h{heads}:{groups}", type="bf16",
               steps=(Step("examples/decode.tile", "decode"),), types={"T": "bf16"},
               dims={"B": batch, "S": length, "H": heads, "G": groups, "D": depth},
               scalars={"scale": 1 / math.sqrt(depth)}, output="O", reference="decode", peers=("cuDNN", "flash"),
               bytes=batch * 2.0 * depth * (2 * length * groups + 2 * heads), quick=True)


def rows():
    both = (False, True)
    return [attention(length, causal, batch=1 if length == 16384 else 4, quick=length == 4096)
            for causal in both for length in (1024, 2048, 4096, 8192, 16384)] + [
        attention(length, causal, depth=64) for causal in both for length in (1024, 4096, 8192)] + [
        attention(4096, causal, depth=depth) for depth in (80, 96, 256) for causal in both] + [
        attention(4096, causal, depth=192, values=128) for causal in both] + [
        attention(length, causal, batch=1 if length == 8192 else 2, heads=32, groups=8)
        for causal in both for length in (4096, 8192)] + [windowed(8192, 1024)] + [decode(64), decode(1), decode(1, 65536)]
