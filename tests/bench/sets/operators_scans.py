"""Cumulative sums and products of long rows; f32 and bf16."""
import torch
from sets.shared.operators import B16, DEV, F32, near_one
from unseen import Case

CUMSUM = """tile 1
kernel cumsum<T: f32 | bf16>(X: T[R, N], Y: out T[R, N])
key bucket(R), bucket(N)
tune rows = 1 | 2 | 4, BN = 1024 | 2048 | 4096
where rows * BN <= 4096
grid r < ceildiv(R, rows)
{
  fragment x: f32[rows, BN], y: f32[rows, BN], carry: f32[rows] = 0
  for n < ceildiv(N, BN) {
    x = X[r*rows +: rows, n*BN +: BN]
    parallel i < rows, j < BN { y[i, j] = carry[i] + sum[k <= j](x[i, k]) }
    parallel i < rows { carry[i] += sum[j < BN](x[i, j]) }
    Y[r*rows +: rows, n*BN +: BN] = y
  }
}
"""

# ---- Y[j] is the sum of what lies before j
EXCLUSIVE = """tile 1
kernel cumsum_exclusive(X: f32[R, N], Y: out f32[R, N])
key bucket(R), bucket(N)
tune BN = 1024 | 2048 | 4096
grid r < R
{
  fragment x: f32[BN], y: f32[BN], carry: f32[1] = 0
  for n < ceildiv(N, BN) {
    x = X[r, n*BN +: BN]
    parallel j < BN { y[j] = carry[0] + sum[k < j](x[k]) }
    parallel i < 1 { carry[i] += sum[j < BN](x[j]) }
    Y[r, n*BN +: BN] = y
  }
}
"""

# ---- from the end: rows are read and written the other way round
REVERSE = """tile 1
kernel cumsum_reverse(X: f32[R, N], Y: out f32[R, N])
key bucket(R), bucket(N)
tune BN = 1024 | 2048 | 4096
grid r < R
{
  fragment x: f32[BN], y: f32[BN], carry: f32[1] = 0
  for n < ceildiv(N, BN) {
    parallel j < BN { x[j] = X[r, N - 1 - (n*BN + j)] }
    parallel j < BN { y[j] = carry[0] + sum[k <= j](x[k]) }
    parallel i < 1 { carry[i] += sum[j < BN](x[j]) }
    parallel j < BN { Y[r, N - 1 - (n*BN + j)] = y[j] }
  }
}
"""

# ---- only elements that a mask allows count
MASKED = """tile 1
kernel cumsum_masked(X: f32[R, N], mask: u8[R, N], Y: out f32[R, N])
key bucket(R), bucket(N)
tune BN = 1024 | 2048 | 4096
grid r < R
{
  fragment x: f32[BN], m: u8[BN], y: f32[BN], carry: f32[1] = 0
  for n < ceildiv(N, BN) {
    x = X[r, n*BN +: BN]
    m = mask[r, n*BN +: BN]
    parallel j < BN { x[j] = m[j] != 0 ? x[j] : 0 }
    parallel j < BN { y[j] = carry[0] + sum[k <= j](x[k]) }
    parallel i < 1 { carry[i] += sum[j < BN](x[j]) }
    Y[r, n*BN +: BN] = y
  }
}
"""

# ---- products that go before, as the sums
CUMPROD_REDUCED = """tile 1
kernel cumprod_reduced<T: f32 | bf16>(X: T[R, N], Y: out T[R, N])
key bucket(R), bucket(N)
tune rows = 1 | 2 | 4, BN = 1024 | 2048 | 4096
where rows * BN <= 4096
grid r < ceildiv(R, rows)
{
  fragment x: f32[rows, BN], y: f32[rows, BN], carry: f32[rows] = 1
  for n < ceildiv(N, BN) {
    x = X[r*rows +: rows, n*BN +: BN] pad 1
    parallel i < rows, j < BN { y[i, j] = carry[i] * prod[k <= j](x[i, k]) }
    parallel i < rows { carry[i] *= prod[j < BN](x[i, j]) }
    Y[r*rows +: rows, n*BN +: BN] = y
  }
}
"""

