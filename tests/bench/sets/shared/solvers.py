"""What several files of programs share: factorisations, small_matrices, transforms, stencils, recurrences, dynamic."""
import torch


HF = {"T": "f16"}


def up(x):
    return x if x.dtype in (torch.float32, torch.float64) else x.float()


def device():
    return "cuda" if torch.cuda.is_available() else "cpu"


def sizes(large, odd, small):
    return {"large": large, "odd": odd, "small": small}
