"""Softmax and log-softmax of long rows: rows that a block can hold, and rows of any length; f32 and bf16."""
import torch
from sets.shared.operators import both

# ---- a row is held
SOFTMAX = """tile 1
kernel softmax<T: f32 | bf16>(X: T[N, D], Y: out T[N, D])
key bucket(N), D
tune rows = 1 | 2 | 4
grid r < ceildiv(N, rows)
{
  fragment x: f32[rows, D]
  x = X[r*rows +: rows, :]
  parallel i < rows, d < D { x[i, d] = exp(x[i, d] - max[k < D](x[i, k])) }
  parallel i < rows, d < D { x[i, d] /= sum[k < D](x[i, k]) }
  Y[r*rows +: rows, :] = x
}
"""

LOGSOFTMAX = """tile 1
kernel log_softmax<T: f32 | bf16>(X: T[N, D], Y: out T[N, D])
key bucket(N), D
tune rows = 1 | 2 | 4
grid r < ceildiv(N, rows)
{
  fragment x: f32[rows, D], lse: f32[rows]
  x = X[r*rows +: rows, :]
  parallel i < rows {
    let most = max[k < D](x[i, k])
    lse[i] = most + log(sum[k < D](exp(x[i, k] - most)))
  }
  parallel i < rows, d < D { x[i, d] -= lse[i] }
  Y[r*rows +: rows, :] = x
}
"""

# ---- a row is walked twice, by tiles: first its maximum and sum, then the result
SOFTMAX_LONG = """tile 1
kernel softmax_long<T: f32 | bf16>(X: T[N, D], Y: out T[N, D])
key bucket(N), bucket(D)
tune BD = 2048 | 4096 | 8192
grid n < N
{
  fragment x: f32[BD], most: f32[1] = -inf, total: f32[1] = 0
  for k < ceildiv(D, BD) {
    x = X[n, k*BD +: BD] pad -inf
    parallel i < 1 {
      let m = max(most[i], max[j < BD](x[j]))
      total[i] = total[i] * exp(most[i] - m) + sum[j < BD](exp(x[j] - m))
      most[i] = m
    }
  }
  for k < ceildiv(D, BD) {
    x = X[n, k*BD +: BD]
    parallel j < BD { x[j] = exp(x[j] - most[0]) / total[0] }
    Y[n, k*BD +: BD] = x
  }
}
"""

LOGSOFTMAX_LONG = """tile 1
kernel log_softmax_long<T: f32 | bf16>(X: T[N, D], Y: out T[N, D])
key bucket(N), bucket(D)
tune auto BD
grid n < N
{
  fragment x: f32[BD], most: f32[1] = -inf, total: f32[1] = 0
  for k < ceildiv(D, BD) {
    x = X[n, k*BD +: BD] pad -inf
    parallel i < 1 {
      let m = max(most[i], max[j < BD](x[j]))
      total[i] = total[i] * exp(most[i] - m) + sum[j < BD](exp(x[j] - m))
      most[i] = m
    }
  }
  let lse = most[0] + log(total[0])
  for k < ceildiv(D, BD) {
    x = X[n, k*BD +: BD]
    parallel j < BD { x[j] -= lse }
    Y[n, k*BD +: BD] = x
  }
}
"""


def softmax(t, d):
    return torch.softmax(t.X, -1)


def log_softmax(t, d):
    return torch.log_softmax(t.X, -1)


HELD = {"large": {"N": 4096, "D": 16384}, "odd": {"N": 1021, "D": 5003}, "small": {"N": 5, "D": 203}}
LONG = {"large": {"N": 512, "D": 131072}, "odd": {"N": 131, "D": 50257}, "small": {"N": 3, "D": 9001}}

CASES = [
    *both("softmax", SOFTMAX, HELD, softmax),
    *both("log_softmax", LOGSOFTMAX, HELD, log_softmax),
    *both("softmax_long", SOFTMAX_LONG, LONG, softmax),
    *both("log_softmax_long", LOGSOFTMAX_LONG, LONG, log_softmax),
]
