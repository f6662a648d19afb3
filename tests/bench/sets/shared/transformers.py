"""What several files of programs share: masked_attention, other_attention, blocks."""
import torch


HF = {"T": "f16"}
BF = {"T": "bf16"}


def up(x):
    return x if x.dtype in (torch.float32, torch.float64) else x.float()


def number(value):
    return lambda shape, t, d: value


def device():
    return "cuda" if torch.cuda.is_available() else "cpu"


def sizes(large, odd, small):
    return {"large": large, "odd": odd, "small": small}


def like(name, factor=1.0):
    return lambda shape, t, d: (torch.randn(shape, device=getattr(t, name).device) * factor).to(getattr(t, name).dtype)


def randn(factor=1.0, shift=0.0):
    return lambda shape, t, d: torch.randn(shape, device=device()) * factor + shift


def heads(x):
    return x.transpose(1, 2)


def root(name="D"):
    return lambda shape, t, d: d[name] ** -0.5


def lengths(shape, t, d):
    return torch.randint(d["S"] // 2, d["S"] + 1, shape, device=device(), dtype=torch.int32)
