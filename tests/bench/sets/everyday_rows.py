"""Norms, softmax, losses and quantisation of rows."""
import torch
import torch.nn.functional as F
from sets.shared.everyday import B16, BF, DEV, const, wide
from unseen import Case

# ---- h = x + r, y = rmsnorm(h) w
ADDNORM = """tile 1
kernel add_rmsnorm<T: f16 | bf16>(x: T[N, D], r: T[N, D], w: T[D], h: out T[N, D], y: out T[N, D], eps: f32)
key bucket(N), D
tune rows = 1 | 2 | 4 | 8
grid n < ceildiv(N, rows)
{
  fragment a: T[rows, D], b: T[rows, D], s: f32[rows, D], ms: f32[rows]
  a = x[n*rows +: rows, :]
  b = r[n*rows +: rows, :]
  parallel i < rows, d < D { s[i, d] = a[i, d] + b[i, d] }
  h[n*rows +: rows, :] = s
  parallel i < rows { ms[i] = rsqrt(sum[d < D](s[i, d] * s[i, d]) * (1.0 / D) + eps) }
  parallel i < rows, d < D { s[i, d] = s[i, d] * ms[i] * w[d] }
  y[n*rows +: rows, :] = s
}
"""


def add_rmsnorm(t, d):
    h = t.x + t.r
    if hasattr(F, "rms_norm") and h.dtype == BF:
        return h, F.rms_norm(h, (d["D"],), t.w, t.eps)
    s = wide(h)
    return h, (s * (s.square().mean(-1, keepdim=True) + t.eps).rsqrt() * t.w).to(h.dtype)


# ---- layernorm without factors; any width, mean and variance of tiles are joined as they come, then a second pass
WELFORD = """tile 1
kernel plain_layernorm<T: f32 | f16 | bf16>(X: T[N, D], Y: out T[N, D], mean_out: out f32[N], rstd_out: out f32[N], eps: f32)
key bucket(N), bucket(D)
tune R = 1 | 2 | 4, BD = 512 | 1024 | 2048 | 4096
where R * BD <= 8192
grid b < ceildiv(N, R)
{
  fragment x: f32[R, BD], mean: f32[R] = 0, m2: f32[R] = 0, rstd: f32[R]
  for c < ceildiv(D, BD) {
    x = X[b*R +: R, c*BD +: BD]
    let n = min(BD, D - c*BD)
    parallel i < R {
      let mu = sum[j < BD](x[i, j]) / n
      let sq = sum[j < BD](j < n ? (x[i, j] - mu) * (x[i, j] - mu) : 0.0)
      let gap = mu - mean[i]
      m2[i] += sq + gap * gap * (f32(c*BD) * n / (c*BD + n))
      mean[i] += gap * n / (c*BD + n)
    }
  }
  parallel i < R { rstd[i] = rsqrt(m2[i] / D + eps) }
  for c < ceildiv(D, BD) {
    x = X[b*R +: R, c*BD +: BD]
    parallel i < R, j < BD { x[i, j] = (x[i, j] - mean[i]) * rstd[i] }
    Y[b*R +: R, c*BD +: BD] = x
  }
  mean_out[b*R +: R] = mean
  rstd_out[b*R +: R] = rstd
}
"""


def plain_layernorm(t, d):
    y, m, r = torch.ops.aten.native_layer_norm(t.X, (d["D"],), None, None, t.eps)
    return y, wide(m).flatten(), wide(r).flatten()


# ---- groups of channels, NCHW, factors a channel, silu behind it
GROUPNORM = """tile 1
kernel groupnorm_silu<T: f16 | bf16>(X: T[N, G, Cg, P], w: T[G, Cg], b: T[G, Cg], Y: out T[N, G, Cg, P], eps: f32)
key bucket(N), G, Cg, P
tune BP = 256 | 512 | 1024
grid n < N, g < G
{
  fragment x: f32[Cg, BP], s1: f32[Cg] = 0, s2: f32[Cg] = 0
  for p < ceildiv(P, BP) {
    x = X[n, g, :, p*BP +: BP]
    parallel c < Cg { s1[c] += sum[j < BP](x[c, j]) }
    parallel c < Cg { s2[c] += sum[j < BP](x[c, j] * x[c, j]) }
  }
  let count = Cg * P
  let mean = sum[c < Cg](s1[c]) / count
  let inv = rsqrt(max(sum[c < Cg](s2[c]) / count - mean * mean, 0) + eps)
  for p < ceildiv(P, BP) {
    x = X[n, g, :, p*BP +: BP]
    parallel c < Cg, j < BP {
      let z = (x[c, j] - mean) * inv * w[g, c] + b[g, c]
      x[c, j] = z * rcp(1 + exp(-z))
    }
    Y[n, g, :, p*BP +: BP] = x
  }
}
"""


