"""Sparse and irregular work: CSR, BSR, ELL, segments, graphs, bags, selection, sorting passes, attention by lists."""
import sys

import torch
import torch.nn.functional as F
from unseen import Case

DEVICE = "cpu" if "--check" in sys.argv or not torch.cuda.is_available() else "cuda"


def normal(dtype):
    return lambda shape, t, d: torch.randn(shape, device=DEVICE).to(dtype)


def csr_rows(rows, edges, skew=1.5):
    """how many of `edges` each row has, some many more than others"""
    row = (torch.rand(edges, device=DEVICE) ** skew * rows).long().clamp(max=rows - 1)
    row = torch.randperm(rows, device=DEVICE)[row]
    return torch.bincount(row, minlength=rows)


def pointer(edges, skew=1.5):  # sets t.row, the row of each edge, as well
    def fill(shape, t, d):
        rows = shape[0] - 1
        n = csr_rows(rows, d[edges], skew)
        t.row = torch.repeat_interleave(torch.arange(rows, device=DEVICE), n)
        return F.pad(n.cumsum(0), (1, 0)).to(torch.int32)
    return fill


def columns(extent):  # ascending within a row
    def fill(shape, t, d):
        c = torch.randint(0, d[extent], shape, device=DEVICE)
        return ((t.row * d[extent] + c).sort()[0] % d[extent]).to(torch.int32)
    return fill


def csr(t, d, rows, cols):
    if not hasattr(t, "sparse") or t.sparse.dtype != t.val.dtype:
        t.sparse = torch.sparse_csr_tensor(t.ptr, t.col, t.val, (rows, cols))
    return t.sparse


# --- CSR times a vector ------------------------------------------------------------------------------------------------
SPMV = """tile 1
kernel spmv(ptr: i32[R1], col: i32[E], val: f32[E], X: f32[C], Y: out f32[R])
where R1 == R + 1
key  bucket(R), bucket(E)
tune rows = 1 | 4 | 8 | 16 | 32, BK = 8 | 16 | 32 | 64, threads = 128 | 256
where rows * BK <= 1024 && rows * BK >= 32
grid r < ceildiv(R, rows)
{
  fragment acc: f32[rows] = 0, first: i32[rows], length: i32[rows]
  parallel i < rows {
    let row = r*rows + i
    first[i]  = ptr[row]
    length[i] = row < R ? ptr[row + 1] - ptr[row] : 0
  }
  for t < ceildiv(max[i < rows](length[i]), BK) {
    parallel i < rows {
      acc[i] += sum[j < BK](let k = t*BK + j, at = first[i] + k in k < length[i] ? val[at] * X[col[at]] : 0)
    }
  }
  Y[r*rows +: rows] = acc
}
"""


def spmv(t, d):
    return csr(t, d, d["R"], d["C"]) @ t.X


def spmv_reference(t, d):
    return torch.zeros(d["R"], device=DEVICE, dtype=torch.double).index_add_(0, t.row, t.val * t.X[t.col.long()])


# --- CSR times a matrix: a row a block, its neighbours a tile; and several rows a block, an edge of each at a time ------
SPMM_TILE = """tile 1
kernel spmm_tile(ptr: i32[R1], col: i32[E], val: f32[E], X: f16[C, D], Y: out f16[R, D])
where R1 == R + 1
key  bucket(R), bucket(E), D
tune BK = 8 | 16 | 32, threads = 32 | 64 | 128
grid r < R
{
  fragment x: f16[BK, D], v: f32[BK], acc: f32[D] = 0
  let first = ptr[r], count = ptr[r + 1] - ptr[r]
  for t < ceildiv(count, BK) {
    x = X[col[first + t*BK +: BK] within first +: count pad -1, :]
    v = val[first + t*BK +: BK] within first +: count
    parallel d < D { acc[d] += sum[j < BK](v[j] * x[j, d]) }
  }
  Y[r, :] = acc
}
"""
SPMM_ROWS = """tile 1
kernel spmm_rows(ptr: i32[R1], col: i32[E], val: f32[E], X: f16[C, D], Y: out f16[R, D])
where R1 == R + 1
key  bucket(R), bucket(E), D
tune rows = 1 | 2 | 4 | 8, U = 1 | 2 | 4 | 8, threads = 64 | 128
grid r < ceildiv(R, rows)
{
  fragment acc: f32[rows, D] = 0, first: i32[rows], length: i32[rows]
  parallel i < rows {
    let row = r*rows + i
    first[i]  = ptr[row]
    length[i] = row < R ? ptr[row + 1] - ptr[row] : 0
  }
  for t < ceildiv(max[i < rows](length[i]), U) {
    parallel i < rows, d < D {
      acc[i, d] += sum[u < U](let k = t*U + u, at = first[i] + k in k < length[i] ? val[at] * X[col[at], d] : 0)
    }
  }
  Y[r*rows +: rows, :] = acc
}
"""


