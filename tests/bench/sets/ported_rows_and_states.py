"""The plain ones of Triton's tutorials and TritonBench, and two of flash-linear-attention."""
import torch
import torch.nn.functional as F
from sets.shared.everyday import B16, BF, DEV, const, grouped, scaled, sdpa, wide
from unseen import Case

H16 = {"T": "f16"}

# ---- rows of any length, in registers as a whole
SOFTMAX = """tile 1
kernel softmax<T: f32 | f16 | bf16>(X: T[M, N], Y: out T[M, N])
key bucket(M), N
tune threads = 128 | 256 | 512 | 1024
grid m < M
{
  fragment x: f32[N]
  x = X[m, :]
  parallel j < N { x[j] = exp(x[j] - max[k < N](x[k])) }
  parallel j < N { x[j] = x[j] / sum[k < N](x[k]) }
  Y[m, :] = x
}
"""

# ---- layer norm with mean and rstd, the residual added first and written back
LAYER_NORM = """tile 1
kernel add_layer_norm<T: f32 | f16 | bf16>(X: T[M, N], R: T[M, N], w: T[N], b: T[N], S: out T[M, N], Y: out T[M, N], mean: out f32[M], rstd: out f32[M], eps: f32)
key bucket(M), N
tune rows = 1 | 2 | 4
grid m < ceildiv(M, rows)
{
  fragment x: f32[rows, N], r: T[rows, N], mu: f32[rows], rs: f32[rows]
  x = X[m*rows +: rows, :]
  r = R[m*rows +: rows, :]
  parallel i < rows, j < N { x[i, j] = T(x[i, j] + r[i, j]) }
  S[m*rows +: rows, :] = x
  parallel i < rows { mu[i] = sum[j < N](x[i, j]) / N }
  parallel i < rows { rs[i] = rsqrt(sum[j < N](let c = x[i, j] - mu[i] in c * c) / N + eps) }
  parallel i < rows, j < N { x[i, j] = (x[i, j] - mu[i]) * rs[i] * w[j] + b[j] }
  Y[m*rows +: rows, :] = x
  mean[m*rows +: rows] = mu
  rstd[m*rows +: rows] = rs
}
"""


def add_layer_norm(t, d):
    s = t.X + t.R
    x = wide(s)
    mu = x.mean(-1, keepdim=True)
    rs = ((x - mu).square().mean(-1, keepdim=True) + t.eps).rsqrt()
    return s, ((x - mu) * rs * wide(t.w) + wide(t.b)).to(t.X.dtype), mu[:, 0], rs[:, 0]


def add_layer_norm_reference(t, d):
    s = (t.X + t.R).to(BF).double()  # the sum is stored, and read again
    x = s - s.mean(-1, keepdim=True)
    rs = (x.square().mean(-1, keepdim=True) + t.eps).rsqrt()
    return s, x * rs * t.w + t.b, s.mean(-1), rs[:, 0]


# ---- rms norm into fp8, with a scale of each row
NORM_QUANT = """tile 1
kernel rms_quant<T: f16 | bf16>(X: T[M, N], w: T[N], Y: out f8e4m3[M, N], scale: out f32[M], eps: f32)
key bucket(M), N
tune rows = 1 | 2 | 4
grid m < ceildiv(M, rows)
{
  fragment x: f32[rows, N], s: f32[rows]
  x = X[m*rows +: rows, :]
  parallel i < rows, j < N { x[i, j] = x[i, j] * rsqrt(sum[k < N](x[i, k] * x[i, k]) / N + eps) * w[j] }
  parallel i < rows { s[i] = max(max[j < N](abs(x[i, j])), 1e-6) / 448 }
  parallel i < rows, j < N { x[i, j] /= s[i] }
  Y[m*rows +: rows, :] = x
  scale[m*rows +: rows] = s
}
"""


def rms_quant(t, d):
    x = wide(t.X)
    x = x * (x.square().mean(-1, keepdim=True) + t.eps).rsqrt() * wide(t.w)
    s = x.abs().amax(-1).clamp(1e-6) / 448
    return (x / s[:, None]).float().clamp(-448, 448).to(torch.float8_e4m3fn), s


