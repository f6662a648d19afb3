"""What several files of programs share: sparse_matrices, irregular, selection, listed_attention."""
import sys

import torch
import torch.nn.functional as F


DEVICE = "cpu" if "--check" in sys.argv or not torch.cuda.is_available() else "cuda"


def normal(dtype):
    return lambda shape, t, d: torch.randn(shape, device=DEVICE).to(dtype)


def csr_rows(rows, edges, skew=1.5):
    """how many of `edges` each row has, some many more than others"""
    row = (torch.rand(edges, device=DEVICE) ** skew * rows).long().clamp(max=rows - 1)
    row = torch.randperm(rows, device=DEVICE)[row]
    return torch.bincount(row, minlength=rows)


def pointer(edges, skew=1.5):  # sets t.row, the row of each edge, as well
    def fill(shape, t, d):
        rows = shape[0] - 1
        n = csr_rows(rows, d[edges], skew)
        t.row = torch.repeat_interleave(torch.arange(rows, device=DEVICE), n)
        return F.pad(n.cumsum(0), (1, 0)).to(torch.int32)
    return fill


def columns(extent):  # ascending within a row
    def fill(shape, t, d):
        c = torch.randint(0, d[extent], shape, device=DEVICE)
        return ((t.row * d[extent] + c).sort()[0] % d[extent]).to(torch.int32)
    return fill


def below(extent):
    return lambda shape, t, d: torch.randint(0, d[extent], shape, device=DEVICE, dtype=torch.int32)


def rows1(sizes, name="R"):
    return {label: dict(one, **{name + "1": one[name] + 1}) for label, one in sizes.items()}
