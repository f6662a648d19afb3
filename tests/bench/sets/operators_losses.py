"""Losses: one number of whole tensors. Parts of the sum first, then their sum, as one program."""
import torch
import torch.nn.functional as F
from sets.shared.operators import B16, DEV, F32, FLAT
from unseen import Case

WHOLE = """
kernel whole(sums: f32[P], Y: out f32[1], scale: f32)
key bucket(P)
tune BP = 256 | 1024
grid b < 1
{
  fragment x: f32[BP], total: f32[1] = 0
  for p < ceildiv(P, BP) {
    x = sums[p*BP +: BP]
    parallel i < 1 { total[i] += sum[j < BP](x[j]) }
  }
  parallel i < 1 { Y[i] = total[i] * scale }
}
"""

# ---- pairs of elements: the difference decides
PAIRS = """tile 1
kernel part<T: f32 | bf16>(X: T[N], Z: T[N], sums: out f32[P])
key bucket(N), P
tune BN = 1024 | 2048 | 4096
grid p < P
{{
  fragment x: f32[BN], z: f32[BN], total: f32[1] = 0
  let share = ceildiv(ceildiv(N, P), 4096) * 4096
  for n < share / BN {{
    x = X[p*share + n*BN +: BN]
    z = Z[p*share + n*BN +: BN]
    parallel i < 1 {{ total[i] += sum[j < BN]({of}) }}
  }}
  sums[p +: 1] = total
}}
""" + WHOLE.replace("{", "{{").replace("}", "}}") + """
program {name}<T: f32 | bf16>(X: T[N], Z: T[N], Y: out f32[1])
key bucket(N)
tune parts = 256 | 512 | 1024 | 2048
{{
  temp sums: f32[parts]
  part(X, Z, sums)
  whole(sums, Y, {over})
}}
"""

# ---- mean of logsumexp(x) - x[target]; a row is walked once
CROSS = """tile 1
kernel row_losses<T: f32 | bf16>(X: T[N, V], target: i64[N], loss: out f32[N])
key bucket(N), bucket(V)
tune BV = 1024 | 2048 | 4096
grid n < N
{
  fragment x: f32[BV], most: f32[1] = -inf, total: f32[1] = 0
  for v < ceildiv(V, BV) {
    x = X[n, v*BV +: BV] pad -inf
    parallel i < 1 {
      let m = max(most[i], max[j < BV](x[j]))
      total[i] = total[i] * exp(most[i] - m) + sum[j < BV](exp(x[j] - m))
      most[i] = m
    }
  }
  parallel i < 1 { loss[n] = most[0] + log(total[0]) - X[n, target[n]] }
}
""" + WHOLE + """
program cross_entropy<T: f32 | bf16>(X: T[N, V], target: i64[N], Y: out f32[1])
key bucket(N), bucket(V)
{
  temp loss: f32[N]
  row_losses(X, target, loss)
  whole(loss, Y, 1.0 / N)
}
"""

# ---- rows that are held: anchor, positive, negative
TRIPLET = """tile 1
kernel row_losses(A: f32[N, D], P: f32[N, D], Q: f32[N, D], loss: out f32[N], margin: f32)
key bucket(N), D
tune rows = 1 | 2 | 4
grid n < ceildiv(N, rows)
{
  fragment a: f32[rows, D], p: f32[rows, D], q: f32[rows, D], l: f32[rows]
  a = A[n*rows +: rows, :]
  p = P[n*rows +: rows, :]
  q = Q[n*rows +: rows, :]
  parallel i < rows {
    let near = sqrt(sum[k < D](let d = a[i, k] - p[i, k] + 1e-6 in d * d))
    let far = sqrt(sum[k < D](let d = a[i, k] - q[i, k] + 1e-6 in d * d))
    l[i] = max(near - far + margin, 0)
  }
  loss[n*rows +: rows] = l
}
""" + WHOLE + """
program triplet(A: f32[N, D], P: f32[N, D], Q: f32[N, D], Y: out f32[1], margin: f32)
key bucket(N), D
{
  temp loss: f32[N]
  row_losses(A, P, Q, loss, margin)
  whole(loss, Y, 1.0 / N)
}
"""

# ---- mean of 1 - cos(x, z) over rows of any length
COSINE = """tile 1
kernel row_losses<T: f32 | bf16>(X: T[N, D], Z: T[N, D], loss: out f32[N])
key bucket(N), bucket(D)
tune BD = 512 | 1024 | 2048 | 4096
grid n < N
{
  fragment x: f32[BD], z: f32[BD], xx: f32[1] = 0, zz: f32[1] = 0, xz: f32[1] = 0
  for k < ceildiv(D, BD) {
    x = X[n, k*BD +: BD]
    z = Z[n, k*BD +: BD]
    parallel i < 1 {
      xx[i] += sum[j < BD](x[j] * x[j])
      zz[i] += sum[j < BD](z[j] * z[j])
      xz[i] += sum[j < BD](x[j] * z[j])
    }
  }
  parallel i < 1 { loss[n] = 1 - xz[i] / (max(sqrt(xx[i]), 1e-8) * max(sqrt(zz[i]), 1e-8)) }
}
""" + WHOLE + """
program cosine<T: f32 | bf16>(X: T[N, D], Z: T[N, D], Y: out f32[1])
key bucket(N), bucket(D)
{
  temp loss: f32[N]
  row_losses(X, Z, loss)
  whole(loss, Y, 1.0 / N)
}
"""

