"""Sparse matrices: CSR, BSR, ELL, sampled products."""
import torch
import torch.nn.functional as F
from sets.shared.sparse import DEVICE, below, columns, normal, pointer, rows1
from unseen import Case


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


csr_fills = {"ptr": pointer("E"), "col": columns("C"), "val": normal(torch.float32)}
spmv_sizes = rows1({"large": dict(R=1 << 20, E=1 << 25, C=1 << 20), "odd": dict(R=300007, E=5000011, C=299993),
                    "short": dict(R=1 << 22, E=20000000, C=1 << 22), "small": dict(R=23, E=131, C=37)})
spmm_sizes = rows1({"large": dict(R=100000, E=3000000, C=100000, D=128), "wide": dict(R=20000, E=1000000, C=20000, D=512),
                    "odd": dict(R=70001, E=1000003, C=69997, D=100), "small": dict(R=13, E=71, C=17, D=20)})
bsr_sizes = rows1({"large": dict(R=128, CB=128, E=1640, C=8192, N=4096), "thin": dict(R=256, CB=256, E=6554, C=16384, N=64),
                   "odd": dict(R=67, CB=61, E=797, C=61 * 64, N=1003), "small": dict(R=3, CB=2, E=4, C=128, N=21)})

CASES = [
    Case("csr_spmv", SPMV, spmv_sizes, spmv, fills=csr_fills, reference=spmv_reference, compiled=False, tolerance=1e-5),
    Case("csr_spmm_tile", SPMM_TILE, spmm_sizes, spmm_gathered, fills=csr_fills, reference=spmm_reference, peers={"csr": spmm}, tolerance=2e-3),
    Case("csr_spmm_rows", SPMM_ROWS, spmm_sizes, spmm_gathered, fills=csr_fills, reference=spmm_reference, peers={"csr": spmm}, tolerance=2e-3),
    Case("bsr", BSR, bsr_sizes, bsr, reference=bsr_reference, compiled=False, peers={"dense": bsr_dense}, tolerance=2e-3,
         fills={"ptr": bsr_pointer, "col": lambda s, t, d: t.block_col, "val": normal(torch.float16), "X": normal(torch.float16)}),
    Case("sddmm", SDDMM, {"large": dict(E=2000000, R=100000, C=100000, D=128), "odd": dict(E=700001, R=50021, C=49999, D=76),
                          "small": dict(E=53, R=11, C=13, D=20)},
         sddmm, reference=sddmm_reference, peers={"sampled_addmm": sampled}, tolerance=1e-5,
         fills={"row": sorted_rows, "col": below("C")}),
    Case("ell_spmv", ELL, {"large": dict(L=27, R=1 << 20, C=1 << 20), "odd": dict(L=19, R=700001, C=699999), "small": dict(L=5, R=37, C=41)},
         ell, fills={"col": below("C")}, tolerance=1e-5),
]
