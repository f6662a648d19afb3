"""Reductions over the middle axis of [B, M, N] and over the last one; f32 and bf16."""
import torch
from sets.shared.operators import B16, F32, near_one
from unseen import Case

# ---- over the middle axis: a block walks down some columns
MIDDLE = """tile 1
kernel {name}_middle<T: f32 | bf16>(X: T[B, M, N], Y: out T[B, N])
key bucket(B), bucket(M), N
tune BM = 8 | 16 | 32 | 64, BN = 32 | 64 | 128 | 256
where BM * BN <= 8192
grid b < B, n < ceildiv(N, BN)
{{
  fragment x: f32[BM, BN], y: f32[BN] = {start}
  for m < ceildiv(M, BM) {{
    x = X[b, m*BM +: BM, n*BN +: BN] pad {start}
    parallel j < BN {{ y[j] = {step} }}
  }}
  {end}
  Y[b, n*BN +: BN] = y
}}
"""

# ---- over the last axis: some rows a block
LAST = """tile 1
kernel {name}_last<T: f32 | bf16>(X: T[B, M, N], Y: out T[B, M])
key bucket(B), bucket(M), bucket(N)
tune rows = 1 | 2 | 4 | 8, BN = 512 | 1024 | 2048 | 4096
where rows * BN <= 8192
grid b < B, m < ceildiv(M, rows)
{{
  fragment x: f32[rows, BN], y: f32[rows] = {start}
  for n < ceildiv(N, BN) {{
    x = X[b, m*rows +: rows, n*BN +: BN] pad {start}
    parallel i < rows {{ y[i] = {step} }}
  }}
  {end}
  Y[b, m*rows +: rows] = y
}}
"""

MEAN = """tile 1
kernel mean_last<T: f32 | bf16>(X: T[R, N], Y: out T[R])
key bucket(R), bucket(N)
tune auto rows, BN
where rows * BN <= 8192
grid r < ceildiv(R, rows)
{
  fragment x: f32[rows, BN], y: f32[rows] = 0
  for n < ceildiv(N, BN) {
    x = X[r*rows +: rows, n*BN +: BN]
    parallel i < rows { y[i] += sum[j < BN](x[i, j]) }
  }
  parallel i < rows { y[i] /= N }
  Y[r*rows +: rows] = y
}
"""

# ---- where the first of the largest elements stands
ARGMAX_MIDDLE = """tile 1
kernel argmax_middle(X: f32[B, M, N], Y: out i64[B, N])
key bucket(B), bucket(M), N
tune BM = 8 | 16 | 32 | 64, BN = 32 | 64 | 128 | 256
where BM * BN <= 8192
grid b < B, n < ceildiv(N, BN)
{
  fragment x: f32[BM, BN], most: f32[BN] = -inf, place: i64[BN] = 0
  for m < ceildiv(M, BM) {
    x = X[b, m*BM +: BM, n*BN +: BN] pad -inf
    parallel j < BN {
      let here = max[i < BM](x[i, j])
      place[j] = here > most[j] ? m*BM + argmax[i < BM](x[i, j]) : place[j]
      most[j] = max(most[j], here)
    }
  }
  Y[b, n*BN +: BN] = place
}
"""

ARGMIN_LAST = """tile 1
kernel argmin_last(X: f32[R, N], Y: out i64[R])
key bucket(R), bucket(N)
tune rows = 1 | 2 | 4, BN = 1024 | 2048 | 4096
where rows * BN <= 8192
grid r < ceildiv(R, rows)
{
  fragment x: f32[rows, BN], least: f32[rows] = inf, place: i64[rows] = 0
  for n < ceildiv(N, BN) {
    x = X[r*rows +: rows, n*BN +: BN] pad inf
    parallel i < rows {
      let here = min[j < BN](x[i, j])
      place[i] = here < least[i] ? n*BN + argmin[j < BN](x[i, j]) : place[i]
      least[i] = min(least[i], here)
    }
  }
  Y[r*rows +: rows] = place
}
"""

# ---- products without `prod`: rows one after the other, a column each iteration
PROD_MIDDLE = """tile 1
kernel prod_middle<T: f32 | bf16>(X: T[B, M, N], Y: out T[B, N])
key bucket(B), bucket(M), N
tune BN = 64 | 128 | 256
grid b < B, n < ceildiv(N, BN)
{
  fragment y: f32[BN] = 1
  for m < M {
    parallel j < BN { y[j] *= X[b, m, n*BN + j] }
  }
  Y[b, n*BN +: BN] = y
}
"""

