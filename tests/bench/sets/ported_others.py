"""Sorting networks, associative scans, sparse matrices, boolean masks, norms in front of products, pooling, transforms."""
import torch
import torch.nn.functional as F
from sets.shared.everyday import B16, BF, DEV, const, scaled, sdpa, wide
from unseen import Case

H16 = {"T": "f16"}

# ---- rows sorted with their places, a bitonic network over 1024 elements; what is beyond the row is +inf
SORT = """tile 1
kernel sort_rows<T: f32 | f16 | bf16>(X: T[R, N], Y: out T[R, N], at: out i32[R, N])
where N <= 1024
key bucket(R)
tune threads = 128 | 256 | 512
grid r < R
{
  fragment x: f32[1024], p: i32[1024]
  x = X[r, 0 +: 1024] pad inf
  parallel i < 1024 { p[i] = i32(i) }
  for k < 10 {
    for s < 10 {
      if s <= k {
        let h = 1 << (k - s)
        parallel i < 1024 {
          let a = x[i], b = x[i ^ h], pa = p[i], pb = p[i ^ h]
          let up = (i & (2 << k)) == 0, low = (i & h) == 0
          let less = b < a || (b == a && pb < pa)
          let take = less == (up == low)
          x[i] = take ? b : a
          p[i] = take ? pb : pa
        }
      }
    }
  }
  Y[r, 0 +: 1024] = x
  at[r, 0 +: 1024] = p
}
"""


def sort_rows(t, d):
    value, index = torch.sort(t.X, dim=-1, stable=True)
    return value, index.to(torch.int32)


# ---- h = a h + b over time by doubling, tiles of 64 tokens, the last state carried on (associative_scan as in Triton's HGRN)
ASSOC = """tile 1
kernel assoc_scan<T: f16 | bf16>(A: T[B, S, D], X: T[B, S, D], Y: out T[B, S, D])
key bucket(S), D
tune BD = 32 | 64 | 16
grid b < B, d < ceildiv(D, BD)
{
  fragment a: f32[64, BD], x: f32[64, BD], carry: f32[BD] = 0
  for n < ceildiv(S, 64) {
    a = A[b, n*64 +: 64, d*BD +: BD]
    x = X[b, n*64 +: 64, d*BD +: BD]
    parallel i < 64, j < BD { a[i, j] = rcp(1 + exp(-a[i, j])) }
    parallel i < 64, j < BD { x[i, j] *= 1 - a[i, j] }
    for s < 6 {
      let h = 1 << s
      parallel i < 64, j < BD {
        if i >= h {
          x[i, j] += a[i, j] * x[i - h, j]
          a[i, j] *= a[i - h, j]
        }
      }
    }
    parallel i < 64, j < BD { x[i, j] += a[i, j] * carry[j] }
    parallel j < BD { carry[j] = x[63, j] }
    Y[b, n*64 +: 64, d*BD +: BD] = x
  }
}
"""


def assoc_scan(t, d):
    a, x = wide(t.A).sigmoid(), wide(t.X)
    h, out = torch.zeros_like(x[:, 0]), []
    x = x * (1 - a)
    for i in range(d["S"]):
        h = a[:, i] * h + x[:, i]
        out.append(h)
    return torch.stack(out, 1).to(t.X.dtype)


# ---- a sparse matrix by rows (CSR) times a dense one
SPMM = """tile 1
kernel spmm<T: f32 | f16 | bf16>(ptr: i32[M1], col: i32[E], val: T[E], X: T[K, N], Y: out T[M, N])
where M1 == M + 1
key bucket(M), N
tune BN = 64 | 128 | 256, BE = 8 | 16 | 32
grid m < M, n < ceildiv(N, BN)
{
  fragment x: f32[BE, BN], y: f32[BN] = 0, v: f32[BE]
  let first = ptr[m], count = ptr[m + 1] - ptr[m]
  for e < ceildiv(count, BE) {
    x = X[col[first + e*BE +: BE] within first +: count pad -1, n*BN +: BN]
    v = val[first + e*BE +: BE] within first +: count
    parallel j < BN { y[j] += sum[i < BE](v[i] * x[i, j]) }
  }
  Y[m, n*BN +: BN] = y
}
"""


