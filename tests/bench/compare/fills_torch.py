"""What `fills` of a row may name, alone or with arguments: functions (backend, shape, ...) -> tensor, which is then
converted to the parameter's type. The backend has a device and a generator."""
import torch

from .registry import Registry
from .rows_further_attention import document_lengths

FILLS = Registry()


def normal(backend, shape):
    return torch.randn(shape, dtype=torch.float32, device=backend.device, generator=backend.generator)


@FILLS("unit")
def unit(backend, shape):
    """So that a product along the last axis has variance 1."""
    return normal(backend, shape).div_(shape[-1] ** 0.5)


@FILLS("unit columns")
def unit_columns(backend, shape):
    """So that a product along the first axis has variance 1."""
    return normal(backend, shape).div_(shape[0] ** 0.5)


@FILLS("positive")
def positive(backend, shape, factor):
    return (normal(backend, shape).abs_() + 0.5) * factor


@FILLS("scale")
def scale(backend, shape):
    """As quantised weights are scaled."""
    return positive(backend, shape, 1 / 64)


@FILLS("near one")
def near_one(backend, shape):
    return 1 + 0.1 * normal(backend, shape)


@FILLS("between")
def between(backend, shape, low, high):
    """Integers from `low` to below `high`."""
    return torch.randint(low, high, shape, device=backend.device, generator=backend.generator)


@FILLS("slopes")
def slopes(backend, shape):
    """As ALiBi has them: from 2^(-8 / heads) to 2^-8."""
    return torch.exp2(-8 * torch.arange(1, shape[0] + 1, device=backend.device) / shape[0])


@FILLS("angles")
def angles(backend, shape, function):
    """Cosines or sines of rotary embeddings, [token, pair]."""
    tokens, pairs = (torch.arange(count, device=backend.device, dtype=torch.float64) for count in shape)
    return getattr(torch, function)(tokens[:, None] * 10000.0 ** (-pairs / shape[1]))


@FILLS("document numbers")
def document_numbers(backend, shape):
    lengths = torch.tensor(document_lengths(shape[0]))
    return torch.repeat_interleave(torch.arange(len(lengths)), lengths).to(backend.device)


@FILLS("document starts")
def document_starts(backend, shape):
    lengths = torch.tensor(document_lengths(shape[0]))
    return torch.repeat_interleave(lengths.cumsum(0) - lengths, lengths).to(backend.device)
