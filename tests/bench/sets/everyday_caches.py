"""Decode from caches, contiguous and paged, and a backward pass."""
import torch
from sets.shared.everyday import B16, BF, DEV, scaled, sdpa, swap, wide
from unseen import Case

# ---- decoding from a cache [B, L, G, D] of which each sequence has used a part: parts, then their join
DECODE = """tile 1
kernel piece<T: f16 | bf16>(q: T[B, G, R, D], kc: T[B, L, G, D], vc: T[B, L, G, D], used: i32[B],
                            o: out f32[B, G, P, R, D], ml: out f32[B, G, P, R, 2], scale: f32)
key bucket(B), bucket(L), bucket(P), R, D
tune BN = 64 | 128 | 32, stages = 3 | 2 | 4
grid b < B, g < G, part < P
{
  shared   qs: T[R, D], k: T[BN, D], v: T[BN, D]
  fragment s: f32[R, BN], w: T[R, BN], acc: f32[R, D] = 0, m: f32[R] = -1e30, l: f32[R] = 0, a: f32[R], pair: f32[R, 2]
  let n = used[b]
  let share = ceildiv(ceildiv(n, 128), P) * 128
  let lo = part * share
  let hi = min(n, lo + share)
  let c = scale * log2e

  qs = q[b, g, :, :]
  pipelined t < ceildiv(hi - lo, BN), stages {
    k = kc[b, lo + t*BN +: BN, g, :] within 0 +: n
    v = vc[b, lo + t*BN +: BN, g, :] within 0 +: n
    s = qs @ k^T
    parallel r < R, j < BN { s[r, j] = lo + t*BN + j < hi ? s[r, j] * c : -inf }
    parallel r < R {
      let top = max(m[r], max[j < BN](s[r, j]))
      a[r] = exp2(m[r] - top)
      m[r] = top
    }
    parallel r < R, j < BN { s[r, j] = exp2(s[r, j] - m[r]) }
    parallel r < R { l[r] = l[r] * a[r] + sum[j < BN](s[r, j]) }
    parallel r < R, d < D { acc[r, d] *= a[r] }
    w = s
    acc += w @ v
  }
  parallel r < R {
    pair[r, 0] = m[r]
    pair[r, 1] = l[r]
  }
  o[b, g, part, :, :] = acc
  ml[b, g, part, :, :] = pair
}

kernel join<T: f16 | bf16>(o: f32[B, G, P, R, D], ml: f32[B, G, P, R, 2], y: out T[B, G, R, D])
key bucket(B), P, D
tune threads = 64 | 128
grid b < B, g < G, r < R
{
  fragment x: f32[P, D], m: f32[P], l: f32[P], res: f32[D]
  x = o[b, g, :, r, :]
  m = ml[b, g, :, r, 0]
  l = ml[b, g, :, r, 1]
  parallel p < P { m[p] = exp2(m[p] - max[k < P](m[k])) }
  let total = sum[p < P](m[p] * l[p])
  parallel d < D { res[d] = sum[p < P](m[p] * x[p, d]) / total }
  y[b, g, r, :] = res
}

program decode_used<T: f16 | bf16>(q: T[B, G, R, D], kc: T[B, L, G, D], vc: T[B, L, G, D], used: i32[B], y: out T[B, G, R, D], scale: f32)
key bucket(B), bucket(L), G, D
tune parts = 1 | 2 | 4 | 8 | 16 | 32
{
  temp o: f32[B, G, parts, R, D], ml: f32[B, G, parts, R, 2]
  piece(q, kc, vc, used, o, ml, scale)
  join(o, ml, y)
}
"""


