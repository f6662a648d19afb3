"""Products as models have them: projections, gates, routers, gradients, rows by number."""
import torch
import torch.nn.functional as F
from sets.shared.everyday import B16, DEV, uniform
from unseen import Case

# ---- a linear layer on [batch, length, channels]; the bias is what the sum begins with
LINEAR3 = """tile 1
kernel linear3<E: f16 | bf16>(act: E[Bt, S, Cin], wt: E[Cout, Cin], off: E[Cout], res: out E[Bt, S, Cout])
key bucket(Bt), bucket(S), Cin, Cout
tune auto TM, TN, TK, depth
grid b < Bt, m < ceildiv(S, TM), n < ceildiv(Cout, TN)
{
  shared x: E[TM, TK], w: E[TN, TK]
  fragment total: f32[TM, TN]

  parallel i < TM, j < TN { total[i, j] = off[n*TN + j] }
  pipelined k < ceildiv(Cin, TK), depth {
    x = act[b, m*TM +: TM, k*TK +: TK]
    w = wt[n*TN +: TN, k*TK +: TK]
    total += x @ w^T
  }
  res[b, m*TM +: TM, n*TN +: TN] = total
}
"""

# ---- the gradient of a weight: tokens are summed over, both operands lie with tokens as rows
WGRAD = """tile 1
kernel wgrad<T: f16 | bf16>(dY: T[Tok, N], X: T[Tok, K], dW: out f32[N, K])
key N, K, bucket(Tok)
tune BN = 64 | 128, BK = 64 | 128 | 256, BT = 32 | 64, ahead = 2 | 3 | 4
grid n < ceildiv(N, BN), k < ceildiv(K, BK)
{
  shared g: T[BT, BN], a: T[BT, BK]
  fragment grad: f32[BN, BK]
  grad = 0
  pipelined t < ceildiv(Tok, BT), ahead {
    g = dY[t*BT +: BT, n*BN +: BN]
    a = X[t*BT +: BT, k*BK +: BK]
    grad += g^T @ a
  }
  dW[n*BN +: BN, k*BK +: BK] = grad
}
"""

# ---- weights [K, N]; bias, squared relu, a factor for each row
RELU2 = """tile 1
kernel relu2_rows<T: f16 | bf16>(x: T[M, K], w: T[K, N], b: f32[N], gain: f32[M], y: out T[M, N])
key bucket(M), N, K
tune BM = 128 | 64, BN = 256 | 128 | 64, BK = 64 | 32, stages = 4 | 3, cluster = 1 | 2
grid i0 < ceildiv(M, BM), j0 < ceildiv(N, BN)
{
  shared xs: T[BM, BK], ws: T[BK, BN]
  fragment z: f32[BM, BN] = 0, bb: f32[BN], gg: f32[BM]

  bb = b[j0*BN +: BN]
  gg = gain[i0*BM +: BM]
  pipelined k < ceildiv(K, BK), stages {
    xs = x[i0*BM +: BM, k*BK +: BK]
    ws = w[k*BK +: BK, j0*BN +: BN]
    z += xs @ ws
  }
  parallel i < BM, j < BN { z[i, j] += bb[j] }
  parallel i < BM, j < BN { z[i, j] = max(z[i, j], 0) }
  parallel i < BM, j < BN { z[i, j] = z[i, j] * z[i, j] * gg[i] }
  y[i0*BM +: BM, j0*BN +: BN] = z
}
"""

# ---- swiglu of two weights, in one loop
SWIGLU2 = """tile 1
kernel swiglu_two<T: f16 | bf16>(X: T[M, K], Wg: T[F, K], Wu: T[F, K], H: out T[M, F])
key bucket(M), F, K
tune BM = 64 | 128, BF = 64 | 128, BK = 64, stages = 2 | 3 | 4
grid f < ceildiv(F, BF), m < ceildiv(M, BM)
{
  shared   x: T[BM, BK], wg: T[BF, BK], wu: T[BF, BK]
  fragment gate: f32[BM, BF] = 0, up: f32[BM, BF] = 0, h: T[BM, BF]

  pipelined k < ceildiv(K, BK), stages {
    x  = X[m*BM +: BM, k*BK +: BK]
    wg = Wg[f*BF +: BF, k*BK +: BK]
    wu = Wu[f*BF +: BF, k*BK +: BK]
    gate += x @ wg^T
    up   += x @ wu^T
  }
  parallel i < BM, j < BF {
    let s = rcp(1 + exp(-gate[i, j]))
    h[i, j] = gate[i, j] * s * up[i, j]
  }
  H[m*BM +: BM, f*BF +: BF] = h
}
"""