def fill_ptr(s, t, d):
    cuts = torch.randint(0, d["E"] + 1, (s[0] - 2,), device=DEV).sort().values
    ends = torch.tensor([0], device=DEV), torch.tensor([d["E"]], device=DEV)
    return torch.cat((ends[0], cuts, ends[1])).to(torch.int32)


def spmm(t, d):
    row = torch.repeat_interleave(torch.arange(d["M"], device=t.X.device), t.ptr.diff().long(), output_size=d["E"])
    return torch.zeros(d["M"], d["N"], dtype=wide(t.X).dtype, device=t.X.device).index_add_(
        0, row, wide(t.X)[t.col.long()] * wide(t.val)[:, None]).to(t.X.dtype)


# ---- a matrix of blocks of 64 x 64 that are there (BSR by block rows) times a dense one
BSR = """tile 1
kernel bsr_matmul<T: f16 | bf16>(ptr: i32[R1], col: i32[E], val: T[E, 64, 64], X: T[K, N], Y: out T[M, N])
where M == 64 * (R1 - 1)
key M, N
tune BN = 128 | 64 | 256, stages = 3 | 4 | 2
grid r < R1 - 1, n < ceildiv(N, BN)
{
  shared   w: T[64, 64], x: T[64, BN]
  fragment acc: f32[64, BN] = 0
  pipelined e in ptr[r] .. ptr[r + 1], stages {
    w = val[e, :, :]
    x = X[col[e]*64 +: 64, n*BN +: BN]
    acc += w @ x
  }
  Y[r*64 +: 64, n*BN +: BN] = acc
}
"""


def fill_block_ptr(s, t, d):
    cuts = torch.randint(0, d["E"] + 1, (s[0] - 2,)).sort().values.tolist()
    ends = torch.tensor([0, *cuts, d["E"]])
    t.row = torch.repeat_interleave(torch.arange(s[0] - 1), ends.diff()).to(DEV)
    return ends.to(torch.int32).to(DEV)


def bsr_matmul(t, d):
    x = t.X.unflatten(0, (-1, 64))[t.col.long()]
    parts = wide(t.val @ x)
    return torch.zeros(d["R1"] - 1, 64, d["N"], dtype=parts.dtype, device=parts.device).index_add_(0, t.row, parts).flatten(0, 1).to(t.X.dtype)


def dense_matmul(t, d):
    key = d["M"], d["K"], str(t.X.device)
    if key not in DENSE:
        DENSE[key] = torch.randn(d["M"], d["K"], device=t.X.device).to(t.X.dtype)
    return DENSE[key] @ t.X


DENSE = {}

# ---- attention with a mask of booleans that the host has made, [B, 1, Sq, Sk]; rows that see nothing are 0
MASKED = """tile 1
kernel masked_attention<T: f16 | bf16>(Q: T[B, H, Sq, D], K: T[B, H, Sk, D], V: T[B, H, Sk, D], mask: bool[B, 1, Sq, Sk], O: out T[B, H, Sq, D], scale: f32)
key bucket(Sq), bucket(Sk), D
tune BM = 128 | 64, BN = 64 | 128 | 32, stages = 2 | 3
grid b < B, m < ceildiv(Sq, BM), h < H
{
  shared   q: T[BM, D], k: T[BN, D], v: T[BN, D], see: bool[BM, BN]
  fragment s: f32[BM, BN], p: T[BM, BN], o: f32[BM, D] = 0, top: f32[BM] = -1e30, total: f32[BM] = 0, fix: f32[BM]
  q = Q[b, h, m*BM +: BM, :]
  pipelined n < ceildiv(Sk, BN), stages {
    k = K[b, h, n*BN +: BN, :]
    v = V[b, h, n*BN +: BN, :]
    see = mask[b, 0, m*BM +: BM, n*BN +: BN]
    s = q @ k^T
    parallel i < BM, j < BN { s[i, j] = see[i, j] ? s[i, j] * scale : -inf }
    parallel i < BM {
      let most = max(top[i], max[j < BN](s[i, j]))
      fix[i] = exp(top[i] - most)
      top[i] = most
    }
    parallel i < BM, j < BN { s[i, j] = exp(s[i, j] - top[i]) }
    parallel i < BM { total[i] = total[i] * fix[i] + sum[j < BN](s[i, j]) }
    parallel i < BM, e < D { o[i, e] *= fix[i] }
    p = s
    o += p @ v
  }
  parallel i < BM, e < D { o[i, e] = total[i] > 0 ? o[i, e] / total[i] : 0 }
  O[b, h, m*BM +: BM, :] = o
}
"""


