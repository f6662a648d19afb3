"""Peers of the group `further`, each looked up by the row's reference: what torch runs by itself, with cuBLAS for
products, and what torch.compile makes of a formula. peers_further_attention.py has those of attention. A formula takes
what it reads as arguments, so that one compilation serves all sets of buffers; of two results the first is checked."""
import functools

import torch
import torch.nn.functional as functional

from .registry import Peer, Registry

PEERS = Registry()
FORMULAS, EAGER = Registry(), Registry()  # by reference: (row, tensors) -> (function, arguments), -> Peer


@PEERS("eager")
def eager(row, t):
    if row.reference in EAGER:
        return EAGER[row.reference](row, t)
    function, arguments = FORMULAS[row.reference](row, t)
    return Peer(lambda: function(*arguments))


@PEERS("compiled")
def compiled(row, t):
    function, arguments = FORMULAS[row.reference](row, t)
    run = compilation(function)

    def first():
        out = run(*arguments)
        return out[0] if isinstance(out, tuple) else out
    return Peer(first)


@functools.lru_cache(maxsize=None)
def compilation(function):
    """Specialised to each shape. By default torch gives up after eight kinds of arguments."""
    for limit in ("recompile_limit", "cache_size_limit"):
        if hasattr(torch._dynamo.config, limit):
            setattr(torch._dynamo.config, limit, 128)
    return torch.compile(function, dynamic=False)


# Products.

