"""What the programs of chains_*.py are made of, filled and compared with."""
import sys

import torch
from unseen import Case

DEV = "cpu" if "--check" in sys.argv or not torch.cuda.is_available() else "cuda"
DT = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}
AUTO_CONV = "where BO <= 128\ntune auto BO, BP, BK, stages"


def cases(name, text, fn, shapes, shapes32=None, t16="bf16", fills=None, plain=None, **more):
    """The case in 16 bits, and one in f32 where there are shapes for it. fills: parameter: (shape, dims) -> tensor or
    scalar, cast to the case's type; weights W and filters F leave variances as they are unless told otherwise. plain:
    the same, of what has a type of its own."""
    made = []
    for kind, of in ((t16, shapes), ("f32", shapes32)):
        if of is not None:
            given = {key: lambda s, t, d, make=make, kind=kind: make(s, d).to(DT[kind]) if s != () else make(s, d)
                     for key, make in {"W": linear, "F": linear, **(fills or {})}.items()}
            given.update({key: lambda s, t, d, make=make: make(s, d) for key, make in (plain or {}).items()})
            made.append(Case(name + "_f32" * (kind == "f32"), text, of, fn, types={"T": kind}, fills=given, **more))
    return made


def linear(s, d):
    return torch.randn(s, device=DEV) * s[-1] ** -0.5


def value(v):
    return lambda s, d: v


def uniform(low, high):
    return lambda s, d: torch.rand(s, device=DEV) * (high - low) + low


def dims(names, large, odd, small):
    return {label: dict(zip(names.split(), of)) for label, of in (("large", large), ("odd", odd), ("small", small))}


def mnk(large, odd, small=(13, 21, 17)):
    return dims("M N K", large, odd, small)


def images(large, odd, small=(2, 3, 9, 11, 5), size=lambda h: h - 2, pool=1, **further):
    """N, C, H, W, O and what follows: K, P and Q, and further ones as functions of these."""
    made = dims("N C H W O", large, odd, small)
    for of in made.values():
        of.update(K=9 * of["C"], P=size(of["H"]) // pool, Q=size(of["W"]) // pool)
        of.update({name: function(of) for name, function in further.items()})
    return made


def volumes(large, odd, small=(2, 3, 5, 7, 6, 5), grow=-2, pool=1):
    """N, C, D, H, W, O and what follows: K, and L, P, Q of the result."""
    made = dims("N C D H W O", large, odd, small)
    for of in made.values():
        of.update({"K": 27 * of["C"], **{name: (of[size] + grow) // pool for name, size in zip("LPQ", "DHW")}})
    return made


def filters(t, d):
    """F, of which a row is a channel, as torch has it."""
    return t.F.view(d["O"], d["C"], 3, 3)


def wide(x):
    return x.to(torch.promote_types(x.dtype, torch.float32))
