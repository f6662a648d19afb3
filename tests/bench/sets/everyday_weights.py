"""Weights of 4 and 8 bits, gates, bags of embeddings, attention of listed blocks."""
import torch
import torch.nn.functional as F
from sets.shared.everyday import B16, BF, DEV, flex_attention, positive, wide
from unseen import Case

# ---- weights of four bits, eight in a word, 8 is zero, a scale for 128; of eight bits with a scale a channel
WORDS = """tile 1
kernel words4<T: f16 | bf16>(x: T[M, K], w: i32[N, K8], s: T[N, G], y: out T[M, N])
where K8 == K / 8, G == K / 128, K % 128 == 0
key bucket(M), N, K
tune BM = 16 | 32 | 64 | 128, BN = 64 | 128, BK = 64 | 128, stages = 2 | 3 | 4
grid n < ceildiv(N, BN), m < ceildiv(M, BM)
{
  shared   a: T[BM, BK], q: i32[BN, BK / 8]
  fragment b: T[BN, BK], acc: f32[BM, BN] = 0
  pipelined k < ceildiv(K, BK), stages {
    a = x[m*BM +: BM, k*BK +: BK]
    q = w[n*BN +: BN, k*(BK / 8) +: BK / 8]
    parallel i < BN, j < BK {
      let nibble = q[i, j / 8] >> (j % 8 * 4) & 15
      b[i, j] = T(nibble - 8) * s[n*BN + i, (k*BK + j) / 128]
    }
    acc += a @ b^T
  }
  y[m*BM +: BM, n*BN +: BN] = acc
}
"""


def unpacked(t, d):
    shift = torch.arange(0, 32, 4, device=t.w.device)
    w = (t.w[:, :, None] >> shift & 15).flatten(1) - 8
    return (w.to(t.s.dtype).unflatten(1, (-1, 128)) * t.s[:, :, None]).flatten(1)


def words4(t, d):
    return F.linear(t.x, unpacked(t, d))


def dense4(t, d):
    if not hasattr(t, "dense"):
        t.dense = unpacked(t, d)
    return F.linear(t.x, t.dense)


BYTES = """tile 1
kernel weight8<T: f16 | bf16>(x: T[M, K], w: i8[N, K], s: T[N], bias: T[N], y: out T[M, N])
key bucket(M), N, K
tune BM = 16 | 32 | 64 | 128, BN = 64 | 128 | 32, BK = 64 | 128, stages = 3 | 4 | 2
grid m < ceildiv(M, BM), n < ceildiv(N, BN)
{
  shared   a: T[BM, BK], q: i8[BN, BK]
  fragment b: T[BN, BK], acc: f32[BM, BN] = 0
  pipelined k < ceildiv(K, BK), stages {
    a = x[m*BM +: BM, k*BK +: BK]
    q = w[n*BN +: BN, k*BK +: BK]
    b = q
    acc += a @ b^T
  }
  parallel i < BM, j < BN { acc[i, j] = acc[i, j] * s[n*BN + j] + bias[n*BN + j] }
  y[m*BM +: BM, n*BN +: BN] = acc
}
"""


def weight8(t, d):
    return F.linear(t.x, t.w.to(t.x.dtype)) * t.s + t.bias


def dense8(t, d):
    if not hasattr(t, "dense"):
        t.dense = t.w.to(BF) * t.s[:, None]
    return F.linear(t.x, t.dense, t.bias)