# ---- sequences behind each other, grouped heads, capped scores (tanh), no mask but the causal one (Gemma 2)
SOFTCAP = """tile 1
kernel varlen_softcap<T: f16 | bf16>(Q: T[N, H, D], K: T[N, G, D], V: T[N, G, D], cu: i32[B1], O: out T[N, H, D], longest: i32, scale: f32, cap: f32)
where H % G == 0
key bucket(N), D
tune BM = 128 | 64, BN = 64 | 128 | 32, stages = 2 | 3
grid b < B1 - 1, h < H, m < ceildiv(longest, BM)
{
  shared   q: T[BM, D], k: T[BN, D], v: T[BN, D]
  fragment s: f32[BM, BN], p: T[BM, BN], o: f32[BM, D] = 0, top: f32[BM] = -1e30, total: f32[BM] = 0, fix: f32[BM]
  let lo = cu[b], n = cu[b + 1] - cu[b]
  if m*BM < n {
    q = Q[lo + m*BM +: BM, h, :] within lo +: n
    pipelined j < ceildiv(min(n, (m + 1)*BM), BN), stages {
      k = K[lo + j*BN +: BN, h / (H / G), :] within lo +: n
      v = V[lo + j*BN +: BN, h / (H / G), :] within lo +: n
      s = q @ k^T
      parallel x < BM, y < BN {
        let z = cap * tanh(s[x, y] * scale / cap)
        s[x, y] = j*BN + y <= m*BM + x ? z * log2e : -inf
      }
      parallel x < BM {
        let most = max(top[x], max[y < BN](s[x, y]))
        fix[x] = exp2(top[x] - most)
        top[x] = most
      }
      parallel x < BM, y < BN { s[x, y] = exp2(s[x, y] - top[x]) }
      parallel x < BM { total[x] = total[x] * fix[x] + sum[y < BN](s[x, y]) }
      parallel x < BM, e < D { o[x, e] *= fix[x] }
      p = s
      o += p @ v
    }
    parallel x < BM, e < D { o[x, e] /= total[x] }
    O[lo + m*BM +: BM, h, :] within lo +: n = o
  }
}
"""


def fill_cu(s, t, d):
    cuts = torch.randperm(d["N"] - 1)[:s[0] - 2].sort().values + 1
    t.host = [0, *cuts.tolist(), d["N"]]
    return torch.tensor(t.host, dtype=torch.int32, device=DEV)


def longest(s, t, d):
    return max(b - a for a, b in zip(t.host, t.host[1:]))


def varlen_softcap(t, d):
    parts = []
    for lo, hi in zip(t.host, t.host[1:]):
        q, k, v = (x[lo:hi].transpose(0, 1)[None] for x in (t.Q, t.K, t.V))
        k, v = grouped(k, d["H"]), grouped(v, d["H"])
        s = t.cap * torch.tanh(wide(q @ k.transpose(2, 3)) * t.scale / t.cap)
        s = s.masked_fill(torch.ones(hi - lo, hi - lo, dtype=torch.bool, device=s.device).triu(1), float("-inf"))
        parts.append((s.softmax(-1).to(v.dtype) @ v)[0].transpose(0, 1))
    return torch.cat(parts)


def varlen_flash(t, d):
    return torch.ops.aten._flash_attention_forward(t.Q, t.K, t.V, t.cu, t.cu, t.longest, t.longest, 0.0, True, False, scale=t.scale)[0]


# ---- RWKV 6 token by token: o = r (u k v + S), S = w S + k v, channels of v apart
RWKV6 = """tile 1
kernel rwkv6<T: f16 | bf16>(r: T[B, S, H, D], k: T[B, S, H, D], v: T[B, S, H, D], w: T[B, S, H, D], u: T[H, D], o: out T[B, S, H, D])
key bucket(B*H), bucket(S), D
tune BV = 64 | 32 | 16
grid b < B, h < H, e < ceildiv(D, BV)
{
  fragment st: f32[D, BV] = 0, y: f32[BV], rr: f32[D], kk: f32[D], vv: f32[BV], ww: f32[D], uu: f32[D]
  uu = u[h, :]
  for t < S {
    rr = r[b, t, h, :]
    kk = k[b, t, h, :]
    ww = w[b, t, h, :]
    vv = v[b, t, h, e*BV +: BV]
    parallel j < BV { y[j] = sum[i < D](rr[i] * (uu[i] * kk[i] * vv[j] + st[i, j])) }
    parallel i < D, j < BV { st[i, j] = exp(-exp(ww[i])) * st[i, j] + kk[i] * vv[j] }
    o[b, t, h, e*BV +: BV] = y
  }
}
"""