# ---- swiglu of one weight whose rows alternate: gate 0, up 0, gate 1, up 1, ..
SWIGLU_MIX = """tile 1
kernel swiglu_mixed<T: f16 | bf16>(X: T[M, K], W: T[F2, K], H: out T[M, F])
where F2 == 2 * F
key bucket(M), F, K
tune auto BM, BF, BK, stages
grid m < ceildiv(M, BM), f < ceildiv(F, BF)
{
  shared   x: T[BM, BK], w: T[2*BF, BK]
  fragment both: f32[BM, 2*BF] = 0, h: f32[BM, BF]

  pipelined k < ceildiv(K, BK), stages {
    x = X[m*BM +: BM, k*BK +: BK]
    w = W[2*f*BF +: 2*BF, k*BK +: BK]
    both += x @ w^T
  }
  parallel i < BM, j < BF {
    let g = both[i, 2*j], u = both[i, 2*j + 1]
    h[i, j] = g / (1 + exp(-g)) * u
  }
  H[m*BM +: BM, f*BF +: BF] = h
}
"""

# ---- a router: logits of few experts, their softmax, the best one
ROUTER = """tile 1
kernel router<T: f16 | bf16>(X: T[N, K], W: T[E, K], P: out f32[N, E], best: out i32[N], weight: out f32[N])
where E <= 256
key bucket(N), K, E
tune BM = 64 | 32 | 128, BK = 64 | 128, stages = 3 | 4 | 2
grid b < ceildiv(N, BM)
{
  shared   x: T[BM, BK], w: T[E, BK]
  fragment z: f32[BM, E] = 0, who: i32[BM], top: f32[BM]

  pipelined k < ceildiv(K, BK), stages {
    x = X[b*BM +: BM, k*BK +: BK]
    w = W[:, k*BK +: BK]
    z += x @ w^T
  }
  parallel i < BM { who[i] = argmax[e < E](z[i, e]) }
  parallel i < BM, e < E { z[i, e] = exp(z[i, e] - max[q < E](z[i, q])) }
  parallel i < BM { top[i] = rcp(sum[e < E](z[i, e])) }
  parallel i < BM, e < E { z[i, e] *= top[i] }
  P[b*BM +: BM, :] = z
  best[b*BM +: BM] = who
  weight[b*BM +: BM] = top
}
"""

# ---- a projection and an rmsnorm over its columns, which one block has
PROJ_NORM = """tile 1
kernel proj_norm<T: f16 | bf16>(x: T[M, K], w: T[K, N], g: T[N], y: out T[M, N], eps: f32)
where N <= 512
key bucket(M), K, N
tune BM = 64 | 128 | 32, BK = 32 | 64, stages = 3 | 4
grid r < ceildiv(M, BM)
{
  shared   a: T[BM, BK], b: T[BK, N]
  fragment acc: f32[BM, N] = 0, inv: f32[BM]

  pipelined k < ceildiv(K, BK), stages {
    a = x[r*BM +: BM, k*BK +: BK]
    b = w[k*BK +: BK, :]
    acc += a @ b
  }
  parallel i < BM { inv[i] = rsqrt(sum[n < N](acc[i, n] * acc[i, n]) / N + eps) }
  parallel i < BM, n < N { acc[i, n] = acc[i, n] * inv[i] * g[n] }
  y[r*BM +: BM, :] = acc
}
"""

# ---- rows by index in, rows by index out
GATHER = """tile 1
kernel gather_linear<T: f16 | bf16>(X: T[V, K], pick: i32[R], W: T[N, K], Y: out T[R, N])
key bucket(R), N, K
tune BM = 64 | 128, BN = 128 | 64, BK = 64, stages = 3 | 4
grid m < ceildiv(R, BM), n < ceildiv(N, BN)
{
  shared   x: T[BM, BK], w: T[BN, BK]
  fragment y: f32[BM, BN] = 0
  pipelined k < ceildiv(K, BK), stages {
    x = X[pick[m*BM +: BM], k*BK +: BK]
    w = W[n*BN +: BN, k*BK +: BK]
    y += x @ w^T
  }
  Y[m*BM +: BM, n*BN +: BN] = y
}
"""