def groupnorm_silu(t, d):
    return F.silu(F.group_norm(t.X.flatten(1, 2), d["G"], t.w.flatten(), t.b.flatten(), t.eps)).view(t.X.shape)


# ---- softmax with a temperature a row and a mask
MASKED = """tile 1
kernel masked_softmax<T: f16 | bf16 | f32>(X: T[N, V], mask: u8[N, V], temp_inv: f32[N], P: out T[N, V])
key bucket(N), V
tune threads = 128 | 256 | 512
grid n < N
{
  fragment x: f32[V], keep: u8[V]
  x = X[n, :]
  keep = mask[n, :]
  let beta = temp_inv[n] * log2e
  parallel v < V { x[v] = keep[v] != 0 ? x[v] * beta : -inf }
  let top = max[v < V](x[v])
  parallel v < V { x[v] = exp2(x[v] - top) }
  let inv = rcp(sum[v < V](x[v]))
  parallel v < V { x[v] *= inv }
  P[n, :] = x
}
"""


def masked_softmax(t, d):
    return (wide(t.X) * t.temp_inv[:, None]).masked_fill(t.mask == 0, float("-inf")).softmax(-1).to(t.X.dtype)


# ---- cross entropy over a large vocabulary, one pass
NLL = """tile 1
kernel cross_entropy<T: f16 | bf16 | f32>(Z: T[N, V], target: i64[N], loss: out f32[N], lse: out f32[N], ignore: i64)
key bucket(N), bucket(V)
tune BV = 1024 | 2048 | 4096 | 8192
grid n < N
{
  fragment z: f32[BV], m: f32[1] = -inf, l: f32[1] = 0, r: f32[1], q: f32[1]
  for v < ceildiv(V, BV) {
    z = Z[n, v*BV +: BV] pad -inf
    parallel i < 1 {
      let top = max(m[i], max[j < BV](z[j]))
      l[i] = l[i] * exp(m[i] - top) + sum[j < BV](exp(z[j] - top))
      m[i] = top
    }
  }
  let at = target[n]
  parallel i < 1 {
    r[i] = m[i] + log(l[i])
    q[i] = at == ignore ? 0.0 : r[i] - Z[n, at]
  }
  loss[n +: 1] = q
  lse[n +: 1] = r
}
"""


def cross_entropy(t, d):
    z = wide(t.Z)
    return F.cross_entropy(z, t.target, ignore_index=-100, reduction="none"), z.logsumexp(-1)


# ---- quantised rows: signed bytes with a scale a row; 8-bit floats with one for 128 elements
ABSMAX = """tile 1
kernel quant_rows<T: f16 | bf16>(X: T[N, D], Q: out i8[N, D], s: out f32[N])
key bucket(N), D
tune auto R
grid b < ceildiv(N, R)
{
  fragment x: f32[R, D], q: i8[R, D], big: f32[R]
  x = X[b*R +: R, :]
  parallel i < R { big[i] = max(max[d < D](abs(x[i, d])), 1e-8) / 127 }
  parallel i < R, d < D { q[i, d] = round(x[i, d] / big[i]) }
  Q[b*R +: R, :] = q
  s[b*R +: R] = big
}
"""


def quant_rows(t, d):
    x = wide(t.X)
    s = x.abs().amax(-1).clamp(min=1e-8) / 127
    return (x / s[:, None]).round().clamp(-128, 127).to(torch.int8), s


BLOCK8 = """tile 1
kernel quant_blocks<T: f16 | bf16>(X: T[N, D], Q: out f8e4m3[N, D], s: out f32[N, G])
where G == ceildiv(D, 128)
key bucket(N), D
tune R = 4 | 8 | 16 | 32
grid b < ceildiv(N, R), g < G
{
  fragment x: T[R, 128], q: f8e4m3[R, 128], f: f32[R]
  x = X[b*R +: R, g*128 +: 128]
  parallel i < R { f[i] = max(max[d < 128](abs(x[i, d])), 1e-4) / 448 }
  parallel i < R, d < 128 { q[i, d] = x[i, d] / f[i] }
  Q[b*R +: R, g*128 +: 128] = q
  s[b*R +: R, g] = f
}
"""