def rwkv6(t, d):
    r, k, v, w = (wide(x).transpose(1, 2) for x in (t.r, t.k, t.v, t.w))
    u, w = wide(t.u), (-w.exp()).exp()
    state = torch.zeros(d["B"], d["H"], d["D"], d["D"], dtype=r.dtype, device=r.device)
    outs = []
    for i in range(d["S"]):
        kv = k[:, :, i, :, None] * v[:, :, i, None]
        outs.append((r[:, :, i, None] @ (u[..., None] * kv + state))[:, :, 0])
        state = w[:, :, i, :, None] * state + kv
    return torch.stack(outs, 1).to(t.v.dtype)


# ---- a matrix by a few vectors at once, and the sum of a gate: y = silu(W1 x) * (W2 x) for a batch of up to 8 (gemv variants)
GEMV = """tile 1
kernel gated_gemv<T: f16 | bf16>(X: T[B, K], W1: T[N, K], W2: T[N, K], Y: out T[B, N])
where B <= 8
key B, N, K
tune rows = 2 | 4 | 8, BK = 256 | 512 | 1024
grid n < ceildiv(N, rows)
{
  fragment w: T[rows, BK], z: T[rows, BK], x: T[B, BK], a: f32[B, rows] = 0, b: f32[B, rows] = 0
  for k < ceildiv(K, BK) {
    w = W1[n*rows +: rows, k*BK +: BK]
    z = W2[n*rows +: rows, k*BK +: BK]
    x = X[:, k*BK +: BK]
    parallel q < B, i < rows { a[q, i] += sum[j < BK](w[i, j] * x[q, j]) }
    parallel q < B, i < rows { b[q, i] += sum[j < BK](z[i, j] * x[q, j]) }
  }
  parallel q < B, i < rows { a[q, i] = a[q, i] * rcp(1 + exp(-a[q, i])) * b[q, i] }
  Y[:, n*rows +: rows] = a
}
"""


def gated_gemv(t, d):
    return F.silu(t.X @ t.W1.T) * (t.X @ t.W2.T)


def near(*parts):
    return lambda s, t, d: (torch.randn(s, device=DEV) * parts[0] + parts[1]).to(BF)


CASES = [
    Case("softmax", SOFTMAX, {"large": dict(M=16384, N=8192), "odd": dict(M=2003, N=12289), "small": dict(M=20, N=300)},
         lambda t, d: wide(t.X).softmax(-1).to(t.X.dtype), types=B16, peers={"aten": lambda t, d: t.X.softmax(-1)}),
    Case("add_layer_norm", LAYER_NORM, {"large": dict(M=16384, N=4096), "odd": dict(M=2003, N=1531), "small": dict(M=20, N=70)}, add_layer_norm,
         types=B16, reference=add_layer_norm_reference, fills={"eps": const(1e-5)}, peers={"layer_norm": lambda t, d: F.layer_norm(t.X + t.R, (d["N"],), t.w, t.b, t.eps)}),
    Case("rms_quant", NORM_QUANT, {"large": dict(M=16384, N=4096), "odd": dict(M=2003, N=1531), "small": dict(M=20, N=70)}, rms_quant,
         types=B16, fills={"eps": const(1e-5)}),
    Case("varlen_softcap", SOFTCAP, {"large": dict(N=16384, H=16, G=8, D=128, B1=9), "odd": dict(N=5003, H=6, G=2, D=80, B1=8),
                                     "small": dict(N=190, H=4, G=2, D=24, B1=4)}, varlen_softcap, types=B16, compiled=False,
         fills={"cu": fill_cu, "longest": longest, "scale": scaled, "cap": const(50.0)}, peers={"flash": varlen_flash}),
    Case("rwkv6", RWKV6, {"large": dict(B=8, S=512, H=32, D=64), "odd": dict(B=3, S=307, H=5, D=56), "small": dict(B=1, S=40, H=2, D=24)}, rwkv6,
         types=B16, compiled=False, fills={"w": near(0.5, -3.0), "k": near(0.3, 0.0)}),
    Case("gated_gemv", GEMV, {"large": dict(B=4, K=8192, N=14336), "odd": dict(B=3, K=3001, N=5003), "small": dict(B=2, K=300, N=50)}, gated_gemv,
         types=B16, fills={"W1": lambda s, t, d: (torch.randn(s, device=DEV) * d["K"] ** -0.5).to(BF)}),
]
