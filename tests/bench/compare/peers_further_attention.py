"""Peers of the attention of the group `further`: FlexAttention, torch's flash attention below its public interface, and
scaled_dot_product_attention where a mask is a bias in memory. Each is looked up by the row's reference."""
import functools

import torch
import torch.nn.functional as functional

from .peers_further import compilation
from .registry import Absent, Peer, Registry
from .rows_further_attention import document_lengths

PEERS = Registry()
MODS, BIASES, DIRECT = Registry(), Registry(), Registry()  # by reference


def swapped(x):
    return x.transpose(1, 2)


def mqa_operands(row, t):
    """[B, S, H, D], as flash attention wants them."""
    d, heads = row.dims, row.steps[0].consts["heads"]
    return t["q"].view(d["bs"], d["rows"] // heads, heads, d["hd"]), t["k"][:, :, None], t["v"][:, :, None]


def operands(row, t):
    """q, k, v as [B, H, S, D], and a function that brings the output into the row's layout."""
    q, k, v = (t[name] for name in "qkv")
    if row.reference == "prefix_lm":
        return swapped(q), swapped(k), swapped(v), swapped
    if row.reference == "packed_docs":
        return *(x.transpose(0, 1)[None] for x in (q, k, v)), lambda out: out[0].transpose(0, 1)
    if row.reference == "mqa_spec":
        return *map(swapped, mqa_operands(row, t)), lambda out: swapped(out).reshape(t["o"].shape)
    return q, k, v, lambda out: out


@functools.lru_cache(maxsize=None)
def flex_attention():
    try:
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention as run
    except ImportError as error:
        raise Absent(f"torch {torch.__version__} has no FlexAttention") from error
    return compilation(run), create_block_mask


@PEERS("flex")
def flex(row, t):
    """MODS: (row, tensors) -> (score_mod, mask_mod, batches that differ in it); either may be None."""
    run_flex, create_block_mask = flex_attention()
    q, k, v, back = operands(row, t)
    score, mask, batches = MODS[row.reference](row, t)
    blocks = create_block_mask(mask, batches, None, q.shape[2], k.shape[2], device=q.device) if mask else None
    grouped = q.shape[1] != k.shape[1]
    return Peer(lambda: back(run_flex(q, k, v, score_mod=score, block_mask=blocks, scale=row.scalars["scale"],
                                      enable_gqa=grouped)))


@MODS("alibi")
def alibi_mods(row, t):
    slope = t["slope"]
    return (lambda value, b, h, at, key: value + slope[h] * (key - at)), (lambda b, h, at, key: key <= at), None


@MODS("bias_attention")
def bias_mods(row, t):
    rel = t["rel"]
    return (lambda value, b, h, at, key: value + rel[h, at, key]), None, None


@MODS("prefix_lm")
def prefix_mods(row, t):
    pre = t["pre"]
    return None, (lambda b, h, at, key: (key <= at) | (key < pre[b])), row.dims["bs"]


@MODS("packed_docs")
def packed_mods(row, t):
    doc = t["doc"]
    return None, (lambda b, h, at, key: (doc[at] == doc[key]) & (key <= at)), None


@MODS("mqa_spec")
def mqa_mods(row, t):
    before = row.dims["ctx"] - row.dims["rows"] // row.steps[0].consts["heads"]
    return None, (lambda b, h, at, key: key <= before + at), None


def biased_by(backend):
    """BIASES: (row, tensors) -> what is added to the scores."""
    def peer(row, t):
        from torch.nn.attention import SDPBackend, sdpa_kernel  # of torch 2.3 on
        q, k, v, back = operands(row, t)
        bias, grouped = BIASES[row.reference](row, t), q.shape[1] != k.shape[1]
        kept = []  # the latest output, so that each set of buffers has its own

        def run():
            with sdpa_kernel(getattr(SDPBackend, backend)):
                out = functional.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=row.scalars["scale"],
                                                              enable_gqa=grouped)
            kept[:] = [out]
            return back(out)
        try:
            run()
        except RuntimeError as error:
            if "kernel" in str(error).lower():
                raise Absent(f"torch {torch.__version__} has no kernel of it for this row") from error
            raise
        return Peer(run)
    return peer


PEERS["cuDNN, bias"] = biased_by("CUDNN_ATTENTION")
PEERS["efficient"] = biased_by("EFFICIENT_ATTENTION")

BIASES["bias_attention"] = lambda row, t: t["rel"][None].expand(row.dims["bs"], -1, -1, -1)


@BIASES("mqa_spec")
def mqa_bias(row, t):
    ctx, tokens = row.dims["ctx"], row.dims["rows"] // row.steps[0].consts["heads"]
    later = torch.ones(tokens, ctx, dtype=torch.bool, device=t["q"].device).triu(ctx - tokens + 1)
    bias = torch.zeros(later.shape, dtype=t["q"].dtype, device=later.device).masked_fill_(later, float("-inf"))
    return bias[None, None]


@PEERS("flash direct")
def flash_direct(row, t):
    return DIRECT[row.reference](row, t, torch.ops.aten._flash_attention_forward)


@DIRECT("packed_docs")
def packed_direct(row, t, forward):
    lengths = document_lengths(row.dims["tot"])
    ends = functional.pad(torch.tensor(lengths).cumsum(0), (1, 0)).to(torch.int32).to(t["q"].device)
    most = max(lengths)
    return Peer(lambda: forward(t["q"], t["k"], t["v"], ends, ends, most, most, 0.0, True, False,
                                scale=row.scalars["scale"])[0])


@DIRECT("mqa_spec")
def mqa_direct(row, t, forward):
    q, k, v = mqa_operands(row, t)
    return Peer(lambda: forward(q, k, v, None, None, q.shape[1], k.shape[1], 0.0, True, False,
                                scale=row.scalars["scale"])[0].reshape(t["o"].shape))
