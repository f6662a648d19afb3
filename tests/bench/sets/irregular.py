"""Segments, bags, scattered sums, graphs."""
import torch
import torch.nn.functional as F
from sets.shared.sparse import DEVICE, below, columns, normal, pointer, rows1
from unseen import Case


# --- segments ----------------------------------------------------------------------------------------------------------
SEGMENTS = """tile 1
kernel segments(ptr: i32[R1], X: f32[E, D], Y: out f32[R, D])
where R1 == R + 1
key  bucket(R), bucket(E), D
tune BK = 4 | 8 | 16 | 32, BD = 32 | 64 | 128, threads = 32 | 64 | 128
grid r < R, c < ceildiv(D, BD)
{
  fragment x: f32[BK, BD], acc: f32[BD] = 0
  let first = ptr[r], count = ptr[r + 1] - ptr[r]
  for t < ceildiv(count, BK) {
    x = X[first + t*BK +: BK, c*BD +: BD] within first +: count
    parallel d < BD { acc[d] += sum[j < BK](x[j, d]) }
  }
  Y[r, c*BD +: BD] = acc
}
"""


def segments(t, d):
    return torch.segment_reduce(t.X, "sum", offsets=t.ptr, axis=0)


def segments_added(t, d):
    return torch.zeros(d["R"], d["D"], device=DEVICE, dtype=t.X.dtype).index_add_(0, t.row, t.X)


# --- bags of embeddings ------------------------------------------------------------------------------------------------
BAGS = """tile 1
kernel bags(ptr: i32[R1], index: i32[E], weight: f32[E], W: f32[V, D], Y: out f32[R, D])
where R1 == R + 1
key  bucket(R), bucket(E), D
tune BK = 4 | 8 | 16 | 32, threads = 32 | 64 | 128
grid r < R
{
  fragment x: f32[BK, D], acc: f32[D] = 0
  let first = ptr[r], count = ptr[r + 1] - ptr[r]
  for t < ceildiv(count, BK) {
    x = W[index[first + t*BK +: BK] within first +: count pad -1, :]
    parallel d < D { acc[d] += sum[j < BK](weight[first + t*BK + j] * x[j, d]) }
  }
  Y[r, :] = acc
}
"""

# bags of one length from many tables, as recommenders have them
BAGS_FIXED = """tile 1
kernel bags_fixed(W: f16[T, V, D], index: i32[T, B, L], Y: out f16[B, T, D])
key  bucket(B), T, L, D
tune BB = 1 | 2 | 4 | 8, threads = 32 | 64 | 128
grid t < T, b < ceildiv(B, BB)
{
  fragment y: f32[BB, D] = 0
  for l < L {
    parallel i < BB, d < D { y[i, d] += W[t, index[t, b*BB + i, l], d] }
  }
  parallel i < BB, d < D { y[i, d] /= L }
  Y[b*BB +: BB, t, :] = y
}
"""


def bags(t, d):
    return F.embedding_bag(t.index, t.W, t.ptr, mode="sum", per_sample_weights=t.weight, include_last_offset=True)


def bags_fixed(t, d):  # one product-sized table: numbers with the tables' offsets, made ahead
    if not hasattr(t, "flat"):
        at = t.index.long() + torch.arange(d["T"], device=DEVICE)[:, None, None] * d["V"]
        t.flat = at.transpose(0, 1).reshape(-1, d["L"]).contiguous()
    return F.embedding_bag(t.flat, t.W.view(-1, d["D"]), mode="mean").view(d["B"], d["T"], d["D"])


# --- scatter-add by ascending numbers -----------------------------------------------------------------------------------
ZERO = """
kernel zero(Y: out f32[M, D])
key  bucket(M), D
tune BM = 16 | 64
grid m < ceildiv(M, BM)
{
  fragment y: f32[BM, D] = 0
  Y[m*BM +: BM, :] = y
}
"""

SCATTER = """tile 1
kernel add(index: i32[N], X: f32[N, D], Y: inout f32[M, D])
key  bucket(N), D
tune BN = 8 | 16 | 32 | 64, threads = 128 | 256
grid n < ceildiv(N, BN)
{
  fragment x: f32[BN, D]
  x = X[n*BN +: BN, :]
  parallel i < BN, d < D {
    if n*BN + i < N { atomic Y[index[n*BN + i], d] += x[i, d] }
  }
}
""" + ZERO + """
program scatter(index: i32[N], X: f32[N, D], Y: out f32[M, D])
key bucket(N), D
{
  zero(Y)
  add(index, X, Y)
}
"""

# rows near each other go to places near each other: most are added in the block first
SCATTER_NEAR = """tile 1
kernel add(index: i32[N], X: f32[N, D], Y: inout f32[M, D])
key  bucket(N), D
tune BN = 64 | 128 | 256, H = 8 | 16 | 32 | 64, threads = 128 | 256
grid n < ceildiv(N, BN)
{
  shared h: f32[H, D] = 0
  let base = index[n*BN]
  parallel i < BN, d < D {
    let at = index[n*BN + i]
    if n*BN + i < N {
      if at - base < H { atomic h[at - base, d] += X[n*BN + i, d] } else { atomic Y[at, d] += X[n*BN + i, d] }
    }
  }
  parallel j < H, d < D {
    if h[j, d] != 0 { atomic Y[base + j, d] += h[j, d] }
  }
}
""" + ZERO + """
program scatter_near(index: i32[N], X: f32[N, D], Y: out f32[M, D])
key bucket(N), D
{
  zero(Y)
  add(index, X, Y)
}
"""


