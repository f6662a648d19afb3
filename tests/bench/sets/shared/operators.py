"""What the programs of operators_*.py are made of, filled and compared with."""
import sys

import torch
from unseen import Case

DEV = "cpu" if "--check" in sys.argv or not torch.cuda.is_available() else "cuda"
TORCH = {"f32": torch.float32, "bf16": torch.bfloat16}
F32, B16 = {"T": "f32"}, {"T": "bf16"}
FLAT = {"large": {"N": 1 << 26}, "odd": {"N": 4194301}, "small": {"N": 9001}}


def both(name, text, shapes, function, fills=lambda dtype: {}, **more):
    """The case in f32 and in bf16; fills: torch's type -> what is filled otherwise than with normal numbers."""
    return [Case(f"{name}_{short}", text, shapes, function, types={"T": short}, fills=fills(TORCH[short]), **more)
            for short in ("f32", "bf16")]


def shapes(of, large, odd, small):
    return {"large": of(*large), "odd": of(*odd), "small": of(*small)}


def image(n, c, h, w, o):
    return {"N": n, "C": c, "H": h, "W": w, "O": o}


def near_one(shape, t, d):
    return torch.rand(shape, device=DEV) * 0.02 + 0.99