def used_lengths(shape, t, d):
    return torch.randint(max(1, d["L"] // 3), d["L"] + 1, shape, device=DEV).to(torch.int32)


def decode_used(t, d):
    there = torch.arange(d["L"], device=t.q.device) < t.used[:, None]
    k, v = swap(t.kc, t.vc)
    return sdpa(t.q, k, v, attn_mask=there[:, None, None].expand(-1, 1, d["R"], -1), scale=t.scale)


# ---- decoding from pages
PAGED = """tile 1
kernel paged<T: f16 | bf16>(q: T[B, H, D], kp: T[Np, page, G, D], vp: T[Np, page, G, D], table: i32[B, Mx], used: i32[B], y: out T[B, H, D], scale: f32)
where H == G * 8
key bucket(B), bucket(Mx), page, D
tune stages = 2 | 3 | 4 | 6, threads = 128 | 64
grid b < B, g < G
{
  shared   qs: T[8, D], k: T[page, D], v: T[page, D]
  fragment s: f32[8, page], w: T[8, page], acc: f32[8, D] = 0, m: f32[8] = -1e30, l: f32[8] = 0, a: f32[8]
  let n = used[b], c = scale * log2e

  qs = q[b, g*8 +: 8, :]
  pipelined t < ceildiv(n, page), stages {
    k = kp[table[b, t], :, g, :]
    v = vp[table[b, t], :, g, :]
    s = qs @ k^T
    parallel r < 8, j < page { s[r, j] = t*page + j < n ? s[r, j] * c : -inf }
    parallel r < 8 {
      let top = max(m[r], max[j < page](s[r, j]))
      a[r] = exp2(m[r] - top)
      m[r] = top
    }
    parallel r < 8, j < page { s[r, j] = exp2(s[r, j] - m[r]) }
    parallel r < 8 { l[r] = l[r] * a[r] + sum[j < page](s[r, j]) }
    w = s
    parallel r < 8, d < D { acc[r, d] *= a[r] }
    acc += w @ v
  }
  parallel r < 8, d < D { acc[r, d] /= l[r] }
  y[b, g*8 +: 8, :] = acc
}
"""


def page_table(shape, t, d):
    return torch.randperm(d["Np"], device=DEV)[:d["B"] * d["Mx"]].view(shape).to(torch.int32)


def paged(t, d):
    k, v = (x[t.table.long()].flatten(1, 2).transpose(1, 2) for x in (t.kp, t.vp))
    q = t.q.unflatten(1, (d["G"], 8))
    there = torch.arange(k.shape[2], device=q.device) < t.used[:, None]
    return sdpa(q, k, v, attn_mask=there[:, None, None].expand(-1, 1, 8, -1), scale=t.scale).flatten(1, 2)


# ---- the way back, causal
BACKWARD = """tile 1
kernel deltas<T: f16 | bf16>(O: T[B, H, S, D], dO: T[B, H, S, D], delta: out f32[B, H, S])
key bucket(S), D
tune R = 4 | 8 | 16
grid b < B, h < H, s < ceildiv(S, R)
{
  fragment o: f32[R, D], g: f32[R, D], r: f32[R]
  o = O[b, h, s*R +: R, :]
  g = dO[b, h, s*R +: R, :]
  parallel i < R { r[i] = sum[d < D](o[i, d] * g[i, d]) }
  delta[b, h, s*R +: R] = r
}

kernel grad_q<T: f16 | bf16>(Q: T[B, H, S, D], K: T[B, H, S, D], V: T[B, H, S, D], dO: T[B, H, S, D], lse: f32[B, H, S],
                             delta: f32[B, H, S], dQ: out T[B, H, S, D], scale: f32)
key bucket(S), D
tune BM = 64 | 128, BN = 64 | 128, stages = 2 | 1
grid b < B, h < H, m < ceildiv(S, BM)
{
  shared   q: T[BM, D], go: T[BM, D], k: T[BN, D], v: T[BN, D]
  fragment s: f32[BM, BN], dp: f32[BM, BN], ds: T[BM, BN], dq: f32[BM, D] = 0, L: f32[BM], del: f32[BM]
  q = Q[b, h, m*BM +: BM, :]
  go = dO[b, h, m*BM +: BM, :]
  L = lse[b, h, m*BM +: BM]
  del = delta[b, h, m*BM +: BM]
  pipelined n < ceildiv(min(S, (m + 1)*BM), BN), stages {
    k = K[b, h, n*BN +: BN, :]
    v = V[b, h, n*BN +: BN, :]
    s = q @ k^T
    dp = go @ v^T
    parallel i < BM, j < BN {
      let p = n*BN + j <= m*BM + i ? exp2((s[i, j] * scale - L[i]) * log2e) : 0.0
      ds[i, j] = p * (dp[i, j] - del[i]) * scale
    }
    dq += ds @ k
  }
  dQ[b, h, m*BM +: BM, :] = dq
}

kernel grad_kv<T: f16 | bf16>(Q: T[B, H, S, D], K: T[B, H, S, D], V: T[B, H, S, D], dO: T[B, H, S, D], lse: f32[B, H, S],
                              delta: f32[B, H, S], dK: out T[B, H, S, D], dV: out T[B, H, S, D], scale: f32)
key bucket(S), D
tune BN = 64 | 128, BM = 64 | 32 | 128, stages = 2 | 1
grid b < B, h < H, n < ceildiv(S, BN)
{
  shared   q: T[BM, D], go: T[BM, D], k: T[BN, D], v: T[BN, D]
  fragment st: f32[BN, BM], dpt: f32[BN, BM], pt: T[BN, BM], dst: T[BN, BM], dk: f32[BN, D] = 0, dv: f32[BN, D] = 0
  fragment L: f32[BM], del: f32[BM]
  k = K[b, h, n*BN +: BN, :]
  v = V[b, h, n*BN +: BN, :]
  pipelined m in n*BN / BM .. ceildiv(S, BM), stages {
    q = Q[b, h, m*BM +: BM, :]
    go = dO[b, h, m*BM +: BM, :]
    L = lse[b, h, m*BM +: BM]
    del = delta[b, h, m*BM +: BM]
    st = k @ q^T
    dpt = v @ go^T
    parallel j < BN, i < BM {
      let p = n*BN + j <= m*BM + i && m*BM + i < S ? exp2((st[j, i] * scale - L[i]) * log2e) : 0.0
      pt[j, i] = p
      dst[j, i] = p * (dpt[j, i] - del[i]) * scale
    }
    dv += pt @ go
    dk += dst @ q
  }
  dK[b, h, n*BN +: BN, :] = dk
  dV[b, h, n*BN +: BN, :] = dv
}

program attention_back<T: f16 | bf16>(Q: T[B, H, S, D], K: T[B, H, S, D], V: T[B, H, S, D], O: T[B, H, S, D], dO: T[B, H, S, D], lse: f32[B, H, S],
                                 dQ: out T[B, H, S, D], dK: out T[B, H, S, D], dV: out T[B, H, S, D], scale: f32)
key bucket(S), D
{
  temp delta: f32[B, H, S]
  deltas(O, dO, delta)
  grad_q(Q, K, V, dO, lse, delta, dQ, scale)
  grad_kv(Q, K, V, dO, lse, delta, dK, dV, scale)
}
"""


def forward_o(shape, t, d):
    t.scale = d["D"] ** -0.5
    t.lse_full = torch.empty(shape[:3], device=DEV)
    o = torch.empty(shape, dtype=BF, device=DEV)
    above = torch.ones(d["S"], d["S"], dtype=torch.bool, device=DEV).triu(1)
    for b in range(shape[0]):
        s = (t.Q[b].float() @ t.K[b].float().transpose(1, 2) * t.scale).masked_fill(above, float("-inf"))
        t.lse_full[b] = s.logsumexp(-1)
        o[b] = (s.softmax(-1) @ t.V[b].float()).to(BF)
    return o


def attention_back(t, d):
    p = torch.exp(wide(t.Q @ t.K.transpose(2, 3)) * t.scale - t.lse[..., None]).tril()
    delta = (wide(t.O) * wide(t.dO)).sum(-1, keepdim=True)
    ds = (p * (wide(t.dO @ t.V.transpose(2, 3)) - delta) * t.scale).to(t.Q.dtype)
    return ds @ t.K, ds.transpose(2, 3) @ t.Q, p.to(t.Q.dtype).transpose(2, 3) @ t.dO


def library_back(t, d):
    zero = torch.zeros((), dtype=torch.int64, device=t.Q.device)
    if not hasattr(t, "forward"):
        t.forward = torch.ops.aten._scaled_dot_product_flash_attention(t.Q, t.K, t.V, 0.0, True, scale=t.scale)
    o, lse, cq, ck, mq, mk, seed, offset = t.forward[:8]
    return torch.ops.aten._scaled_dot_product_flash_attention_backward(
        t.dO, t.Q, t.K, t.V, t.O, lse, cq, ck, mq, mk, 0.0, True, seed, offset, scale=t.scale)


CASES = [
    Case("decode_used", DECODE, {"large": dict(B=16, G=8, R=4, D=128, L=8192), "odd": dict(B=5, G=3, R=7, D=96, L=5003),
                                 "small": dict(B=3, G=2, R=3, D=16, L=300)}, decode_used, kernel="decode_used", types=B16,
         fills={"scale": scaled, "used": used_lengths}),
    Case("paged", PAGED, {"large": dict(B=64, H=64, G=8, D=128, Np=8192, page=64, Mx=64), "odd": dict(B=37, H=24, G=3, D=96, Np=4000, page=16, Mx=101),
                          "small": dict(B=3, H=16, G=2, D=16, Np=30, page=16, Mx=7)}, paged, types=B16, fills={
                              "scale": scaled, "table": page_table, "used": lambda s, t, d: torch.randint(
                                  d["page"], d["page"] * d["Mx"] + 1, s, device=DEV).to(torch.int32)}),
    Case("attention_back", BACKWARD, {"large": dict(B=2, H=16, S=4096, D=64), "odd": dict(B=2, H=5, S=1403, D=128),
                                      "small": dict(B=1, H=2, S=90, D=16)}, attention_back, kernel="attention_back", types=B16,
         tolerance=1e-2, fills={"scale": scaled, "O": forward_o, "lse": lambda s, t, d: t.lse_full}, peers={"library": library_back}),
]