def spmm(t, d):
    if not hasattr(t, "val16"):
        t.val16 = torch.sparse_csr_tensor(t.ptr, t.col, t.val.half(), (d["R"], d["C"]))
    return t.val16 @ t.X


def spmm_gathered(t, d):
    return torch.zeros(d["R"], d["D"], device=DEVICE).index_add_(0, t.row, t.X[t.col] * t.val[:, None]).half()


def spmm_reference(t, d):
    out = torch.zeros(d["R"], d["D"], device=DEVICE, dtype=torch.double)
    for at in range(0, d["E"], 1 << 20):
        s = slice(at, at + (1 << 20))
        out.index_add_(0, t.row[s], t.X[t.col[s].long()] * t.val[s, None])
    return out


# --- BSR, blocks of 64 x 64 --------------------------------------------------------------------------------------------
BSR = """tile 1
kernel bsr(ptr: i32[R1], col: i32[E], val: f16[E, 64, 64], X: f16[C, N], Y: out f16[R, 64, N])
where R1 == R + 1
key  bucket(E), R, N
tune BN = 64 | 128 | 256, stages = 2 | 3 | 4 | 6, threads = 128 | 256
grid r < R, n < ceildiv(N, BN)
{
  shared   a: f16[64, 64], x: f16[64, BN]
  fragment acc: f32[64, BN] = 0
  pipelined e in ptr[r] .. ptr[r + 1], stages {
    a = val[e, :, :]
    x = X[col[e] * 64 +: 64, n*BN +: BN]
    acc += a @ x
  }
  Y[r, :, n*BN +: BN] = acc
}
"""


def bsr_pointer(shape, t, d):
    at = torch.randperm(d["R"] * d["CB"], device=DEVICE)[:d["E"]].sort()[0]
    t.row, t.block_col = at // d["CB"], (at % d["CB"]).to(torch.int32)
    return F.pad(torch.bincount(t.row, minlength=d["R"]).cumsum(0), (1, 0)).to(torch.int32)


def bsr(t, d):
    if not hasattr(t, "sparse"):
        t.sparse = torch.sparse_bsr_tensor(t.ptr, t.col, t.val, (64 * d["R"], d["C"]))
    return (t.sparse @ t.X).view(d["R"], 64, d["N"])


def bsr_dense(t, d):
    if not hasattr(t, "dense"):
        t.dense = torch.randn(64 * d["R"], d["C"], device=DEVICE).half()
    return t.dense @ t.X


def bsr_reference(t, d):
    w = torch.zeros(d["R"], d["CB"], 64, 64, device=DEVICE, dtype=torch.double)
    w[t.row, t.col.long()] = t.val
    return (w.transpose(1, 2).reshape(64 * d["R"], d["C"]) @ t.X).view(d["R"], 64, d["N"])


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


# --- sampled products --------------------------------------------------------------------------------------------------
SDDMM = """tile 1
kernel sddmm(row: i32[E], col: i32[E], val: f32[E], A: f16[R, D], B: f16[C, D], Y: out f32[E])
key  bucket(E), D
tune BE = 8 | 16 | 32 | 64, threads = 64 | 128 | 256
grid e < ceildiv(E, BE)
{
  fragment a: f16[BE, D], b: f16[BE, D], y: f32[BE]
  a = A[row[e*BE +: BE], :]
  b = B[col[e*BE +: BE], :]
  parallel i < BE { y[i] = val[e*BE + i] * sum[d < D](a[i, d] * b[i, d]) }
  Y[e*BE +: BE] = y
}
"""


def sddmm(t, d):
    return t.val * (t.A[t.row].float() * t.B[t.col].float()).sum(-1)


def sddmm_reference(t, d):
    out = torch.empty(d["E"], device=DEVICE, dtype=torch.double)
    for at in range(0, d["E"], 1 << 20):
        s = slice(at, at + (1 << 20))
        out[s] = t.val[s] * (t.A[t.row[s].long()] * t.B[t.col[s].long()]).sum(-1)
    return out


def sampled(t, d):
    if not hasattr(t, "pattern"):
        n = torch.bincount(t.row.long(), minlength=d["R"])
        t.pattern = torch.sparse_csr_tensor(F.pad(n.cumsum(0), (1, 0)).to(torch.int32), t.col, t.val, (d["R"], d["C"]))
        t.a32, t.b32 = t.A.float(), t.B.float().T.contiguous()
    return torch.sparse.sampled_addmm(t.pattern, t.a32, t.b32, beta=0)