# ---- without prefix products: steps of doubling length over a tile, then what the tiles before make of it
CUMPROD = """tile 1
kernel cumprod(X: f32[R, N], Y: out f32[R, N])
key bucket(R), bucket(N)
tune BN = 1024 | 2048 | 4096
grid r < R
{
  fragment x: f32[BN], carry: f32[1] = 1
  for n < ceildiv(N, BN) {
    x = X[r, n*BN +: BN] pad 1
    for s < 12 {
      let h = 1 << s
      if h < BN {
        parallel j < BN { x[j] = j >= h ? x[j] * x[j - h] : x[j] }
      }
    }
    parallel j < BN { x[j] *= carry[0] }
    parallel i < 1 { carry[i] = x[BN - 1] }
    Y[r, n*BN +: BN] = x
  }
}
"""

# ---- the same by sums of logarithms, with signs counted apart
CUMPROD_LOG = """tile 1
kernel cumprod_log(X: f32[R, N], Y: out f32[R, N])
key bucket(R), bucket(N)
tune BN = 1024 | 2048 | 4096
grid r < R
{
  fragment x: f32[BN], y: f32[BN], sign: f32[BN], carry: f32[1] = 0, flips: f32[1] = 0
  for n < ceildiv(N, BN) {
    x = X[r, n*BN +: BN] pad 1
    parallel j < BN { sign[j] = x[j] < 0 ? 1 : 0 }
    parallel j < BN { x[j] = log2(abs(x[j])) }
    parallel j < BN {
      let s = flips[0] + sum[k <= j](sign[k])
      y[j] = exp2(carry[0] + sum[k <= j](x[k])) * (i32(s) % 2 == 0 ? 1.0 : -1.0)
    }
    parallel i < 1 { carry[i] += sum[j < BN](x[j]); flips[i] += sum[j < BN](sign[j]) }
    Y[r, n*BN +: BN] = y
  }
}
"""

# ---- down the rows of a matrix each: [B, M, N] over M
MIDDLE = """tile 1
kernel cumsum_middle<T: f32 | bf16>(X: T[B, M, N], Y: out T[B, M, N])
key bucket(B), bucket(M), bucket(N)
tune BM = 16 | 32 | 64, BN = 32 | 64 | 128
where BM * BN <= 4096
grid b < B, n < ceildiv(N, BN)
{
  fragment x: f32[BM, BN], y: f32[BM, BN], carry: f32[BN] = 0
  for m < ceildiv(M, BM) {
    x = X[b, m*BM +: BM, n*BN +: BN]
    parallel i < BM, j < BN { y[i, j] = carry[j] + sum[k <= i](x[k, j]) }
    parallel j < BN { carry[j] += sum[i < BM](x[i, j]) }
    Y[b, m*BM +: BM, n*BN +: BN] = y
  }
}
"""

SHAPES = {"large": {"R": 2048, "N": 32768}, "odd": {"R": 131, "N": 20011}, "small": {"R": 3, "N": 5003}}
MATRICES = {"large": {"B": 16, "M": 2048, "N": 2048}, "odd": {"B": 3, "M": 1023, "N": 517},
            "small": {"B": 2, "M": 77, "N": 35}}


def flags(shape, t, d):
    return torch.randint(0, 2, shape, device=DEV, dtype=torch.uint8)


def exclusive(t, d):
    zeros = torch.zeros(t.X.shape[0], 1, device=t.X.device, dtype=t.X.dtype)
    return torch.cat((zeros, torch.cumsum(t.X[:, :-1], 1)), 1)


CASES = [
    Case("cumsum_f32", CUMSUM, SHAPES, lambda t, d: torch.cumsum(t.X, 1), types=F32),
    Case("cumsum_bf16", CUMSUM, SHAPES, lambda t, d: torch.cumsum(t.X, 1), types=B16),
    Case("cumsum_exclusive_f32", EXCLUSIVE, SHAPES, exclusive),
    Case("cumsum_reverse_f32", REVERSE, SHAPES, lambda t, d: torch.cumsum(t.X.flip(1), 1).flip(1)),
    Case("cumsum_masked_f32", MASKED, SHAPES, lambda t, d: torch.cumsum(t.X * t.mask, 1), fills={"mask": flags}),
    Case("cumprod_f32", CUMPROD, SHAPES, lambda t, d: torch.cumprod(t.X, 1), fills={"X": near_one}),
    Case("cumprod_reduced_f32", CUMPROD_REDUCED, SHAPES, lambda t, d: torch.cumprod(t.X, 1), types=F32,
         fills={"X": near_one}),
    Case("cumprod_log_f32", CUMPROD_LOG, SHAPES, lambda t, d: torch.cumprod(t.X, 1), fills={"X": near_one}),
    Case("cumsum_middle_f32", MIDDLE, MATRICES, lambda t, d: torch.cumsum(t.X, 1), types=F32),
]