def quant_blocks(t, d):
    x = F.pad(wide(t.X), (0, -d["D"] % 128)).unflatten(1, (-1, 128))
    s = x.abs().amax(-1).clamp(min=1e-4) / 448
    return (x / s[..., None]).flatten(1)[:, :d["D"]].to(torch.float8_e4m3fn), s


# ---- sums of prefixes, exclusive, over any length
CUMSUM = """tile 1
kernel cumsum_exclusive(x: f32[R, N], y: out f32[R, N])
key bucket(R), bucket(N)
tune BN = 512 | 1024 | 2048 | 4096
grid r < R
{
  fragment a: f32[BN], before: f32[1]
  before = 0
  for n < ceildiv(N, BN) {
    a = x[r, n*BN +: BN]
    let all = sum[j < BN](a[j])
    parallel j < BN { a[j] = before[0] + sum[k < j](a[k]) }
    y[r, n*BN +: BN] = a
    parallel i < 1 { before[i] += all }
  }
}
"""


def cumsum_exclusive(t, d):
    return t.x.cumsum(-1) - t.x


# ---- the largest of a row and where it is
ARGMAX = """tile 1
kernel row_argmax(x: f32[R, V], value: out f32[R], at: out i64[R])
key bucket(R), bucket(V)
tune BV = 1024 | 2048 | 4096 | 8192
grid r < R
{
  fragment t: f32[BV], best: f32[BV] = -inf, step: i32[BV] = 0, who: i64[1], most: f32[1]
  for v < ceildiv(V, BV) {
    t = x[r, v*BV +: BV] pad -inf
    parallel j < BV {
      if t[j] > best[j] {
        best[j] = t[j]
        step[j] = v
      }
    }
  }
  let top = max[j < BV](best[j])
  parallel i < 1 {
    most[i] = top
    who[i] = min[j < BV](best[j] == top ? i64(step[j]) * BV + j : i64(V))
  }
  value[r +: 1] = most
  at[r +: 1] = who
}
"""


def row_argmax(t, d):
    return tuple(t.x.max(-1))


def targets(s, t, d):
    return torch.where(torch.rand(s, device=DEV) < 0.1, -100, torch.randint(0, d["V"], s, device=DEV))


def keep_most(s, t, d):
    keep = torch.rand(s, device=DEV) < 0.7
    keep[:, 0] = True
    return keep.to(torch.uint8)


CASES = [
    Case("add_rmsnorm", ADDNORM, {"large": dict(N=16384, D=4096), "odd": dict(N=5003, D=2570), "small": dict(N=13, D=75)},
         add_rmsnorm, types=B16, fills={"eps": const(1e-6)}),
    Case("plain_layernorm", WELFORD, {"large": dict(N=8192, D=5120), "odd": dict(N=3001, D=7001), "small": dict(N=7, D=1100)},
         plain_layernorm, types=B16, fills={"eps": const(1e-5)}),
    Case("groupnorm_silu", GROUPNORM, {"large": dict(N=16, G=32, Cg=10, P=4096), "odd": dict(N=7, G=24, Cg=7, P=3025),
                                       "small": dict(N=2, G=3, Cg=5, P=300)}, groupnorm_silu, types=B16, fills={"eps": const(1e-5)}),
    Case("masked_softmax", MASKED, {"large": dict(N=32768, V=2048), "odd": dict(N=9001, V=1531), "small": dict(N=9, V=101)},
         masked_softmax, types=B16, fills={"mask": keep_most, "temp_inv": lambda s, t, d: torch.rand(s, device=DEV) + 0.5}),
    Case("cross_entropy", NLL, {"large": dict(N=4096, V=128256), "odd": dict(N=1501, V=50257), "small": dict(N=5, V=3001)},
         cross_entropy, types=B16, fills={"target": targets, "ignore": const(-100)}),
    Case("quant_rows", ABSMAX, {"large": dict(N=16384, D=4096), "odd": dict(N=6007, D=3003), "small": dict(N=11, D=133)},
         quant_rows, types=B16, tolerance=2e-3),
    Case("quant_blocks", BLOCK8, {"large": dict(N=8192, D=7168, G=56), "odd": dict(N=3011, D=2000, G=16), "small": dict(N=9, D=300, G=3)},
         quant_blocks, types=B16, tolerance=1e-2),
    Case("cumsum_exclusive", CUMSUM, {"large": dict(R=4096, N=16384), "odd": dict(R=1003, N=10007), "small": dict(R=3, N=1201)},
         cumsum_exclusive),
    Case("row_argmax", ARGMAX, {"large": dict(R=256, V=151936), "odd": dict(R=131, V=100003), "small": dict(R=4, V=5003)}, row_argmax),
]
