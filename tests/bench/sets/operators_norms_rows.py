"""Normalisations of rows and of whole tensors, and a layer norm of the last three axes; f32."""
import torch
import torch.nn.functional as F
from sets.shared.operators import F32, FLAT
from unseen import Case

# ---- x / the norm of the whole tensor
FROBENIUS = """tile 1
kernel squares<T: f32 | bf16>(X: T[N], sums: out f32[P])
key bucket(N), P
tune BN = 1024 | 2048 | 4096
grid p < P
{
  fragment x: f32[BN], total: f32[1] = 0
  let share = ceildiv(ceildiv(N, P), 4096) * 4096
  for n < share / BN {
    x = X[p*share + n*BN +: BN]
    parallel i < 1 { total[i] += sum[j < BN](x[j] * x[j]) }
  }
  sums[p +: 1] = total
}

kernel divide<T: f32 | bf16>(X: T[N], sums: f32[P], Y: out T[N])
key bucket(N), P
tune BN = 1024 | 2048 | 4096
grid n < ceildiv(N, BN)
{
  fragment x: f32[BN], s: f32[P]
  s = sums
  let factor = rsqrt(sum[p < P](s[p]))
  x = X[n*BN +: BN]
  parallel j < BN { x[j] *= factor }
  Y[n*BN +: BN] = x
}

program frobenius<T: f32 | bf16>(X: T[N], Y: out T[N])
key bucket(N)
tune parts = 256 | 512 | 1024
{
  temp sums: f32[parts]
  squares(X, sums)
  divide(X, sums, Y)
}
"""

# ---- rows by the mean of their magnitudes, and by their euclidean norm
L1 = """tile 1
kernel l1norm<T: f32 | bf16>(X: T[N, D], Y: out T[N, D])
key bucket(N), bucket(D)
tune BD = 1024 | 2048 | 4096 | 8192
grid n < N
{
  fragment x: f32[BD], total: f32[1] = 0
  for k < ceildiv(D, BD) {
    x = X[n, k*BD +: BD]
    parallel i < 1 { total[i] += sum[j < BD](abs(x[j])) }
  }
  let factor = D / total[0]
  for k < ceildiv(D, BD) {
    x = X[n, k*BD +: BD]
    parallel j < BD { x[j] *= factor }
    Y[n, k*BD +: BD] = x
  }
}
"""

L2 = """tile 1
kernel l2norm<T: f32 | bf16>(X: T[N, D], Y: out T[N, D])
key bucket(N), D
tune rows = 1 | 2 | 4
grid n < ceildiv(N, rows)
{
  fragment x: f32[rows, D]
  x = X[n*rows +: rows, :]
  parallel i < rows, d < D { x[i, d] /= max(sqrt(sum[k < D](x[i, k] * x[i, k])), 1e-12) }
  Y[n*rows +: rows, :] = x
}
"""

# ---- layernorm of the last three axes, which are one row of millions: sums in parts, then what normalises
LAYERNORM = """tile 1
kernel row_parts<T: f32 | bf16>(X: T[N, E], s1: out f32[N, P], s2: out f32[N, P])
key bucket(N), bucket(E), P
tune BE = 1024 | 2048 | 4096
grid n < N, p < P
{
  fragment x: f32[BE], a: f32[1] = 0, b: f32[1] = 0
  let share = ceildiv(ceildiv(E, P), 4096) * 4096
  for k < share / BE {
    x = X[n, p*share + k*BE +: BE]
    parallel i < 1 {
      a[i] += sum[j < BE](x[j])
      b[i] += sum[j < BE](x[j] * x[j])
    }
  }
  s1[n, p +: 1] = a
  s2[n, p +: 1] = b
}

kernel row_normalise<T: f32 | bf16>(
    X: T[N, E], s1: f32[N, P], s2: f32[N, P], W: f32[E], B: f32[E], Y: out T[N, E], eps: f32)
key bucket(N), bucket(E), P
tune BE = 1024 | 2048 | 4096
grid k < ceildiv(E, BE), n < N
{
  fragment x: f32[BE]
  let mean = sum[p < P](s1[n, p]) / E
  let factor = rsqrt(sum[p < P](s2[n, p]) / E - mean * mean + eps)
  x = X[n, k*BE +: BE]
  parallel j < BE { x[j] = (x[j] - mean) * factor * W[k*BE + j] + B[k*BE + j] }
  Y[n, k*BE +: BE] = x
}

program layernorm3<T: f32 | bf16>(X: T[N, E], W: f32[E], B: f32[E], Y: out T[N, E], eps: f32)
key bucket(N), bucket(E)
tune parts = 16 | 64 | 256
{
  temp s1: f32[N, parts], s2: f32[N, parts]
  row_parts(X, s1, s2)
  row_normalise(X, s1, s2, W, B, Y, eps)
}
"""


def layernorm(t, d):
    shape = (d["C"], d["H"], d["W"])
    return F.layer_norm(t.X.view(-1, *shape), shape, t.W.view(shape), t.B.view(shape), 1e-5)


def last3(n, c, h, w):
    return {"N": n, "E": c * h * w, "C": c, "H": h, "W": w}


ROWS = {"large": {"N": 4096, "D": 16384}, "odd": {"N": 513, "D": 5003}, "small": {"N": 5, "D": 1203}}
LAST3 = {"large": last3(16, 64, 256, 256), "odd": last3(3, 13, 61, 67), "small": last3(2, 3, 17, 19)}

CASES = [
    Case("frobenius_f32", FROBENIUS, FLAT, lambda t, d: t.X / torch.linalg.vector_norm(t.X), kernel="frobenius",
         types=F32),
    Case("l1_rows_f32", L1, ROWS, lambda t, d: t.X / torch.mean(torch.abs(t.X), dim=1, keepdim=True), types=F32),
    Case("l2_rows_f32", L2, ROWS, lambda t, d: t.X / torch.linalg.vector_norm(t.X, dim=1, keepdim=True), types=F32),
    Case("layernorm_3_f32", LAYERNORM, LAST3, layernorm, kernel="layernorm3", types=F32,
         fills={"eps": lambda s, t, d: 1e-5}),
]
