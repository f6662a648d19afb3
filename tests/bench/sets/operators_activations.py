"""Activations of whole tensors in f32, the usual ones in bf16 as well."""
import torch
import torch.nn.functional as F
from sets.shared.operators import FLAT
from unseen import Case

TEXT = """tile 1
kernel {name}<T: f32 | bf16>(X: T[N], Y: out T[N])
key bucket(N)
tune BN = 1024 | 2048 | 4096 | 8192
grid b < ceildiv(N, BN)
{{
  fragment x: f32[BN]
  x = X[b*BN +: BN]
  parallel i < BN {{ x[i] = {of} }}
  Y[b*BN +: BN] = x
}}
"""


def case(name, of, function, *types):
    text = TEXT.format(name=name, of=of)
    return [Case(f"{name}_{short}", text, FLAT, lambda t, d: function(t.X), types={"T": short})
            for short in types or ("f32",)]


CASES = [
    *case("relu", "max(x[i], 0)", F.relu),
    *case("leaky_relu", "x[i] > 0 ? x[i] : 0.01 * x[i]", F.leaky_relu),
    *case("sigmoid", "rcp(1 + exp(-x[i]))", torch.sigmoid),
    *case("tanh_", "tanh(x[i])", torch.tanh),
    *case("swish", "x[i] * rcp(1 + exp(-x[i]))", F.silu, "f32", "bf16"),
    *case("gelu", "0.5 * x[i] * (1 + erf(x[i] * 0.70710678))", F.gelu, "f32", "bf16"),
    *case("gelu_tanh", "0.5 * x[i] * (1 + tanh(0.79788456 * (x[i] + 0.044715 * x[i] * x[i] * x[i])))",
          lambda x: F.gelu(x, approximate="tanh")),
    *case("selu", "1.050700987 * (x[i] > 0 ? x[i] : 1.673263242 * (exp(x[i]) - 1))", F.selu),
    *case("hardsigmoid", "clamp(x[i] / 6 + 0.5, 0, 1)", F.hardsigmoid),
    *case("softplus", "max(x[i], 0) + log(1 + exp(-abs(x[i])))", F.softplus),
    *case("softsign", "x[i] / (1 + abs(x[i]))", F.softsign),
    *case("elu", "x[i] > 0 ? x[i] : exp(x[i]) - 1", F.elu),
    *case("hardtanh", "clamp(x[i], -1, 1)", F.hardtanh),
    *case("mish", "x[i] * tanh(max(x[i], 0) + log(1 + exp(-abs(x[i]))))", F.mish, "f32", "bf16"),
]