def sorted_rows(shape, t, d):
    return torch.randint(0, d["R"], shape, device=DEVICE).sort()[0].to(torch.int32)


def below(extent):
    return lambda shape, t, d: torch.randint(0, d[extent], shape, device=DEVICE, dtype=torch.int32)


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


# --- ELL ---------------------------------------------------------------------------------------------------------------
ELL = """tile 1
kernel ell(val: f32[L, R], col: i32[L, R], X: f32[C], Y: out f32[R])
key  bucket(R), L
tune rows = 128 | 256 | 512 | 1024, U = 1 | 4 | 8, threads = 128 | 256
grid r < ceildiv(R, rows)
{
  fragment acc: f32[rows] = 0
  for l < ceildiv(L, U) {
    parallel i < rows { acc[i] += sum[u < U](val[l*U + u, r*rows + i] * X[col[l*U + u, r*rows + i]]) }
  }
  Y[r*rows +: rows] = acc
}
"""


def ell(t, d):
    return (t.val * t.X[t.col]).sum(0)


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


# --- the largest of rows -----------------------------------------------------------------------------------------------
TOPK = """tile 1
kernel topk(X: f32[N, E], best: out f32[N, K], place: out i32[N, K])
key  bucket(N), E, K
tune rows = 1 | 2 | 4 | 8 | 16 | 32, threads = 64 | 128 | 256
grid r < ceildiv(N, rows)
{
  fragment x: f32[rows, E], most: f32[rows], at: i32[rows]
  x = X[r*rows +: rows, :]
  for t < K {
    parallel i < rows {
      most[i] = max[j < E](x[i, j])
      at[i] = argmax[j < E](x[i, j])
    }
    parallel i < rows {
      best[r*rows + i, t] = most[i]
      place[r*rows + i, t] = at[i]
    }
    parallel i < rows, j < E { x[i, j] = j == at[i] ? -inf : x[i, j] }
  }
}
"""
# a vocabulary: 32 of each 4096, then 32 of those
TOPK_LONG = """tile 1
kernel parts(X: f32[N, V], best: out f32[N, Q], place: out i32[N, Q])
where Q == ceildiv(V, 4096) * 32
key  bucket(N), V
tune threads = 128 | 256 | 512
grid n < N, p < ceildiv(V, 4096)
{
  fragment x: f32[4096], most: f32[1], at: i32[1]
  x = X[n, p*4096 +: 4096] pad -inf
  for t < 32 {
    parallel i < 1 {
      most[i] = max[j < 4096](x[j])
      at[i] = argmax[j < 4096](x[j])
    }
    parallel i < 1 {
      best[n, p*32 + t] = most[i]
      place[n, p*32 + t] = p*4096 + at[i]
    }
    parallel j < 4096 { x[j] = j == at[0] ? -inf : x[j] }
  }
}

kernel join(part: f32[N, Q], from: i32[N, Q], best: out f32[N, 32], place: out i32[N, 32])
key  bucket(N), Q
tune threads = 64 | 128 | 256
grid n < N
{
  fragment x: f32[Q], most: f32[1], at: i32[1]
  x = part[n, :]
  for t < 32 {
    parallel i < 1 {
      most[i] = max[j < Q](x[j])
      at[i] = argmax[j < Q](x[j])
    }
    parallel i < 1 {
      best[n, t] = most[i]
      place[n, t] = from[n, at[i]]
    }
    parallel j < Q { x[j] = j == at[0] ? -inf : x[j] }
  }
}

program topk_long(X: f32[N, V], best: out f32[N, 32], place: out i32[N, 32])
key bucket(N), V
{
  temp part: f32[N, ceildiv(V, 4096) * 32], from: i32[N, ceildiv(V, 4096) * 32]
  parts(X, part, from)
  join(part, from, best, place)
}
"""
# a network: rows sorted downwards, with the places
BITONIC = """tile 1
kernel bitonic(X: f32[N, E], best: out f32[N, E], place: out i32[N, E])
where E == 64 || E == 256 || E == 512 || E == 1024 || E == 2048
key  bucket(N), E
tune rows = 1 | 2 | 4, threads = 64 | 128 | 256
grid r < ceildiv(N, rows)
{
  fragment x: f32[rows, E], at: i32[rows, E]
  x = X[r*rows +: rows, :]
  parallel i < rows, j < E { at[i, j] = j }
  for s < 11 {
    if 1 << s < E {
      for u < s + 1 {
        let h = 1 << (s - u), whole = 2 << s
        parallel i < rows, j < E {
          let mine = x[i, j], other = x[i, j ^ h]
          let large = ((j & h) == 0) == ((j & whole) == 0)
          let keep = large ? mine > other : mine < other
          x[i, j]  = keep ? mine : other
          at[i, j] = keep ? at[i, j] : at[i, j ^ h]
        }
      }
    }
  }
  best[r*rows +: rows, :] = x
  place[r*rows +: rows, :] = at
}
"""