# ---- the k largest of a row, and weights of them that add up to one
TOPK = """tile 1
kernel topk_gate<T: f32 | f16 | bf16>(Z: T[N, E], value: out f32[N, kk], at: out i32[N, kk])
where kk <= 32
key bucket(N), E
tune R = 1 | 2 | 4 | 8 | 16
grid b < ceildiv(N, R)
{
  fragment z: f32[R, E], v: f32[R, kk] = 0, w: i32[R, kk] = 0, pick: i32[R], top: f32[R]
  z = Z[b*R +: R, :]
  for t < kk {
    parallel i < R {
      pick[i] = argmax[e < E](z[i, e])
      top[i] = max[e < E](z[i, e])
    }
    parallel i < R, q < kk {
      v[i, q] = q == t ? top[i] : v[i, q]
      w[i, q] = q == t ? pick[i] : w[i, q]
    }
    parallel i < R, e < E { z[i, e] = e == pick[i] ? -inf : z[i, e] }
  }
  parallel i < R, q < kk { v[i, q] = exp(v[i, q] - max[x < kk](v[i, x])) }
  parallel i < R, q < kk { v[i, q] /= sum[x < kk](v[i, x]) }
  value[b*R +: R, :] = v
  at[b*R +: R, :] = w
}
"""


def topk_gate(t, d):
    v, i = t.Z.topk(d["kk"], -1)
    return wide(v).softmax(-1), i.to(torch.int32)


# ---- bags of embeddings with weights
BAG = """tile 1
kernel bag_sum<T: f16 | bf16 | f32>(table: T[V, D], ids: i32[L], w: f32[L], start: i32[B1], Y: out T[B, D])
where B1 == B + 1
key bucket(B), D
tune BD = 64 | 128 | 256, step = 4 | 8 | 16
grid b < B, d < ceildiv(D, BD)
{
  fragment rows: T[step, BD], f: f32[step], y: f32[BD] = 0
  let lo = start[b], n = start[b + 1] - start[b]
  for s < ceildiv(n, step) {
    rows = table[ids[lo + s*step +: step] within lo +: n pad -1, d*BD +: BD]
    f = w[lo + s*step +: step] within lo +: n
    parallel j < BD { y[j] += sum[r < step](f[r] * rows[r, j]) }
  }
  Y[b, d*BD +: BD] = y
}
"""


def starts(shape, t, d):
    cuts = torch.randint(0, d["L"] + 1, (shape[0] - 2,)).sort().values.tolist()
    return torch.tensor([0, *cuts, d["L"]], dtype=torch.int32, device=DEV)


def bag_sum(t, d):
    return F.embedding_bag(t.ids, t.table, t.start, mode="sum", per_sample_weights=t.w.to(t.table.dtype), include_last_offset=True)


# ---- block-sparse attention: for each head and block of 64 queries a list of blocks of keys
BLOCKS = """tile 1
kernel block_sparse<T: f16 | bf16>(Q: T[B, H, S, D], K: T[B, H, S, D], V: T[B, H, S, D], list: i32[H, NB, Lm], count: i32[H, NB],
                                   O: out T[B, H, S, D], scale: f32)
where NB == ceildiv(S, 64)
key bucket(S), D
tune stages = 2 | 3 | 4
grid b < B, h < H, x < NB
{
  shared   q: T[64, D], k: T[64, D], v: T[64, D]
  fragment s: f32[64, 64], p: T[64, 64], o: f32[64, D] = 0, m: f32[64] = -1e30, l: f32[64] = 0, a: f32[64]
  let c = scale * log2e
  q = Q[b, h, x*64 +: 64, :]
  pipelined t < count[h, x], stages {
    let y = list[h, x, t]
    k = K[b, h, y*64 +: 64, :]
    v = V[b, h, y*64 +: 64, :]
    s = q @ k^T
    parallel i < 64, j < 64 {
      let row = x*64 + i, col = y*64 + j
      s[i, j] = col <= row ? s[i, j] : -inf
    }
    parallel i < 64 {
      let top = max(m[i], max[j < 64](s[i, j]))
      a[i] = exp2((m[i] - top) * c)
      m[i] = top
    }
    parallel i < 64, j < 64 { s[i, j] = exp2((s[i, j] - m[i]) * c) }
    parallel i < 64 { l[i] = l[i] * a[i] + sum[j < 64](s[i, j]) }
    p = s
    parallel i < 64, d < D { o[i, d] *= a[i] }
    o += p @ v
  }
  parallel i < 64, d < D { o[i, d] /= l[i] }
  O[b, h, x*64 +: 64, :] = o
}
"""