# ---- hinge: max(0, 1 - x z), with one target a row
HINGE = """tile 1
kernel row_losses(X: f32[N, D], Z: f32[N], loss: out f32[N])
key bucket(N), bucket(D)
tune auto BD
grid n < N
{
  fragment x: f32[BD], total: f32[1] = 0
  let z = Z[n]
  for k < ceildiv(D, BD) {
    x = X[n, k*BD +: BD]
    parallel i < 1 { total[i] += sum[j < BD](k*BD + j < D ? max(1 - x[j] * z, 0) : 0) }
  }
  loss[n +: 1] = total
}
""" + WHOLE + """
program hinge(X: f32[N, D], Z: f32[N], Y: out f32[1])
key bucket(N), bucket(D)
{
  temp loss: f32[N]
  row_losses(X, Z, loss)
  whole(loss, Y, 1.0 / (N * D))
}
"""

# ---- the same as mse with atomic additions: a kernel that sets zero, and one that every block adds to
MSE_ATOMIC = """tile 1
kernel zero(Y: out f32[1])
grid b < 1
{ parallel i < 1 { Y[i] = 0 } }

kernel add(X: f32[N], Z: f32[N], Y: inout f32[1])
key bucket(N)
tune BN = 1024 | 4096, rounds = 4 | 16 | 64
grid b < ceildiv(N, BN * rounds)
{
  fragment x: f32[BN], z: f32[BN], total: f32[1] = 0
  for r < rounds {
    x = X[(b*rounds + r)*BN +: BN]
    z = Z[(b*rounds + r)*BN +: BN]
    parallel i < 1 { total[i] += sum[j < BN](let d = x[j] - z[j] in d * d) }
  }
  parallel i < 1 { atomic Y[i] += total[i] / N }
}

program mse_atomic(X: f32[N], Z: f32[N], Y: out f32[1])
key bucket(N)
{
  zero(Y)
  add(X, Z, Y)
}
"""


def log_probabilities(shape, t, d):
    return torch.log_softmax(torch.randn(shape[0] // 64, 64, device=DEV), -1).reshape(shape)


def probabilities(shape, t, d):
    return torch.softmax(torch.randn(shape[0] // 64, 64, device=DEV), -1).reshape(shape)


def labels(shape, t, d):
    return torch.randint(0, d["V"], shape, device=DEV)


def signs(shape, t, d):
    return torch.randint(0, 2, shape, device=DEV).float() * 2 - 1


def wide(f):
    """The result in f32, whatever comes in: what a loss in bf16 is compared with is not rounded."""
    return lambda t, d: f(t, d).to(torch.promote_types(t.X.dtype, torch.float32))


KL = {"large": {"N": 1 << 26}, "odd": {"N": 64 * 65521}, "small": {"N": 64 * 141}}
ROWS = {"large": {"N": 8192, "D": 4096}, "odd": {"N": 1021, "D": 1531}, "small": {"N": 7, "D": 203}}
VOCAB = {"large": {"N": 4096, "V": 32768}, "odd": {"N": 1021, "V": 50257}, "small": {"N": 7, "V": 2003}}

MSE = PAIRS.format(name="mse", over="1.0 / N", of="let d = x[j] - z[j] in d * d")
HUBER = PAIRS.format(name="huber", over="1.0 / N", of="let d = abs(x[j] - z[j]) in d < 1 ? 0.5 * d * d : d - 0.5")
KLDIV = PAIRS.format(name="kl", over="64.0 / N", of="z[j] > 0 ? z[j] * (log(z[j]) - x[j]) : 0")

CASES = [
    Case("mse_f32", MSE, FLAT, lambda t, d: F.mse_loss(t.X, t.Z), kernel="mse", types=F32),
    Case("mse_bf16", MSE, FLAT, wide(lambda t, d: F.mse_loss(t.X, t.Z)), kernel="mse", types=B16),
    Case("mse_atomic_f32", MSE_ATOMIC, FLAT, lambda t, d: F.mse_loss(t.X, t.Z), kernel="mse_atomic"),
    Case("huber_f32", HUBER, FLAT, lambda t, d: F.smooth_l1_loss(t.X, t.Z), kernel="huber", types=F32),
    Case("kl_f32", KLDIV, KL, lambda t, d: F.kl_div(t.X.view(-1, 64), t.Z.view(-1, 64), reduction="batchmean"),
         kernel="kl", types=F32, fills={"X": log_probabilities, "Z": probabilities}),
    Case("cross_entropy_f32", CROSS, VOCAB, lambda t, d: F.cross_entropy(t.X, t.target), kernel="cross_entropy",
         types=F32, fills={"target": labels}),
    Case("cross_entropy_bf16", CROSS, VOCAB, wide(lambda t, d: F.cross_entropy(t.X, t.target)), kernel="cross_entropy",
         types=B16, fills={"target": labels}),
    Case("triplet_f32", TRIPLET, ROWS, lambda t, d: F.triplet_margin_loss(t.A, t.P, t.Q, 1.0), kernel="triplet",
         fills={"margin": lambda s, t, d: 1.0}),
    Case("hinge_f32", HINGE, ROWS, lambda t, d: torch.mean(torch.clamp(1 - t.X * t.Z[:, None], min=0)), kernel="hinge",
         fills={"Z": signs}),
    Case("cosine_f32", COSINE, ROWS, lambda t, d: torch.mean(1 - F.cosine_similarity(t.X, t.Z, 1)), kernel="cosine",
         types=F32),
]