SCATTER = """tile 1
kernel linear_scatter<T: f16 | bf16>(X: T[R, K], W: T[N, K], weight: f32[R], to: i32[R], Y: out T[R, N])
key bucket(R), N, K
tune BM = 64 | 128, BN = 128 | 64, BK = 64, stages = 3 | 4
grid n < ceildiv(N, BN), m < ceildiv(R, BM)
{
  shared   x: T[BM, BK], w: T[BN, BK]
  fragment y: f32[BM, BN] = 0, f: f32[BM]
  pipelined k < ceildiv(K, BK), stages {
    x = X[m*BM +: BM, k*BK +: BK]
    w = W[n*BN +: BN, k*BK +: BK]
    y += x @ w^T
  }
  f = weight[m*BM +: BM]
  parallel i < BM, j < BN { y[i, j] = y[i, j] * f[i] }
  Y[to[m*BM +: BM], n*BN +: BN] = y
}
"""


def rms(x, w, eps):
    if hasattr(F, "rms_norm"):
        return F.rms_norm(x, w.shape, w, eps)
    return x * (x.square().mean(-1, keepdim=True) + eps).rsqrt() * w


def relu2(t, d):
    return (F.relu(t.x @ t.w + t.b.to(t.x.dtype)).square() * t.gain[:, None]).to(t.x.dtype)


def swiglu_mixed(t, d):
    z = F.linear(t.X, t.W)
    return F.silu(z[:, ::2]) * z[:, 1::2]


def router(t, d):
    p = F.linear(t.X, t.W).to(torch.promote_types(t.X.dtype, torch.float32)).softmax(-1)
    w, i = p.max(-1)
    return p, i.to(torch.int32), w


def proj_norm(t, d):
    return rms(t.x @ t.w, t.g, t.eps)


def scattered(t, d):
    y = torch.empty(d["R"], d["N"], dtype=t.X.dtype, device=t.X.device)
    y[t.to.long()] = F.linear(t.X, t.W) * t.weight[:, None].to(t.X.dtype)
    return y


permutation = lambda s, t, d: torch.randperm(s[0], device=DEV).to(torch.int32)  # noqa: E731


CASES = [
    Case("linear3", LINEAR3, {"large": dict(Bt=8, S=512, Cin=4096, Cout=4096), "odd": dict(Bt=5, S=333, Cin=1003, Cout=771),
                              "small": dict(Bt=2, S=37, Cin=75, Cout=51)},
         lambda t, d: F.linear(t.act, t.wt, t.off), types={"E": "bf16"}),
    Case("wgrad", WGRAD, {"large": dict(Tok=8192, N=4096, K=2048), "odd": dict(Tok=3001, N=1013, K=778),
                          "small": dict(Tok=83, N=45, K=61)},
         lambda t, d: (t.dY.T @ t.X).to(torch.promote_types(t.X.dtype, torch.float32)), types=B16),
    Case("relu2_rows", RELU2, {"large": dict(M=4096, K=4096, N=8192), "odd": dict(M=1021, K=1500, N=2011),
                               "small": dict(M=45, K=77, N=70)}, relu2, types=B16),
    Case("swiglu_two", SWIGLU2, {"large": dict(M=2048, K=4096, F=11008), "odd": dict(M=777, K=1234, F=2711),
                                 "small": dict(M=33, K=70, F=75)},
         lambda t, d: F.silu(F.linear(t.X, t.Wg)) * F.linear(t.X, t.Wu), types=B16),
    Case("swiglu_mixed", SWIGLU_MIX, {"large": dict(M=4096, K=2048, F=5632, F2=11264), "odd": dict(M=1001, K=1100, F=1347, F2=2694),
                                      "small": dict(M=21, K=50, F=37, F2=74)}, swiglu_mixed, types=B16),
    Case("router", ROUTER, {"large": dict(N=16384, K=4096, E=64), "odd": dict(N=3001, K=1111, E=61),
                            "small": dict(N=70, K=90, E=13)}, router, types=B16),
    Case("proj_norm", PROJ_NORM, {"large": dict(M=16384, K=2048, N=256), "odd": dict(M=5003, K=911, N=200),
                                  "small": dict(M=50, K=73, N=44)}, proj_norm, types=B16, fills={"eps": lambda s, t, d: 1e-5}),
    Case("gather_linear", GATHER, {"large": dict(V=32768, R=8192, K=2048, N=2048), "odd": dict(V=5000, R=2345, K=1016, N=997),
                                   "small": dict(V=90, R=50, K=40, N=37)},
         lambda t, d: F.linear(t.X[t.pick.long()], t.W), types=B16,
         fills={"pick": lambda s, t, d: torch.randint(0, d["V"], s, device=DEV).to(torch.int32)}),
    Case("linear_scatter", SCATTER, {"large": dict(R=8192, K=2048, N=2048), "odd": dict(R=2311, K=1030, N=1001),
                                     "small": dict(R=50, K=41, N=39)}, scattered, types=B16,
         fills={"weight": uniform(0.1, 1), "to": permutation}),
]