def rope(x, w, co, si, heads, hd):
    y = (x @ w.t()).view(x.shape[0], heads, hd).float()
    lo, hi, c, s = y[..., :hd // 2], y[..., hd // 2:], co[:, None, :], si[:, None, :]
    return torch.cat((lo * c - hi * s, hi * c + lo * s), dim=-1).to(x.dtype)


@FORMULAS("rope_gemm")
def rope_gemm(row, t):
    return rope, (t["x"], t["w"].flatten(0, 1), t["co"], t["si"], row.dims["heads"], row.dims["hd"])


def swiglu(x, wg, wu):
    return functional.silu(x @ wg) * (x @ wu)


FORMULAS["swiglu_dual"] = lambda row, t: (swiglu, (t["x"], t["wg"], t["wu"]))


def qkv(x, w, shift, gain, heads, hd):
    y = torch.addmm(shift, x, w.t()).view(x.shape[0], 3, heads, hd).permute(1, 2, 0, 3)
    return (y * gain[:, :, None, None]).to(x.dtype).contiguous()


@FORMULAS("qkv_heads")
def qkv_heads(row, t):
    return qkv, (t["act"], t["wgt"].flatten(0, 2), t["shift"].flatten(), t["gain"], row.dims["heads"], row.dims["hd"])


def head(x, w):
    return torch.logsumexp((x @ w.t()).float(), dim=-1)


FORMULAS["head_lse"] = lambda row, t: (head, (t["x"], t["w"]))


def geglu(x, y, w):
    return (functional.gelu(x.float()) * y.float()).to(x.dtype) @ w.t()


FORMULAS["geglu_left"] = lambda row, t: (geglu, (t["x"], t["y"], t["w"]))


@EAGER("fp8_scaled")
def fp8_scaled(row, t):
    fast, out = bool(row.steps[0].consts["quick"]), t["y"].dtype
    return Peer(lambda: torch._scaled_mm(t["a"], t["b"].t(), scale_a=t["sa"][:, None], scale_b=t["sb"][None, :],
                                         out_dtype=out, use_fast_accum=fast))


def dequantised(a, b, unit):
    return (torch._int_mm(a, b.t()) * unit).to(torch.float16)


FORMULAS["i8_dequant"] = lambda row, t: (dequantised, (t["a"], t["b"], t["unit"]))


@EAGER("bmm_small")
def bmm_small(row, t):
    out = torch.empty_like(t["r"])
    return Peer(lambda: torch.bmm(t["p"], t["q"], out=out), out)


@EAGER("wgrad")
def wgrad(row, t):
    out = torch.empty_like(t["dw"])
    return Peer(lambda: torch.matmul(t["dy"].t(), t["x"], out=out), out)


@EAGER("lowrank")
def lowrank(row, t):
    out, mid = torch.empty_like(t["y"]), t["x"].new_empty(row.dims["rows"], row.dims["rank"])

    def run():
        torch.matmul(t["x"], t["down"], out=mid)
        return torch.matmul(mid, t["up"], out=out)
    return Peer(run, out)


# Rows and memory.

def losses(logit, label):
    z = logit.float()
    lse = torch.logsumexp(z, dim=-1)
    return lse - z.gather(1, label[:, None])[:, 0], lse


FORMULAS["xent"] = lambda row, t: (losses, (t["logit"], t["label"].long()))


@EAGER("xent")
def xent(row, t):
    label = t["label"].long()
    return Peer(lambda: functional.cross_entropy(t["logit"].float(), label, reduction="none"))


def rmsnorm_gradient(dy, x, w, inv):
    g, s, u = dy.float() * w.float(), x.float(), inv[:, None]
    return ((g - s * ((g * s).mean(dim=-1, keepdim=True) * u * u)) * u).to(x.dtype)


FORMULAS["rmsnorm_dx"] = lambda row, t: (rmsnorm_gradient, (t["dy"], t["x"], t["w"], t["inv"]))


@EAGER("rmsnorm_dx")
def rmsnorm_dx(row, t):
    backward, inv = torch.ops.aten._fused_rms_norm_backward, t["inv"][:, None]
    return Peer(lambda: backward(t["dy"], t["x"], [row.dims["wide"]], inv, t["w"], [True, False])[0])


def normalised(x, gamma, beta, groups, eps):
    return functional.group_norm(x, groups, gamma, beta, eps)


@FORMULAS("group_norm")
def group_norm(row, t):
    d = row.dims
    x = t["x"].view(d["nb"], d["grp"] * d["cg"], d["span"] // d["cg"])
    return normalised, (x, t["gamma"].flatten(), t["beta"].flatten(), d["grp"], row.scalars["eps"])


def convolution(x, ker, bias):
    taps, length = ker.shape[0], x.shape[1]
    padded = functional.pad(x.float(), (0, 0, taps - 1, 0))
    total = bias.float()
    for k in range(taps):
        total = total + padded[:, k:k + length] * ker[k].float()
    return functional.silu(total).to(x.dtype)


FORMULAS["conv_silu"] = lambda row, t: (convolution, (t["x"], t["ker"], t["bias"]))


@EAGER("conv_silu")
def conv_silu(row, t):
    d, weight = row.dims, t["ker"].t().contiguous()[:, None]

    def run():
        y = functional.conv1d(t["x"].transpose(1, 2), weight, t["bias"], padding=d["taps"] - 1, groups=d["ch"])
        return functional.silu(y[..., :d["len"]]).transpose(1, 2)
    return Peer(run)


def depthwise(img, ker):
    return functional.conv2d(img.permute(0, 3, 1, 2), ker.permute(2, 0, 1)[:, None], padding=1,
                             groups=ker.shape[-1]).permute(0, 2, 3, 1)


FORMULAS["dwconv"] = lambda row, t: (depthwise, (t["img"], t["ker"]))


def pooled(img):
    return functional.max_pool2d(img.permute(0, 3, 1, 2), 3, 2, 1).permute(0, 2, 3, 1)


FORMULAS["max_pool"] = lambda row, t: (pooled, (t["img"],))
FORMULAS["turn_cast"] = lambda row, t: (lambda x: x.to(torch.bfloat16).transpose(1, 2).contiguous(), (t["x"],))


FORMULAS["prefix_sums"] = lambda row, t: (lambda x: x.cumsum(dim=-1), (t["x"],))


FORMULAS["greedy"] = lambda row, t: (lambda x: x.argmax(dim=-1).int(), (t["logits"],))


def nearest_centre(x, centre, length):
    return (length - 2 * (x @ centre.T).float()).argmin(dim=-1).int()


FORMULAS["nearest"] = lambda row, t: (nearest_centre, (t["x"], t["centre"], t["length"]))


def sums_of_rows(x, at, count):
    return torch.zeros(count, x.shape[1], dtype=torch.float32, device=x.device).index_add_(0, at, x.float())


FORMULAS["scatter_rows"] = lambda row, t: (sums_of_rows, (t["x"], t["at"], row.dims["rows"]))


def normalised_heads(x, gain, co, si):
    a = x.float()
    a = a * torch.rsqrt(a.square().mean(dim=-1, keepdim=True) + 1e-6) * gain.float()
    lo, hi = a.chunk(2, dim=-1)
    c, s = co[:, None], si[:, None]
    return torch.cat((lo * c - hi * s, hi * c + lo * s), dim=-1).to(x.dtype)


FORMULAS["qk_norm"] = lambda row, t: (normalised_heads, (t["x"], t["gain"], t["co"], t["si"]))


def log_probabilities(x, tau):
    return functional.log_softmax(x.float() / tau, dim=-1).to(x.dtype)


FORMULAS["log_probs"] = lambda row, t: (log_probabilities, (t["x"], row.scalars["tau"]))


def column_sums(g):
    return g.sum(dim=0, dtype=torch.float32)


FORMULAS["colsum"] = lambda row, t: (column_sums, (t["g"],))


def turned(src):
    return src.t().contiguous()


FORMULAS["transpose"] = lambda row, t: (turned, (t["src"],))