def block_lists(shape, t, d):
    h, nb, most = shape
    t.blocks = torch.zeros(h, nb, nb, dtype=torch.bool)
    lists, counts = torch.zeros(shape, dtype=torch.int32), torch.zeros(h, nb, dtype=torch.int32)
    for i in range(h):
        for x in range(nb):
            chosen = torch.cat((torch.randperm(x)[:most - 1], torch.tensor([x]))).sort().values if x else torch.tensor([0])
            lists[i, x, :len(chosen)], counts[i, x] = chosen.to(torch.int32), len(chosen)
            t.blocks[i, x, chosen] = True
    t.counts, t.blocks = counts.to(DEV), t.blocks.to(DEV)
    return lists.to(DEV)


def block_sparse(t, d):
    mask = t.blocks.repeat_interleave(64, 1).repeat_interleave(64, 2)[:, :d["S"], :d["S"]].tril()
    return F.scaled_dot_product_attention(t.Q, t.K, t.V, attn_mask=mask, scale=t.scale)


def block_sparse_flex(t, d):
    if not hasattr(t, "mask"):
        from torch.nn.attention.flex_attention import create_block_mask
        blocks = t.blocks
        t.mask = create_block_mask(lambda b, h, q, k: (q >= k) & blocks[h, q // 64, k // 64], None, d["H"], d["S"], d["S"], device="cuda",
                                   BLOCK_SIZE=64)
    return flex_attention()(t.Q, t.K, t.V, block_mask=t.mask, scale=t.scale)


CASES = [
    Case("words4", WORDS, {"large": dict(M=64, N=14336, K=4096, K8=512, G=32), "odd": dict(M=101, N=3001, K=1920, K8=240, G=15),
                           "small": dict(M=9, N=45, K=256, K8=32, G=2)}, words4, types=B16, peers={"dense": dense4}, fills={
                               "w": lambda s, t, d: torch.randint(-2**31, 2**31, s, device=DEV).to(torch.int32), "s": positive(0.01, 0.1, BF)}),
    Case("weight8", BYTES, {"large": dict(M=32, N=8192, K=8192), "odd": dict(M=77, N=2003, K=3004), "small": dict(M=7, N=41, K=99)},
         weight8, types=B16, peers={"dense": dense8}, fills={"s": positive(0.001, 0.01, BF)}),
    Case("topk_gate", TOPK, {"large": dict(N=32768, E=256, kk=8), "odd": dict(N=10007, E=149, kk=6), "small": dict(N=13, E=37, kk=3)},
         topk_gate, types={"T": "f32"}),
    Case("bag_sum", BAG, {"large": dict(V=1000000, D=128, L=655360, B=16384, B1=16385), "odd": dict(V=50021, D=90, L=100003, B=5001, B1=5002),
                          "small": dict(V=40, D=20, L=90, B=11, B1=12)}, bag_sum, types=B16, tolerance=1e-2, fills={
                              "ids": lambda s, t, d: torch.randint(0, d["V"], s, device=DEV).to(torch.int32), "w": positive(0.1, 1), "start": starts}),
    Case("block_sparse", BLOCKS, {"large": dict(B=2, H=16, S=8192, D=128, NB=128, Lm=16), "odd": dict(B=2, H=5, S=2003, D=72, NB=32, Lm=7),
                                  "small": dict(B=1, H=2, S=205, D=16, NB=4, Lm=2)}, block_sparse, types=B16, fills={
                                      "list": block_lists, "count": lambda s, t, d: t.counts, "scale": lambda s, t, d: d["D"] ** -0.5},
         peers={"flex": block_sparse_flex}),
]
