"""What each row of the group `further` must compute, in float64, from the very elements that both sides read; what a
program rounds to its tensors' type on the way is rounded here."""
import torch
import torch.nn.functional as functional

from .registry import Registry
from .rows_further_attention import document_lengths

REFERENCES = Registry()
F64 = torch.float64


def f64(t, *names):
    return [t[name].to(F64) for name in names]


@REFERENCES("rope_gemm")
def rope_gemm(row, t):
    x, w, co, si = f64(t, "x", "w", "co", "si")
    lo, hi = torch.einsum("td,hcd->thc", x, w).split(row.dims["half"], dim=-1)
    c, s = co[:, None], si[:, None]
    return torch.cat((lo * c - hi * s, hi * c + lo * s), dim=-1)


@REFERENCES("swiglu_dual")
def swiglu_dual(row, t):
    x, wg, wu = f64(t, "x", "wg", "wu")
    return functional.silu(x @ wg) * (x @ wu)


@REFERENCES("qkv_heads")
def qkv_heads(row, t):
    act, wgt, shift, gain = f64(t, "act", "wgt", "shift", "gain")
    return (torch.einsum("td,zhcd->zhtc", act, wgt) + shift[:, :, None]) * gain[:, :, None, None]


@REFERENCES("head_lse")
def head_lse(row, t):
    w = t["w"].to(F64).t()
    return torch.cat([torch.logsumexp(x.to(F64) @ w, dim=-1) for x in t["x"].split(1024)])


@REFERENCES("geglu_left")
def geglu_left(row, t):
    x, y, w = f64(t, "x", "y", "w")
    return (functional.gelu(x) * y).to(t["x"].dtype).to(F64) @ w.t()


@REFERENCES("fp8_scaled")
def fp8_scaled(row, t):
    a, b, sa, sb = f64(t, "a", "b", "sa", "sb")
    return a @ b.t() * sa[:, None] * sb


@REFERENCES("i8_dequant")
def i8_dequant(row, t):
    a, b, unit = f64(t, "a", "b", "unit")
    return a @ b.t() * unit


@REFERENCES("bmm_small")
def bmm_small(row, t):
    return torch.bmm(*f64(t, "p", "q"))


@REFERENCES("wgrad")
def wgrad(row, t):
    dy, x = f64(t, "dy", "x")
    return dy.t() @ x


@REFERENCES("lowrank")
def lowrank(row, t):
    x, down, up = f64(t, "x", "down", "up")
    return (x @ down).to(t["x"].dtype).to(F64) @ up


