"""What several files of programs share: norm_gradients, product_gradients, other_gradients, optimisers."""
import torch


BF = {"T": "bf16"}
HF = {"T": "f16"}


def up(x):
    return x if x.dtype in (torch.float32, torch.float64) else x.float()


def number(value):
    return lambda shape, t, d: value


def normal(factor=1.0, of="X"):
    return lambda shape, t, d: (torch.randn(shape, device=getattr(t, of).device) * factor).to(getattr(t, of).dtype)


COLUMNS = """
kernel columns(part: f32[S, D], W: out f32[D])
key bucket(S), D
tune BD = 32 | 64 | 128, BS = 8 | 16 | 32, threads = 128 | 256
grid d < ceildiv(D, BD)
{
  fragment p: f32[BS, BD], acc: f32[BD] = 0
  for s < ceildiv(S, BS) {
    p = part[s*BS +: BS, d*BD +: BD]
    parallel j < BD { acc[j] += sum[i < BS](p[i, j]) }
  }
  W[d*BD +: BD] = acc
}
"""