def fill_bool(s, t, d):
    m = torch.rand(s, device=DEV) < 0.5
    m[..., 0] = True
    return m


def masked_attention(t, d):
    return sdpa(t.Q, t.K, t.V, attn_mask=t.mask, scale=t.scale)


# ---- a norm of rows in front of a product: y = (x rsqrt(mean x x + eps) * g) W^T, in one kernel, the factor at the end
NORM_GEMM = """tile 1
kernel rmsnorm_linear<T: f16 | bf16>(X: T[M, K], g: T[K], W: T[N, K], Y: out T[M, N], eps: f32)
key bucket(M), N, K
tune BM = 64 | 128, BN = 128 | 64 | 256, BK = 64 | 32, stages = 3 | 4
grid m < ceildiv(M, BM), n < ceildiv(N, BN)
{
  shared   x: T[BM, BK], w: T[BN, BK], gs: T[BK]
  fragment xg: T[BM, BK], acc: f32[BM, BN] = 0, sq: f32[BM] = 0
  pipelined k < ceildiv(K, BK), stages {
    x = X[m*BM +: BM, k*BK +: BK]
    w = W[n*BN +: BN, k*BK +: BK]
    gs = g[k*BK +: BK]
    parallel i < BM { sq[i] += sum[j < BK](f32(x[i, j]) * x[i, j]) }
    parallel i < BM, j < BK { xg[i, j] = x[i, j] * gs[j] }
    acc += xg @ w^T
  }
  parallel i < BM { sq[i] = rsqrt(sq[i] / K + eps) }
  parallel i < BM, j < BN { acc[i, j] *= sq[i] }
  Y[m*BM +: BM, n*BN +: BN] = acc
}
"""


def rmsnorm_linear(t, d):
    x = wide(t.X)
    return ((x * (x.square().mean(-1, keepdim=True) + t.eps).rsqrt()).to(t.X.dtype) * t.g) @ t.W.T


# ---- depthwise convolution 7 x 7, NHWC, with bias (ConvNeXt)
DEPTHWISE = """tile 1
kernel depthwise7<T: f16 | bf16>(X: T[N, H, W, C], F: T[7, 7, C], bias: T[C], Y: out T[N, H, W, C])
key bucket(N), H, W, C
tune BW = 4 | 8 | 16, BC = 32 | 64 | 128
grid n < N, h < H, w < ceildiv(W, BW), c < ceildiv(C, BC)
{
  fragment y: f32[BW, BC], b: f32[BC]
  b = bias[c*BC +: BC]
  parallel i < BW, j < BC {
    y[i, j] = b[j] + sum[r < 7, s < 7](X[n, h + r - 3, w*BW + i + s - 3, c*BC + j] * F[r, s, c*BC + j])
  }
  Y[n, h, w*BW +: BW, c*BC +: BC] = y
}
"""


def depthwise7(t, d):
    w = t.F.permute(2, 0, 1)[:, None]
    return F.conv2d(t.X.permute(0, 3, 1, 2), w, t.bias, padding=3, groups=d["C"]).permute(0, 2, 3, 1)