# ---- over the last axis: lanes multiply what they meet, then halves are multiplied with each other
PROD_LAST = """tile 1
kernel prod_last<T: f32 | bf16>(X: T[R, N], Y: out T[R])
key bucket(R), bucket(N)
tune BN = 512 | 1024 | 2048
grid r < R
{
  fragment x: f32[BN], y: f32[BN] = 1
  for n < ceildiv(N, BN) {
    x = X[r, n*BN +: BN] pad 1
    parallel j < BN { y[j] *= x[j] }
  }
  for s < 11 {
    let h = 1 << s
    if h < BN {
      parallel j < BN { y[j] *= y[j ^ h] }
    }
  }
  Y[r +: 1] = y[0 +: 1]
}
"""

# ---- by `prod`, tile after tile
PROD_REDUCED_LAST = """tile 1
kernel prod_reduced_last<T: f32 | bf16>(X: T[R, N], Y: out T[R])
key bucket(R), bucket(N)
tune rows = 1 | 2 | 4 | 8, BN = 512 | 1024 | 2048 | 4096
where rows * BN <= 8192
grid r < ceildiv(R, rows)
{
  fragment x: f32[rows, BN], y: f32[rows] = 1
  for n < ceildiv(N, BN) {
    x = X[r*rows +: rows, n*BN +: BN] pad 1
    parallel i < rows { y[i] *= prod[j < BN](x[i, j]) }
  }
  Y[r*rows +: rows] = y
}
"""

MID = {"large": {"B": 16, "M": 2048, "N": 2047}, "odd": {"B": 3, "M": 511, "N": 257},
       "small": {"B": 2, "M": 77, "N": 35}}
CUBE = {"large": {"B": 16, "M": 2048, "N": 2048}, "odd": {"B": 3, "M": 511, "N": 2051},
        "small": {"B": 2, "M": 7, "N": 1035}}
FLAT = {"large": {"R": 32768, "N": 2048}, "odd": {"R": 1021, "N": 4099}, "small": {"R": 5, "N": 1203}}

SUM = MIDDLE.format(name="sum", start="0", step="y[j] + sum[i < BM](x[i, j])", end="")
MAX = MIDDLE.format(name="max", start="-inf", step="max(y[j], max[i < BM](x[i, j]))", end="")
MEAN_MIDDLE = MIDDLE.format(name="mean", start="0", step="y[j] + sum[i < BM](x[i, j])",
                            end="parallel j < BN { y[j] /= M }")
PROD_REDUCED_MIDDLE = MIDDLE.format(name="prod_reduced", start="1", step="y[j] * prod[i < BM](x[i, j])", end="")

CASES = [
    Case("sum_middle_f32", SUM, MID, lambda t, d: t.X.sum(1), types=F32),
    Case("sum_middle_bf16", SUM, MID, lambda t, d: t.X.sum(1), types=B16),
    Case("mean_middle_f32", MEAN_MIDDLE, MID, lambda t, d: t.X.mean(1), types=F32),
    Case("max_middle_f32", MAX, MID, lambda t, d: torch.amax(t.X, 1), types=F32),
    Case("sum_last_f32", LAST.format(name="sum", start="0", step="y[i] + sum[j < BN](x[i, j])", end=""), CUBE,
         lambda t, d: t.X.sum(2), types=F32),
    Case("min_last_f32", LAST.format(name="min", start="inf", step="min(y[i], min[j < BN](x[i, j]))", end=""), CUBE,
         lambda t, d: torch.amin(t.X, 2), types=F32),
    Case("mean_last_f32", MEAN, FLAT, lambda t, d: t.X.mean(-1), types=F32),
    Case("mean_last_bf16", MEAN, FLAT, lambda t, d: t.X.mean(-1), types=B16),
    Case("argmax_middle_f32", ARGMAX_MIDDLE, MID, lambda t, d: t.X.argmax(1)),
    Case("argmin_last_f32", ARGMIN_LAST, FLAT, lambda t, d: t.X.argmin(-1)),
    Case("prod_middle_f32", PROD_MIDDLE, MID, lambda t, d: t.X.prod(1), types=F32, fills={"X": near_one}),
    Case("prod_last_f32", PROD_LAST, FLAT, lambda t, d: t.X.prod(-1), types=F32, fills={"X": near_one}),
    Case("prod_reduced_middle_f32", PROD_REDUCED_MIDDLE, MID, lambda t, d: t.X.prod(1), types=F32,
         fills={"X": near_one}),
    Case("prod_reduced_last_f32", PROD_REDUCED_LAST, FLAT, lambda t, d: t.X.prod(-1), types=F32, fills={"X": near_one}),
]
