"""What each row must compute, in float64 on the GPU, from the very elements that both sides read."""
import torch

from .registry import Registry

REFERENCES = Registry()
F64 = torch.float64


def gelu(x):
    return torch.nn.functional.gelu(x)  # the exact one is torch's default


@REFERENCES("matmul")
def matmul(row, t):
    return t["A"].to(F64) @ t["B"].to(F64).t()


@REFERENCES("matmul_bias_gelu")
def matmul_bias_gelu(row, t):
    return gelu(matmul(row, t) + t["bias"].to(F64)) + t["R"].to(F64)


def unpacked(packed):
    """u4, two a byte, low nibble first."""
    return torch.stack((packed & 15, packed >> 4), dim=-1).flatten(-2)


def w4_weights(row, t):
    """The weights as float64; what is rounded to the kernel's type before the product is rounded here."""
    dims = row.dims
    group = dims["K"] // dims["Kg"]

    def spread(x):
        return x.repeat_interleave(group, dim=1)

    quantised = unpacked(t["W"]).to(F64) - spread(unpacked(t["zero"]).to(F64))
    return (quantised * spread(t["scale"].to(F64))).to(t["A"].dtype).to(F64)


@REFERENCES("matmul_w4")
def matmul_w4(row, t):
    return t["A"].to(F64) @ w4_weights(row, t).t()


@REFERENCES("attention")
def attention(row, t):
    """One batch and one key head at a time, in chunks of queries, so that 16k by 16k scores fit."""
    q, k, v, d = t["Q"], t["K"], t["V"], row.dims
    window = row.scalars.get("window")
    causal = row.steps[0].consts.get("causal", window is not None)
    out = torch.empty(q.shape[:-1] + v.shape[-1:], dtype=F64, device=q.device)
    share, past, chunk = d["H"] // d["G"], d["Sk"] - d["Sq"], 2048
    columns = torch.arange(d["Sk"], device=q.device)
    for b in range(d["B"]):
        for h in range(d["H"]):
            keys, values = k[b, :, h // share].to(F64), v[b, :, h // share].to(F64)
            for first in range(0, d["Sq"], chunk):
                scores = q[b, first:first + chunk, h].to(F64) @ keys.t() * row.scalars["scale"]
                if causal:
                    rows = torch.arange(first, first + scores.shape[0], device=q.device) + past
                    scores.masked_fill_(columns[None, :] > rows[:, None], float("-inf"))
                    if window:
                        scores.masked_fill_(rows[:, None] - columns[None, :] >= window, float("-inf"))
                out[b, first:first + chunk, h] = torch.softmax(scores, dim=-1) @ values
    return out


@REFERENCES("decode")
def decode(row, t):
    q, k, v, d = t["Q"], t["K"], t["V"], row.dims
    out = torch.empty(q.shape, dtype=F64, device=q.device)
    for b in range(d["B"]):
        grouped = q[b].to(F64).reshape(d["G"], d["H"] // d["G"], d["D"])
        scores = torch.einsum("ghd,sgd->ghs", grouped, k[b].to(F64)) * row.scalars["scale"]
        out[b] = torch.einsum("ghs,sgd->ghd", torch.softmax(scores, dim=-1), v[b].to(F64)).reshape(d["H"], d["D"])
    return out


@REFERENCES("rmsnorm")
def rmsnorm(row, t):
    x = t["X"].to(F64)
    return x * torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + row.scalars["eps"]) * t["W"].to(F64)


@REFERENCES("layernorm")
def layernorm(row, t):
    x = t["X"].to(F64)
    return torch.nn.functional.layer_norm(x, x.shape[-1:], t["W"].to(F64), t["bias"].to(F64), row.scalars["eps"])


@REFERENCES("softmax")
def softmax(row, t):
    return torch.softmax(t["X"].to(F64), dim=-1)


@REFERENCES("gemv")
def gemv(row, t):
    return t["W"].to(F64) @ t["X"].to(F64)


REFERENCES["relu"] = lambda row, t: torch.relu(t["X"].to(F64))
REFERENCES["gelu"] = lambda row, t: gelu(t["X"].to(F64))
REFERENCES["add"] = lambda row, t: t["X"].to(F64) + t["Z"].to(F64)