def attention(q, k, v, scale, bias):
    """[B, H, S, D], a head and some queries at a time. bias(b, h, rows, columns): added; booleans: who sees whom."""
    batch, heads, length, _ = q.shape
    share, chunk = heads // k.shape[1], 2048
    out = torch.empty(batch, heads, length, v.shape[-1], dtype=F64, device=q.device)
    columns = torch.arange(k.shape[2], device=q.device)[None, :]
    for b in range(batch):
        for h in range(heads):
            keys, values = k[b, h // share].to(F64), v[b, h // share].to(F64)
            for first in range(0, length, chunk):
                scores = q[b, h, first:first + chunk].to(F64) @ keys.t() * scale
                rows = torch.arange(first, first + len(scores), device=q.device)[:, None]
                more = bias(b, h, rows, columns)
                scores = scores.masked_fill_(~more, float("-inf")) if more.dtype == torch.bool else scores + more
                out[b, h, first:first + chunk] = torch.softmax(scores, dim=-1) @ values
    return out


@REFERENCES("alibi")
def alibi(row, t):
    def bias(b, h, rows, columns):
        return torch.where(columns <= rows, (columns - rows) * t["slope"][h].to(F64), float("-inf"))
    return attention(t["q"], t["k"], t["v"], row.scalars["scale"], bias)


@REFERENCES("bias_attention")
def bias_attention(row, t):
    def bias(b, h, rows, columns):
        return t["rel"][h, rows, columns].to(F64)
    return attention(t["q"], t["k"], t["v"], row.scalars["scale"], bias)


@REFERENCES("prefix_lm")
def prefix_lm(row, t):
    def bias(b, h, rows, columns):
        return (columns <= rows) | (columns < t["pre"][b])
    q, k, v = (t[name].transpose(1, 2) for name in "qkv")
    return attention(q, k, v, row.scalars["scale"], bias).transpose(1, 2)


def causal(b, h, rows, columns):
    return columns <= rows


@REFERENCES("packed_docs")
def packed_docs(row, t):
    """A document at a time, and not by the numbers and starts that the kernel reads."""
    parts = (t[name].transpose(0, 1)[None].split(document_lengths(row.dims["tot"]), dim=2) for name in "qkv")
    found = [attention(*part, row.scalars["scale"], causal) for part in zip(*parts)]
    return torch.cat(found, dim=2)[0].transpose(0, 1)


@REFERENCES("mqa_spec")
def mqa_spec(row, t):
    d, heads = row.dims, row.steps[0].consts["heads"]
    tokens = d["rows"] // heads
    q = t["q"].view(d["bs"], tokens, heads, d["hd"]).transpose(1, 2)

    def bias(b, h, rows, columns):
        return columns <= rows + d["ctx"] - tokens
    out = attention(q, t["k"][:, None], t["v"][:, None], row.scalars["scale"], bias)
    return out.transpose(1, 2).reshape(t["o"].shape)


@REFERENCES("xent")
def xent(row, t):
    return torch.cat([functional.cross_entropy(z.to(F64), label.long(), reduction="none")
                      for z, label in zip(t["logit"].split(1024), t["label"].split(1024))])


@REFERENCES("rmsnorm_dx")
def rmsnorm_dx(row, t):
    dy, x, w, inv = f64(t, "dy", "x", "w", "inv")
    g, u = dy * w, inv[:, None]
    return (g - x * ((g * x).mean(dim=-1, keepdim=True) * u * u)) * u


@REFERENCES("group_norm")
def group_norm(row, t):
    d = row.dims
    x, gamma, beta = f64(t, "x", "gamma", "beta")
    y = functional.group_norm(x.view(d["nb"], d["grp"] * d["cg"], -1), d["grp"], gamma.flatten(), beta.flatten(),
                              row.scalars["eps"])
    return y.view(x.shape)


@REFERENCES("conv_silu")
def conv_silu(row, t):
    x, ker, bias = f64(t, "x", "ker", "bias")
    taps, length = ker.shape[0], x.shape[1]
    padded = functional.pad(x, (0, 0, taps - 1, 0))
    return functional.silu(bias + sum(padded[:, k:k + length] * ker[k] for k in range(taps)))


@REFERENCES("dwconv")
def dwconv(row, t):
    img, ker = f64(t, "img", "ker")
    y = functional.conv2d(img.permute(0, 3, 1, 2), ker.permute(2, 0, 1)[:, None], padding=1, groups=row.dims["ch"])
    return y.permute(0, 2, 3, 1)


@REFERENCES("max_pool")
def max_pool(row, t):
    return functional.max_pool2d(t["img"].to(F64).permute(0, 3, 1, 2), 3, 2, 1).permute(0, 2, 3, 1)


@REFERENCES("turn_cast")
def turn_cast(row, t):
    return t["x"].to(F64).transpose(1, 2)


@REFERENCES("prefix_sums")
def prefix_sums(row, t):
    return t["x"].to(F64).cumsum(dim=-1)


@REFERENCES("greedy")
def greedy(row, t):
    return t["logits"].to(F64).argmax(dim=-1).to(F64)


@REFERENCES("nearest")
def nearest(row, t):
    x, centre, length = f64(t, "x", "centre", "length")
    return (length - 2 * x @ centre.T).argmin(dim=-1).to(F64)


@REFERENCES("scatter_rows")
def scatter_rows(row, t):
    sums = torch.zeros(row.dims["rows"], row.dims["wide"], dtype=F64, device=t["x"].device)
    return sums.index_add_(0, t["at"].long(), t["x"].to(F64))


@REFERENCES("qk_norm")
def qk_norm(row, t):
    x, gain, co, si = f64(t, "x", "gain", "co", "si")
    x = x * torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + 1e-6) * gain
    lo, hi = x.split(row.dims["half"], dim=-1)
    c, s = co[:, None], si[:, None]
    return torch.cat((lo * c - hi * s, hi * c + lo * s), dim=-1)


@REFERENCES("log_probs")
def log_probs(row, t):
    return functional.log_softmax(t["x"].to(F64) / row.scalars["tau"], dim=-1)


@REFERENCES("colsum")
def colsum(row, t):
    return t["g"].to(F64).sum(dim=0)


@REFERENCES("transpose")
def transpose(row, t):
    return t["src"].to(F64).t()