def distinct(shape, t, d):  # no two elements of a row are equal
    n, e = shape
    x = torch.rand(shape, device=DEVICE).argsort(-1)
    return (x.float() - e // 2) / e


# --- radix passes ------------------------------------------------------------------------------------------------------
RADIX_COUNT = """tile 1
kernel clear(bins: out i32[256])
{
  parallel b < 256 { bins[b] = 0 }
}

kernel count(X: i32[N], bins: inout i32[256], shift: i32)
key bucket(N)
tune rounds = 4 | 8 | 16 | 32, W = 1024 | 2048, threads = 128 | 256 | 512
grid n < ceildiv(N, W * rounds)
{
  shared h: i32[256] = 0
  for r < rounds {
    parallel i < W {
      let at = (n*rounds + r)*W + i
      if at < N { atomic h[X[at] >> shift & 255] += 1 }
    }
  }
  parallel b < 256 { atomic bins[b] += h[b] }
}

program radix_count(X: i32[N], bins: out i32[256], shift: i32)
key bucket(N)
{
  clear(bins)
  count(X, bins, shift)
}
"""
# one stable pass over four bits: counts of parts, their sums before, and every element to its place
RADIX_PASS = """tile 1
kernel digits(X: i32[N], counts: out i32[16, P], shift: i32)
where P == ceildiv(N, 2048)
key bucket(N)
tune threads = 128 | 256 | 512
grid p < ceildiv(N, 2048)
{
  shared h: i32[16] = 0
  parallel i < 2048 {
    if p*2048 + i < N { atomic h[X[p*2048 + i] >> shift & 15] += 1 }
  }
  parallel b < 16 { counts[b, p] = h[b] }
}

kernel before(counts: i32[16, P], base: out i32[16, P])
key bucket(P)
tune BP = 1024 | 2048 | 4096, threads = 256 | 512
{
  fragment x: i32[BP], y: i32[BP], carry: i32[1] = 0
  for b < 16 {
    for p < ceildiv(P, BP) {
      x = counts[b, p*BP +: BP]
      parallel j < BP { y[j] = carry[0] + sum[k < j](x[k]) }
      parallel i < 1 { carry[i] += sum[j < BP](x[j]) }
      base[b, p*BP +: BP] = y
    }
  }
}

kernel move(X: i32[N], V: i32[N], base: i32[16, P], Y: out i32[N], W: out i32[N], shift: i32)
where P == ceildiv(N, 2048)
key bucket(N)
tune threads = 128 | 256 | 512
grid p < ceildiv(N, 2048)
{
  fragment x: i32[2048], v: i32[2048], at: i32[2048] = -1, digit: i32[2048]
  x = X[p*2048 +: 2048]
  v = V[p*2048 +: 2048]
  parallel i < 2048 { digit[i] = p*2048 + i < N ? x[i] >> shift & 15 : -1 }
  for b < 16 {
    parallel i < 2048 {
      let rank = sum[k < i](digit[k] == b ? i32(1) : i32(0))
      at[i] = digit[i] == b ? base[b, p] + rank : at[i]
    }
  }
  Y[at] = x
  W[at] = v
}

program radix_pass(X: i32[N], V: i32[N], Y: out i32[N], W: out i32[N], shift: i32)
key bucket(N)
{
  temp counts: i32[16, ceildiv(N, 2048)], base: i32[16, ceildiv(N, 2048)]
  digits(X, counts, shift)
  before(counts, base)
  move(X, V, base, Y, W, shift)
}
"""


def keys(shape, t, d):
    return torch.randint(0, 2**31, shape, device=DEVICE).to(torch.int32)


def radix_count(t, d):
    return torch.bincount(t.X >> int(t.shift) & 255, minlength=256)


def radix_pass(t, d):
    at = (t.X >> int(t.shift) & 15).to(torch.uint8).sort(stable=True)[1]
    return t.X[at], t.V[at]


# --- runs of equal keys ------------------------------------------------------------------------------------------------
RUNS = """tile 1
kernel heads(X: i32[N], counts: out i32[P])
where P == ceildiv(N, 4096)
key bucket(N)
tune threads = 128 | 256 | 512
grid p < ceildiv(N, 4096)
{
  fragment n: i32[1]
  parallel i < 1 {
    n[i] = sum[j < 4096](let at = p*4096 + j in at < N && (at == 0 || X[at] != X[at - 1]) ? i32(1) : i32(0))
  }
  counts[p +: 1] = n
}

kernel before(counts: i32[P], base: out i32[P])
key bucket(P)
tune BP = 1024 | 4096, threads = 256 | 512
{
  fragment x: i32[BP], y: i32[BP], carry: i32[1] = 0
  for p < ceildiv(P, BP) {
    x = counts[p*BP +: BP]
    parallel j < BP { y[j] = carry[0] + sum[k < j](x[k]) }
    parallel i < 1 { carry[i] += sum[j < BP](x[j]) }
    base[p*BP +: BP] = y
  }
}

kernel write(X: i32[N], base: i32[P], U: out i32[R], start: out i32[R])
where P == ceildiv(N, 4096)
key bucket(N)
tune threads = 128 | 256 | 512
grid p < ceildiv(N, 4096)
{
  fragment x: i32[4096], head: i32[4096], at: i32[4096], from: i32[4096]
  x = X[p*4096 +: 4096]
  parallel i < 4096 {
    let e = p*4096 + i
    head[i] = e < N && (e == 0 || x[i] != X[e - 1]) ? 1 : 0
    from[i] = e
  }
  parallel i < 4096 {
    let rank = sum[k < i](head[k])
    at[i] = head[i] != 0 ? base[p] + rank : -1
  }
  U[at] = x
  start[at] = from
}

kernel lengths(start: i32[R], L: out i32[R], N: i32)
key bucket(R)
tune BR = 256 | 1024
grid r < ceildiv(R, BR)
{
  fragment l: i32[BR]
  parallel i < BR {
    let e = r*BR + i
    l[i] = (e + 1 < R ? start[e + 1] : N) - start[e]
  }
  L[r*BR +: BR] = l
}

program runs(X: i32[N], U: out i32[R], L: out i32[R])
key bucket(N)
{
  temp counts: i32[ceildiv(N, 4096)], base: i32[ceildiv(N, 4096)], start: i32[R]
  heads(X, counts)
  before(counts, base)
  write(X, base, U, start)
  lengths(start, L, i32(N))
}
"""


def runs(t, d):
    return torch.unique_consecutive(t.X, return_counts=True)


def run_keys(shape, t, d):  # ascending, of exactly R values
    n, r = shape[0], d["R"]
    head = torch.zeros(n, device=DEVICE, dtype=torch.int32)
    head[torch.randperm(n - 1, device=DEVICE)[:r - 1] + 1] = 1
    return (head.cumsum(0) * 3 + 5).to(torch.int32)


# --- attention by lists ------------------------------------------------------------------------------------------------
# queries and keys in blocks of 128; a block of queries sees the blocks of keys that its list names
LISTED = """tile 1
kernel listed(Q: f16[B, H, S, D], K: f16[B, H, S, D], V: f16[B, H, S, D], count: i32[B, H, NB], list: i32[B, H, NB, L],
              O: out f16[B, H, S, D], scale: f32)
where NB == ceildiv(S, 128)
key  bucket(B * H), bucket(S), D, L
tune BM = 128 | 64, BN = 128 | 64 | 32, stages = 2 | 3 | 4
grid h < H, b < B, s < ceildiv(S, BM)
{
  shared   q: f16[BM, D], k: f16[BN, D], v: f16[BN, D]
  fragment S_: f32[BM, BN], P: f16[BM, BN], acc: f32[BM, D] = 0
  fragment m: f32[BM] = -1e30, l: f32[BM] = 0, alpha: f32[BM]
  let c = scale * log2e, u = s*BM / 128

  q = Q[b, h, s*BM +: BM, :]
  pipelined t < count[b, h, u] * (128 / BN), stages {
    let at = list[b, h, u, t / (128 / BN)] * 128 + t % (128 / BN) * BN
    k = K[b, h, at +: BN, :]
    v = V[b, h, at +: BN, :]
    S_ = q @ k^T
    parallel i < BM, j < BN { S_[i, j] = at + j <= s*BM + i ? S_[i, j] : -inf }
    parallel i < BM {
      let most = max(m[i], max[j < BN](S_[i, j]))
      let next = (most - m[i]) * c > 8 ? most : m[i]
      alpha[i] = exp2((m[i] - next) * c)
      m[i] = next
    }
    parallel i < BM, j < BN { S_[i, j] = exp2(S_[i, j] * c - m[i] * c) }
    parallel i < BM { l[i] = l[i] * alpha[i] + sum[j < BN](S_[i, j]) }
    P = S_
    parallel i < BM, d < D { acc[i, d] *= alpha[i] }
    acc += P @ v
  }
  parallel i < BM { l[i] = l[i] > 0 ? rcp(l[i]) : 0 }
  parallel i < BM, d < D { acc[i, d] *= l[i] }
  O[b, h, s*BM +: BM, :] = acc
}
"""


def block_counts(shape, t, d):
    return torch.arange(1, d["NB"] + 1, device=DEVICE).clamp(max=d["L"]).expand(shape).to(torch.int32)


def block_list(shape, t, d):  # the block itself, and others before it
    nb = d["NB"]
    x = torch.rand(*shape[:2], nb, nb, device=DEVICE)
    later = torch.ones(nb, nb, device=DEVICE, dtype=torch.bool).triu(1)
    x = x.masked_fill(later, 3).masked_fill(torch.eye(nb, device=DEVICE, dtype=torch.bool), 2)
    first = x.masked_fill(x > 1, 4).argsort(-1)  # the others before, in any order; then the block itself
    at = torch.arange(nb, device=DEVICE)
    own = (at.clamp(max=d["L"] - 1)).expand(x.shape[:3])
    first = first[..., :d["L"]].clone()
    return first.scatter_(3, own[..., None], at.expand(x.shape[:3])[..., None]).to(torch.int32)


def listed_reference(t, d):
    out, s = torch.empty_like(t.Q), d["S"]
    causal = torch.ones(s, s, device=DEVICE, dtype=torch.bool).tril()
    for b in range(d["B"]):
        for h in range(d["H"]):
            blocks = torch.zeros(d["NB"], d["NB"] + 1, device=DEVICE, dtype=torch.bool)
            at = torch.arange(d["L"], device=DEVICE) < t.count[b, h, :, None]
            blocks.scatter_(1, torch.where(at, t.list[b, h].long(), d["NB"]), True)
            mask = blocks[:, :-1].repeat_interleave(128, 0).repeat_interleave(128, 1)[:s, :s] & causal
            x = (t.Q[b, h] @ t.K[b, h].T * float(t.scale)).masked_fill_(~mask, -torch.inf)
            out[b, h] = x.softmax(-1) @ t.V[b, h]
    return out


def flex(t, d):
    from torch.nn.attention import flex_attention as fa
    if not hasattr(t, "mask"):
        nb = d["NB"]
        full = torch.zeros(d["B"], d["H"], nb, nb, device=DEVICE, dtype=torch.int32)
        full[..., :d["L"]] = t.list
        t.mask = fa.BlockMask.from_kv_blocks(t.count, full, BLOCK_SIZE=128, mask_mod=lambda b, h, q, k: q >= k)
        if not hasattr(flex, "compiled"):
            flex.compiled = torch.compile(fa.flex_attention, dynamic=False)
    return flex.compiled(t.Q, t.K, t.V, block_mask=t.mask, scale=t.scale)


def dense_attention(t, d):
    return F.scaled_dot_product_attention(t.Q, t.K, t.V, is_causal=True, scale=t.scale)


# each query sees tokens of its own, of one latent head of keys and values; -1 is nobody
TOKENS = """tile 1
kernel tokens(Q: bf16[T, H, C], KV: bf16[P, C], list: i32[T, L], O: out bf16[T, H, E], scale: f32)
where C == E + 64
key  bucket(T), H, C, bucket(L)
tune BH = 64 | 32 | 16, BN = 64 | 32 | 128, stages = 1 | 2, threads = 128 | 256
grid t < T, h < ceildiv(H, BH)
{
  shared   q: bf16[BH, C], k: bf16[BN, C]
  fragment s: f32[BH, BN], p: bf16[BH, BN], acc: f32[BH, E] = 0
  fragment m: f32[BH] = -1e30, l: f32[BH] = 0, alpha: f32[BH]
  let c = scale * log2e

  q = Q[t, h*BH +: BH, :]
  pipelined n < ceildiv(L, BN), stages {
    k = KV[list[t, n*BN +: BN] pad -1, :]
    s = q @ k^T
    parallel i < BH, j < BN { s[i, j] = n*BN + j < L && list[t, n*BN + j] >= 0 ? s[i, j] : -inf }
    parallel i < BH {
      let most = max(m[i], max[j < BN](s[i, j]))
      alpha[i] = exp2((m[i] - most) * c)
      m[i] = most
    }
    parallel i < BH, j < BN { s[i, j] = exp2(s[i, j] * c - m[i] * c) }
    parallel i < BH { l[i] = l[i] * alpha[i] + sum[j < BN](s[i, j]) }
    p = s
    parallel i < BH, e < E { acc[i, e] *= alpha[i] }
    acc += p @ k[:, 0 +: E]
  }
  parallel i < BH { l[i] = l[i] > 0 ? rcp(l[i]) : 0 }
  parallel i < BH, e < E { acc[i, e] *= l[i] }
  O[t, h*BH +: BH, :] = acc
}
"""


def token_list(shape, t, d):
    x = torch.randint(0, d["P"], shape, device=DEVICE)
    short = torch.randint(d["L"] // 2, 2 * d["L"], (shape[0], 1), device=DEVICE)
    return x.masked_fill(torch.arange(shape[1], device=DEVICE) >= short, -1).to(torch.int32)


def tokens(t, d):
    at = t.list.long()
    kv = t.KV[at.clamp(min=0)]
    s = (t.Q @ kv.transpose(1, 2)).float() * t.scale
    p = s.masked_fill((at < 0)[:, None], -torch.inf).softmax(-1).to(t.Q.dtype)
    return p @ kv[..., :d["E"]]


def tokens_reference(t, d):
    return torch.cat([tokens_exact(t, d, slice(at, at + 32)) for at in range(0, d["T"], 32)])


def tokens_exact(t, d, part):
    at = t.list[part].long()
    kv = t.KV[at.clamp(min=0)]
    s = (t.Q[part] @ kv.transpose(1, 2)) * float(t.scale)
    return s.masked_fill((at < 0)[:, None], -torch.inf).softmax(-1) @ kv[..., :d["E"]]


def rows1(sizes, name="R"):
    return {label: dict(one, **{name + "1": one[name] + 1}) for label, one in sizes.items()}


csr_fills = {"ptr": pointer("E"), "col": columns("C"), "val": normal(torch.float32)}
spmv_sizes = rows1({"large": dict(R=1 << 20, E=1 << 25, C=1 << 20), "odd": dict(R=300007, E=5000011, C=299993),
                    "short": dict(R=1 << 22, E=20000000, C=1 << 22), "small": dict(R=23, E=131, C=37)})
spmm_sizes = rows1({"large": dict(R=100000, E=3000000, C=100000, D=128), "wide": dict(R=20000, E=1000000, C=20000, D=512),
                    "odd": dict(R=70001, E=1000003, C=69997, D=100), "small": dict(R=13, E=71, C=17, D=20)})
bsr_sizes = rows1({"large": dict(R=128, CB=128, E=1640, C=8192, N=4096), "thin": dict(R=256, CB=256, E=6554, C=16384, N=64),
                   "odd": dict(R=67, CB=61, E=797, C=61 * 64, N=1003), "small": dict(R=3, CB=2, E=4, C=128, N=21)})
segment_sizes = rows1({"large": dict(R=20000, E=1000000, D=128), "odd": dict(R=30011, E=400009, D=77), "small": dict(R=7, E=41, D=19)})
bag_sizes = rows1({"large": dict(R=16384, E=650000, V=1000000, D=128), "odd": dict(R=9973, E=200003, V=500009, D=60),
                   "small": dict(R=7, E=33, V=50, D=20)})
gat_sizes = rows1({"large": dict(V=100000, E=2500000, H=4, D=64), "odd": dict(V=70001, E=900007, H=3, D=40),
                   "small": dict(V=9, E=47, H=2, D=8)}, "V")
scatter_sizes = {"large": dict(N=1000000, D=64, M=100000), "odd": dict(N=400009, D=51, M=33333), "small": dict(N=137, D=9, M=21)}


def ascending(shape, t, d):
    return torch.randint(0, d["M"], shape, device=DEVICE).sort()[0].to(torch.int32)


scatter_fills = {"index": ascending, "X": normal(torch.float32)}
listed_sizes = {"large": dict(B=1, H=16, S=16384, D=128, NB=128, L=16), "odd": dict(B=2, H=5, S=5003, D=64, NB=40, L=7),
                "small": dict(B=1, H=1, S=301, D=32, NB=3, L=2)}

CASES = [
    Case("csr_spmv", SPMV, spmv_sizes, spmv, fills=csr_fills, reference=spmv_reference, compiled=False, tolerance=1e-5),
    Case("csr_spmm_tile", SPMM_TILE, spmm_sizes, spmm_gathered, fills=csr_fills, reference=spmm_reference, peers={"csr": spmm}, tolerance=2e-3),
    Case("csr_spmm_rows", SPMM_ROWS, spmm_sizes, spmm_gathered, fills=csr_fills, reference=spmm_reference, peers={"csr": spmm}, tolerance=2e-3),
    Case("bsr", BSR, bsr_sizes, bsr, reference=bsr_reference, compiled=False, peers={"dense": bsr_dense}, tolerance=2e-3,
         fills={"ptr": bsr_pointer, "col": lambda s, t, d: t.block_col, "val": normal(torch.float16), "X": normal(torch.float16)}),
    Case("segment_sums", SEGMENTS, segment_sizes, segments, reference=segments_added, fills={"ptr": pointer("E"), "X": normal(torch.float32)},
         compiled=False, peers={"index_add": segments_added}, tolerance=1e-5),
    Case("sddmm", SDDMM, {"large": dict(E=2000000, R=100000, C=100000, D=128), "odd": dict(E=700001, R=50021, C=49999, D=76),
                          "small": dict(E=53, R=11, C=13, D=20)},
         sddmm, reference=sddmm_reference, peers={"sampled_addmm": sampled}, tolerance=1e-5,
         fills={"row": sorted_rows, "col": below("C")}),
    Case("embedding_bags", BAGS, bag_sizes, bags, fills={"ptr": pointer("E"), "index": below("V"), "weight": normal(torch.float32)},
         compiled=False, tolerance=1e-5),
    Case("embedding_bags_fixed", BAGS_FIXED, {"large": dict(T=26, V=200000, D=64, B=4096, L=20), "odd": dict(T=7, V=100003, D=48, B=3001, L=13),
                                              "small": dict(T=2, V=31, D=12, B=5, L=3)},
         bags_fixed, fills={"index": below("V")}, compiled=False, tolerance=2e-3),
    Case("ell_spmv", ELL, {"large": dict(L=27, R=1 << 20, C=1 << 20), "odd": dict(L=19, R=700001, C=699999), "small": dict(L=5, R=37, C=41)},
         ell, fills={"col": below("C")}, tolerance=1e-5),
    Case("scatter_add", SCATTER, scatter_sizes, scatter, kernel="scatter", fills=scatter_fills, tolerance=1e-5),
    Case("scatter_add_near", SCATTER_NEAR, scatter_sizes, scatter, kernel="scatter_near", fills=scatter_fills, tolerance=1e-5),
    Case("graph_attention", GAT, gat_sizes, gat, tolerance=2e-3,
         fills={"ptr": pointer("E"), "col": columns("V"), "X": normal(torch.float16), "L": normal(torch.float32), "R": normal(torch.float32)}),
    Case("topk_router", TOPK, {"large": dict(N=32768, E=256, K=8), "wide": dict(N=4096, E=2048, K=16), "odd": dict(N=10007, E=161, K=6),
                               "small": dict(N=5, E=19, K=3)},
         lambda t, d: torch.topk(t.X, d["K"]), fills={"X": distinct}, compiled=False),
    Case("topk_vocabulary", TOPK_LONG, {"large": dict(N=128, V=131072), "odd": dict(N=77, V=50257), "small": dict(N=2, V=5003)},
         lambda t, d: torch.topk(t.X, 32), kernel="topk_long", fills={"X": distinct}, compiled=False),
    Case("bitonic_sort", BITONIC, {"large": dict(N=16384, E=1024), "long": dict(N=4096, E=2048), "odd": dict(N=10007, E=256),
                                   "small": dict(N=3, E=64)},
         lambda t, d: torch.sort(t.X, descending=True), fills={"X": distinct}, compiled=False),
    Case("radix_count", RADIX_COUNT, {"large": dict(N=1 << 26), "odd": dict(N=20000003), "small": dict(N=1237)}, radix_count,
         kernel="radix_count", fills={"X": keys, "shift": lambda s, t, d: 8}, compiled=False),
    Case("radix_pass", RADIX_PASS, {"large": dict(N=1 << 24), "odd": dict(N=7000003), "small": dict(N=4999)}, radix_pass,
         kernel="radix_pass", fills={"X": keys, "V": keys, "shift": lambda s, t, d: 12}, compiled=False),
    Case("unique_runs", RUNS, {"large": dict(N=1 << 25, R=5000000), "odd": dict(N=10000019, R=777777), "small": dict(N=9001, R=1311)}, runs,
         kernel="runs", fills={"X": run_keys}, compiled=False),
    Case("attention_listed", LISTED, listed_sizes, dense_attention, reference=listed_reference, compiled=False, peers={"flex": flex},
         tolerance=3e-3, fills={"Q": normal(torch.float16), "K": normal(torch.float16), "V": normal(torch.float16), "count": block_counts,
                                "list": block_list, "scale": lambda s, t, d: d["D"] ** -0.5}),
    Case("attention_tokens", TOKENS, {"large": dict(T=512, H=64, C=576, P=65536, L=2048, E=512), "decode": dict(T=64, H=128, C=576, P=262144, L=2048, E=512),
                                      "odd": dict(T=131, H=40, C=320, P=30011, L=777, E=256), "small": dict(T=2, H=5, C=128, P=61, L=37, E=64)},
         tokens, reference=tokens_reference, tolerance=1e-2,
         fills={"Q": normal(torch.bfloat16), "KV": normal(torch.bfloat16), "list": token_list, "scale": lambda s, t, d: d["C"] ** -0.5}),
]