def scatter(t, d):
    return torch.zeros(d["M"], d["D"], device=DEVICE, dtype=t.X.dtype).index_add_(0, t.index, t.X)


# --- graph attention ---------------------------------------------------------------------------------------------------
GAT = """tile 1
kernel gat(ptr: i32[V1], col: i32[E], X: f16[V, H, D], L: f32[V, H], R: f32[V, H], Y: out f16[V, H, D])
where V1 == V + 1
key  bucket(V), bucket(E), H, D
tune BK = 4 | 8 | 16 | 32, threads = 64 | 128 | 256
grid v < V
{
  fragment x: f16[BK, H, D], s: f32[BK, H], acc: f32[H, D] = 0
  fragment m: f32[H] = -1e30, l: f32[H] = 0, alpha: f32[H]
  let first = ptr[v], count = ptr[v + 1] - ptr[v]
  for t < ceildiv(count, BK) {
    x = X[col[first + t*BK +: BK] within first +: count pad -1, :, :]
    parallel j < BK, h < H {
      let e = L[col[first + t*BK + j], h] + R[v, h]
      s[j, h] = t*BK + j < count ? max(e, 0.2 * e) : -inf
    }
    parallel h < H {
      let most = max(m[h], max[j < BK](s[j, h]))
      alpha[h] = exp(m[h] - most)
      m[h] = most
    }
    parallel j < BK, h < H { s[j, h] = exp(s[j, h] - m[h]) }
    parallel h < H { l[h] = l[h] * alpha[h] + sum[j < BK](s[j, h]) }
    parallel h < H, d < D { acc[h, d] = acc[h, d] * alpha[h] + sum[j < BK](s[j, h] * x[j, h, d]) }
  }
  parallel h < H, d < D { acc[h, d] = l[h] > 0 ? acc[h, d] / l[h] : 0 }
  Y[v, :, :] = acc
}
"""


def gat(t, d):
    row, col = t.row, t.col.long()
    e = F.leaky_relu(t.L[col] + t.R[row], 0.2)
    most = torch.full_like(t.L, -1e30).scatter_reduce(0, row[:, None].expand_as(e), e, "amax")
    p = torch.exp(e - most[row])
    p = p / torch.zeros_like(t.L).index_add(0, row, p)[row]
    y = torch.zeros(t.X.shape, device=t.X.device, dtype=p.dtype).index_add(0, row, t.X[col] * p[..., None])
    return y.to(t.X.dtype)


segment_sizes = rows1({"large": dict(R=20000, E=1000000, D=128), "odd": dict(R=30011, E=400009, D=77), "small": dict(R=7, E=41, D=19)})
bag_sizes = rows1({"large": dict(R=16384, E=650000, V=1000000, D=128), "odd": dict(R=9973, E=200003, V=500009, D=60),
                   "small": dict(R=7, E=33, V=50, D=20)})
gat_sizes = rows1({"large": dict(V=100000, E=2500000, H=4, D=64), "odd": dict(V=70001, E=900007, H=3, D=40),
                   "small": dict(V=9, E=47, H=2, D=8)}, "V")
scatter_sizes = {"large": dict(N=1000000, D=64, M=100000), "odd": dict(N=400009, D=51, M=33333), "small": dict(N=137, D=9, M=21)}


def ascending(shape, t, d):
    return torch.randint(0, d["M"], shape, device=DEVICE).sort()[0].to(torch.int32)


scatter_fills = {"index": ascending, "X": normal(torch.float32)}

CASES = [
    Case("segment_sums", SEGMENTS, segment_sizes, segments, reference=segments_added, fills={"ptr": pointer("E"), "X": normal(torch.float32)},
         compiled=False, peers={"index_add": segments_added}, tolerance=1e-5),
    Case("embedding_bags", BAGS, bag_sizes, bags, fills={"ptr": pointer("E"), "index": below("V"), "weight": normal(torch.float32)},
         compiled=False, tolerance=1e-5),
    Case("embedding_bags_fixed", BAGS_FIXED, {"large": dict(T=26, V=200000, D=64, B=4096, L=20), "odd": dict(T=7, V=100003, D=48, B=3001, L=13),
                                              "small": dict(T=2, V=31, D=12, B=5, L=3)},
         bags_fixed, fills={"index": below("V")}, compiled=False, tolerance=2e-3),
    Case("scatter_add", SCATTER, scatter_sizes, scatter, kernel="scatter", fills=scatter_fills, tolerance=1e-5),
    Case("scatter_add_near", SCATTER_NEAR, scatter_sizes, scatter, kernel="scatter_near", fills=scatter_fills, tolerance=1e-5),
    Case("graph_attention", GAT, gat_sizes, gat, tolerance=2e-3,
         fills={"ptr": pointer("E"), "col": columns("V"), "X": normal(torch.float16), "L": normal(torch.float32), "R": normal(torch.float32)}),
]