# ---- maxima of 3 x 3 windows, stride 2, with their places, NCHW
POOL = """tile 1
kernel max_pool<T: f32 | f16 | bf16>(X: T[N, C, H, W], Y: out T[N, C, OH, OW], at: out i32[N, C, OH, OW])
where OH == (H - 1) / 2 + 1, OW == (W - 1) / 2 + 1
key bucket(N*C), H, W
tune BP = 256 | 512 | 1024
grid n < N, c < C, p < ceildiv(OH*OW, BP)
{
  parallel i < BP {
    let q = p*BP + i
    let y = q / OW * 2 - 1, x = q % OW * 2 - 1
    let most = max[r < 3, s < 3](y + r >= 0 && y + r < H && x + s >= 0 && x + s < W ? X[n, c, y + r, x + s] : -inf)
    let where_ = argmax[r < 3, s < 3](y + r >= 0 && y + r < H && x + s >= 0 && x + s < W ? X[n, c, y + r, x + s] : -inf)
    if q < OH*OW {
      Y[n, c, q / OW, q % OW] = most
      at[n, c, q / OW, q % OW] = i32((y + where_ / 3) * W + x + where_ % 3)
    }
  }
}
"""


def max_pool(t, d):
    y, at = F.max_pool2d(t.X, 3, 2, 1, return_indices=True)
    return y, at.to(torch.int32)


CASES = [
    Case("sort_rows", SORT, {"large": dict(R=16384, N=1024), "odd": dict(R=1999, N=777), "small": dict(R=5, N=90)}, sort_rows, types={"T": "f32"}),
    Case("assoc_scan", ASSOC, {"large": dict(B=8, S=2048, D=2048), "odd": dict(B=3, S=701, D=1003), "small": dict(B=2, S=70, D=40)}, assoc_scan,
         types=B16, compiled=False),
    Case("spmm_csr", SPMM, {"large": dict(M1=32769, M=32768, E=1048576, K=32768, N=128), "odd": dict(M1=5004, M=5003, E=70001, K=3001, N=93),
                            "small": dict(M1=31, M=30, E=200, K=50, N=40)}, spmm, types={"T": "f32"}, fills={
                                "ptr": fill_ptr, "col": lambda s, t, d: torch.randint(0, d["K"], s, device=DEV).to(torch.int32)}),
    Case("bsr_matmul", BSR, {"large": dict(R1=65, M=4096, E=1024, K=4096, N=4096), "odd": dict(R1=32, M=1984, E=300, K=2048, N=1001),
                             "small": dict(R1=4, M=192, E=6, K=192, N=70)}, bsr_matmul, types=H16, compiled=False, fills={
                                 "ptr": fill_block_ptr, "col": lambda s, t, d: torch.randint(0, d["K"] // 64, s, device=DEV).to(torch.int32)},
         peers={"dense": dense_matmul}),
    Case("masked_attention", MASKED, {"large": dict(B=4, H=16, Sq=2048, Sk=2048, D=64), "odd": dict(B=2, H=5, Sq=701, Sk=1003, D=72),
                                      "small": dict(B=1, H=2, Sq=70, Sk=90, D=24)}, masked_attention, types=B16,
         fills={"scale": scaled, "mask": fill_bool}),
    Case("rmsnorm_linear", NORM_GEMM, {"large": dict(M=8192, K=2048, N=4096), "odd": dict(M=1999, K=1111, N=1301), "small": dict(M=70, K=130, N=90)},
         rmsnorm_linear, types=B16, fills={"eps": const(1e-6)}, tolerance=1e-2, peers={"matmul": lambda t, d: t.X @ t.W.T}),
    Case("depthwise7", DEPTHWISE, {"large": dict(N=16, H=56, W=56, C=384), "odd": dict(N=3, H=37, W=41, C=101), "small": dict(N=1, H=9, W=8, C=20)},
         depthwise7, types=H16),
    Case("max_pool", POOL, {"large": dict(N=64, C=64, H=112, W=112, OH=56, OW=56), "odd": dict(N=3, C=13, H=61, W=47, OH=31, OW=24),
                            "small": dict(N=2, C=3, H=9, W=8, OH=5, OW=4)}, max_pool, types={"T": "f32"}),
]
