"""Attentions of other forms: a backward pass, shifted windows of images, latent and shared caches."""
import sys

import torch
import torch.nn.functional as F
from unseen import Case

DEV = "cpu" if "--check" in sys.argv or not torch.cuda.is_available() else "cuda"
BF = torch.bfloat16
aten = torch.ops.aten
B16 = {"T": "bf16"}
sdpa = F.scaled_dot_product_attention


def heads(*tensors):
    return [x.transpose(1, 2) for x in tensors]


def scaled(s, t, d):
    return d["D"] ** -0.5


# ---- causal attention backward: keys and values with scores transposed, so that both products take them from registers
BACKWARD = """tile 1
kernel row_delta<T: f16 | bf16>(O: T[B, N, H, D], dO: T[B, N, H, D], delta: out f32[B, H, N])
key  bucket(N), H, D
tune rows = 16 | 32 | 64
grid b < B, h < H, s < ceildiv(N, rows)
{
  fragment o: f32[rows, D], g: f32[rows, D], x: f32[rows]
  o = O[b, s*rows +: rows, h, :]
  g = dO[b, s*rows +: rows, h, :]
  parallel i < rows { x[i] = sum[d < D](o[i, d] * g[i, d]) }
  delta[b, h, s*rows +: rows] = x
}

kernel keys_values<T: f16 | bf16>(Q: T[B, N, H, D], K: T[B, N, H, D], V: T[B, N, H, D], dO: T[B, N, H, D], lse: f32[B, H, N],
                                  delta: f32[B, H, N], dK: out T[B, N, H, D], dV: out T[B, N, H, D], scale: f32)
key  bucket(N), D
tune BN = 128 | 64, BM = 64 | 32 | 128, stages = 2 | 1
where BN % BM == 0 || BM % BN == 0
grid n < ceildiv(N, BN), h < H, b < B
{
  shared   k: T[BN, D], v: T[BN, D], q: T[BM, D], g: T[BM, D]
  fragment S: f32[BN, BM], P: T[BN, BM], W: f32[BN, BM], dS: T[BN, BM], dk: f32[BN, D] = 0, dv: f32[BN, D] = 0
  let c = scale * log2e

  k = K[b, n*BN +: BN, h, :]
  v = V[b, n*BN +: BN, h, :]
  pipelined m in n*BN / BM .. ceildiv(N, BM), stages {
    q = Q[b, m*BM +: BM, h, :]
    g = dO[b, m*BM +: BM, h, :]
    S = k @ q^T
    W = v @ g^T
    parallel i < BN, j < BM {
      let row = m*BM + j
      S[i, j] = n*BN + i <= row && row < N ? exp2(S[i, j] * c - lse[b, h, row] * log2e) : 0
    }
    P = S
    dv += P @ g
    parallel i < BN, j < BM { W[i, j] = S[i, j] * (W[i, j] - delta[b, h, m*BM + j]) }
    dS = W
    dk += dS @ q
  }
  parallel i < BN, d < D { dk[i, d] *= scale }
  dK[b, n*BN +: BN, h, :] = dk
  dV[b, n*BN +: BN, h, :] = dv
}

kernel queries<T: f16 | bf16>(Q: T[B, N, H, D], K: T[B, N, H, D], V: T[B, N, H, D], dO: T[B, N, H, D], lse: f32[B, H, N],
                              delta: f32[B, H, N], dQ: out T[B, N, H, D], scale: f32)
key  bucket(N), D
tune BM = 128 | 64, BN = 64 | 128 | 32, stages = 2 | 1 | 3
grid s < ceildiv(N, BM), h < H, b < B
{
  shared   q: T[BM, D], g: T[BM, D], k: T[BN, D], v: T[BN, D]
  fragment S: f32[BM, BN], W: f32[BM, BN], dS: T[BM, BN], dq: f32[BM, D] = 0, L: f32[BM], e: f32[BM]
  let c = scale * log2e

  q = Q[b, s*BM +: BM, h, :]
  g = dO[b, s*BM +: BM, h, :]
  L = lse[b, h, s*BM +: BM]
  e = delta[b, h, s*BM +: BM]
  pipelined n < ceildiv(min(N, (s + 1) * BM), BN), stages {
    k = K[b, n*BN +: BN, h, :]
    v = V[b, n*BN +: BN, h, :]
    S = q @ k^T
    W = g @ v^T
    parallel i < BM, j < BN {
      let p = n*BN + j <= s*BM + i ? exp2(S[i, j] * c - L[i] * log2e) : 0
      W[i, j] = p * (W[i, j] - e[i])
    }
    dS = W
    dq += dS @ k
  }
  parallel i < BM, d < D { dq[i, d] *= scale }
  dQ[b, s*BM +: BM, h, :] = dq
}

program attention_backward<T: f16 | bf16>(
    Q: T[B, N, H, D], K: T[B, N, H, D], V: T[B, N, H, D], O: T[B, N, H, D], lse: f32[B, H, N], dO: T[B, N, H, D],
    dQ: out T[B, N, H, D], dK: out T[B, N, H, D], dV: out T[B, N, H, D], scale: f32)
{
  temp delta: f32[B, H, N]
  row_delta(O, dO, delta)
  keys_values(Q, K, V, dO, lse, delta, dK, dV, scale)
  queries(Q, K, V, dO, lse, delta, dQ, scale)
}
"""


def probabilities(t, d, q, k, dtype):
    scores = q.to(dtype) @ k.to(dtype).transpose(2, 3) * t.scale
    return scores.masked_fill_(torch.ones(d["N"], d["N"], dtype=torch.bool, device=q.device).triu(1), float("-inf"))


def filled_lse(shape, t, d):
    t.scale = d["D"] ** -0.5
    return probabilities(t, d, *heads(t.Q, t.K), torch.float32).logsumexp(-1)


def backward_reference(t, d):
    q, k, v, o, g = heads(t.Q, t.K, t.V, t.O, t.dO)
    p = (probabilities(t, d, q, k, q.dtype) - t.lse[..., None]).exp()
    w = p * (g @ v.transpose(2, 3) - (o * g).sum(-1, keepdim=True)) * t.scale
    return heads(w @ k, w.transpose(2, 3) @ q, p.transpose(2, 3) @ g)


def backward_autograd(t, d):
    q, k, v = (x.detach().requires_grad_() for x in (t.Q, t.K, t.V))
    o = sdpa(*heads(q, k, v), is_causal=True, scale=t.scale).transpose(1, 2)
    return torch.autograd.grad(o, (q, k, v), t.dO)


def backward_flash(t, d):
    q, k, v, o, g = heads(t.Q, t.K, t.V, t.O, t.dO)
    seed = torch.zeros(2, dtype=torch.uint64, device=q.device)
    return heads(*aten._scaled_dot_product_flash_attention_backward(
        g, q, k, v, o, t.lse, None, None, d["N"], d["N"], 0.0, True, seed, seed[:1], scale=t.scale))


# ---- Swin: windows of 7 x 7 pixels, moved by 3 around the edges of the image, with a bias for each pair
SWIN = """tile 1
kernel swin_shifted<T: f16 | bf16>(QKV: T[B, P, 3, H, D], bias: T[H, 49, 49], O: out T[B, P, H, D], rows: i32, columns: i32,
                                   scale: f32)
where P == rows * columns, rows % 7 == 0, columns % 7 == 0
key  bucket(B), P, H, D
grid b < B, wy < rows / 7, wx < columns / 7, h < H
{
  shared   q: T[49, D], k: T[49, D], v: T[49, D]
  fragment at: i32[49], S: f32[49, 49], U: T[49, 49], o: f32[49, D]

  parallel i < 49 { at[i] = (wy*7 + i / 7 + 3) % rows * columns + (wx*7 + i % 7 + 3) % columns }
  q = QKV[b, at, 0, h, :]
  k = QKV[b, at, 1, h, :]
  v = QKV[b, at, 2, h, :]
  S = q @ k^T
  # What the shift has brought together from two edges of the image does not see each other.
  parallel i < 49, j < 49 {
    let y = wy*7 + 3 >= rows - 4 && (i / 7 < 4) != (j / 7 < 4)
    let x = wx*7 + 3 >= columns - 4 && (i % 7 < 4) != (j % 7 < 4)
    S[i, j] = x || y ? -inf : S[i, j] * scale + bias[h, i, j]
  }
  parallel i < 49, j < 49 { S[i, j] = exp(S[i, j] - max[n < 49](S[i, n])) }
  parallel i < 49, j < 49 { S[i, j] = S[i, j] / sum[n < 49](S[i, n]) }
  U = S
  o = U @ v
  O[b, at, h, :] = o
}
"""


def swin_shifted(t, d):
    b, y, x, h, n = d["B"], t.rows, t.columns, d["H"], d["D"]
    image = torch.roll(t.QKV.view(b, y, x, 3, h, n), (-3, -3), (1, 2))
    image = image.view(b, y // 7, 7, x // 7, 7, 3, h, n).permute(5, 0, 1, 3, 6, 2, 4, 7).reshape(3, -1, h, 49, n)
    row, column = torch.arange(y, device=image.device), torch.arange(x, device=image.device)
    part = ((row >= y - 7).int() + (row >= y - 3))[:, None] * 3 + ((column >= x - 7).int() + (column >= x - 3))
    part = part.view(y // 7, 7, x // 7, 7).transpose(1, 2).reshape(-1, 1, 49)
    mask = torch.where(part == part.transpose(1, 2), 0.0, float("-inf")).to(t.QKV.dtype)[:, None] + t.bias
    o = sdpa(image[0], image[1], image[2], attn_mask=mask.repeat(b, 1, 1, 1), scale=t.scale)
    o = o.view(b, y // 7, x // 7, h, 7, 7, n).permute(0, 1, 4, 2, 5, 3, 6).reshape(b, y, x, h, n)
    return torch.roll(o, (3, 3), (1, 2)).view(b, y * x, h, n)


# ---- DeepSeek's latent attention: one token a sequence, pages of 64 latents of 576, whose first 512 are the values
MLA = """tile 1
kernel mla_part<T: f16 | bf16>(Q: T[B, H, 576], cache: T[pages, 64, 576], table: i32[B, P], length: i32[B],
                               part: out f32[B, H, splits, 512], lse: out f32[B, H, splits], scale: f32)
key  bucket(B), H, bucket(P), bucket(splits)
tune BM = 64 | 16 | 32, stages = 1 | 2
grid p < splits, x < ceildiv(H, BM), b < B
{
  shared   q: T[BM, 576], k: T[64, 576]
  fragment S: f32[BM, 64], e: T[BM, 64], acc: f32[BM, 512] = 0, m: f32[BM] = -1e30, l: f32[BM] = 0, alpha: f32[BM]
  let all = length[b], steps = ceildiv(all, 64), share = ceildiv(steps, splits), c = scale * log2e

  q = Q[b, x*BM +: BM, :]
  pipelined n in p*share .. min(steps, (p + 1)*share), stages {
    k = cache[table[b, n], :, :]
    S = q @ k^T
    parallel i < BM, j < 64 { S[i, j] = n*64 + j < all ? S[i, j] : -inf }
    parallel i < BM {
      let most = max(m[i], max[j < 64](S[i, j]))
      alpha[i] = exp2((m[i] - most) * c)
      m[i] = most
    }
    parallel i < BM, j < 64 { S[i, j] = exp2(S[i, j] * c - m[i] * c) }
    parallel i < BM { l[i] = l[i] * alpha[i] + sum[j < 64](S[i, j]) }
    parallel i < BM, d < 512 { acc[i, d] *= alpha[i] }
    e = S
    acc += e @ k[:, 0 +: 512]
  }
  parallel i < BM {
    m[i] = l[i] > 0 ? m[i] * c + log2(l[i]) : -inf
    l[i] = l[i] > 0 ? rcp(l[i]) : 0
  }
  parallel i < BM, d < 512 { acc[i, d] *= l[i] }
  part[b, x*BM +: BM, p, :] = acc
  lse[b, x*BM +: BM, p] = m
}

kernel mla_join<T: f16 | bf16>(part: f32[B, H, splits, 512], lse: f32[B, H, splits], O: out T[B, H, 512])
key  bucket(B), H, bucket(splits)
grid b < B, h < H
{
  fragment w: f32[64], x: f32[512] = 0
  w = lse[b, h, 0 +: 64] pad -inf
  let most = max[p < 64](w[p])
  let all = sum[p < 64](exp2(w[p] - most))
  parallel p < 64 { w[p] = exp2(w[p] - most) / all }
  for p < splits {
    let now = w[p]
    parallel d < 512 { x[d] += now * part[b, h, p, d] }
  }
  O[b, h, :] = x
}

program mla_decode<T: f16 | bf16>(Q: T[B, H, 576], cache: T[pages, 64, 576], table: i32[B, P], length: i32[B],
                                  O: out T[B, H, 512], scale: f32)
key  bucket(B), H, bucket(P)
tune splits = 4 | 1 | 2 | 8 | 16 | 32
{
  temp part: f32[B, H, splits, 512], lse: f32[B, H, splits]
  mla_part(Q, cache, table, length, part, lse, scale)
  mla_join(part, lse, O)
}
"""


def mla_decode(t, d):
    k = t.cache[t.table].flatten(1, 2)
    mask = torch.arange(k.shape[1], device=k.device) < t.length[:, None, None]
    return sdpa(t.Q[:, None], k[:, None], k[:, None, :, :512], attn_mask=mask[:, None], scale=t.scale)[:, 0]


# ---- decoding behind one long prompt that all sequences share: it is read once for all of them
SHARED = """tile 1
# Rows are (sequence, head of the group). Parts of the prompt are multiples of 128 keys.
kernel prompt_part<T: f16 | bf16>(Q: T[B, H, D], K: T[L, G, D], V: T[L, G, D], part: out f32[B, H, P, D],
                                  lse: out f32[B, H, P], scale: f32)
where H % G == 0
key  bucket(B), H, G, bucket(L), bucket(P), D
tune BM = 64 | 128 | 32, BN = 128 | 64 | 32, stages = 2 | 3
grid p < P, x < ceildiv(B * (H / G), BM), g < G
{
  shared   q: T[BM, D], k: T[BN, D], v: T[BN, D]
  fragment S: f32[BM, BN], e: T[BM, BN], acc: f32[BM, D] = 0, m: f32[BM] = -1e30, l: f32[BM] = 0, alpha: f32[BM]
  let size = H / G, share = ceildiv(ceildiv(L, 128), P) * (128 / BN), c = scale * log2e

  parallel i < BM, d < D { q[i, d] = Q[(x*BM + i) / size, g*size + (x*BM + i) % size, d] }
  pipelined n in p*share .. min(ceildiv(L, BN), (p + 1)*share), stages {
    k = K[n*BN +: BN, g, :]
    v = V[n*BN +: BN, g, :]
    S = q @ k^T
    parallel i < BM, j < BN { S[i, j] = n*BN + j < L ? S[i, j] : -inf }
    parallel i < BM {
      let most = max(m[i], max[j < BN](S[i, j]))
      alpha[i] = exp2((m[i] - most) * c)
      m[i] = most
    }
    parallel i < BM, j < BN { S[i, j] = exp2(S[i, j] * c - m[i] * c) }
    parallel i < BM { l[i] = l[i] * alpha[i] + sum[j < BN](S[i, j]) }
    parallel i < BM, d < D { acc[i, d] *= alpha[i] }
    e = S
    acc += e @ v
  }
  parallel i < BM, d < D {
    let at = x*BM + i
    part[at / size, g*size + at % size, p, d] = l[i] > 0 ? acc[i, d] / l[i] : 0
  }
  parallel i < BM {
    lse[(x*BM + i) / size, g*size + (x*BM + i) % size, p] = l[i] > 0 ? m[i] * c + log2(l[i]) : -inf
  }
}

# The sequence's own keys, and all parts weighed together.
kernel own_part<T: f16 | bf16>(Q: T[B, H, D], K: T[B, N, G, D], V: T[B, N, G, D], length: i32[B], part: f32[B, H, P, D],
                               lse: f32[B, H, P], O: out T[B, H, D], scale: f32)
where H % G == 0 && H / G <= 16
key  bucket(B), H, G, bucket(N), bucket(P), D
tune BN = 64 | 32 | 128, stages = 2 | 3
grid b < B, g < G
{
  shared   q: T[16, D], k: T[BN, D], v: T[BN, D]
  fragment S: f32[16, BN], e: T[16, BN], x: f32[16, D], acc: f32[16, D] = 0
  fragment m: f32[16] = -1e30, l: f32[16] = 0, alpha: f32[16], w: f32[16]
  let size = H / G, all = length[b], c = scale * log2e

  q = Q[b, g*size +: 16, :] within g*size +: size
  pipelined n < ceildiv(all, BN), stages {
    k = K[b, n*BN +: BN, g, :]
    v = V[b, n*BN +: BN, g, :]
    S = q @ k^T
    parallel i < 16, j < BN { S[i, j] = n*BN + j < all ? S[i, j] * c : -inf }
    parallel i < 16 {
      let most = max(m[i], max[j < BN](S[i, j]))
      alpha[i] = exp2(m[i] - most)
      m[i] = most
    }
    parallel i < 16, j < BN { S[i, j] = exp2(S[i, j] - m[i]) }
    parallel i < 16 { l[i] = l[i] * alpha[i] + sum[j < BN](S[i, j]) }
    parallel i < 16, d < D { acc[i, d] *= alpha[i] }
    e = S
    acc += e @ v
  }
  for p < P {
    x = part[b, g*size +: 16, p, :]
    w = lse[b, g*size +: 16, p] pad -inf
    parallel i < 16 {
      let most = max(m[i], w[i])
      alpha[i] = exp2(m[i] - most)
      w[i] = exp2(w[i] - most)
      m[i] = most
    }
    parallel i < 16 { l[i] = l[i] * alpha[i] + w[i] }
    parallel i < 16, d < D { acc[i, d] = acc[i, d] * alpha[i] + w[i] * x[i, d] }
  }
  parallel i < 16, d < D { acc[i, d] /= l[i] }
  O[b, g*size +: 16, :] within g*size +: size = acc
}

program shared_prompt<T: f16 | bf16>(Q: T[B, H, D], KP: T[L, G, D], VP: T[L, G, D], K: T[B, N, G, D], V: T[B, N, G, D],
                                     length: i32[B], O: out T[B, H, D], scale: f32)
key  bucket(B), H, G, bucket(L), bucket(N), D
tune splits = 8 | 1 | 2 | 4 | 16 | 32
{
  temp part: f32[B, H, splits, D], lse: f32[B, H, splits]
  prompt_part(Q, KP, VP, part, lse, scale)
  own_part(Q, K, V, length, part, lse, O, scale)
}
"""


def shared_prompt(t, d):
    k, v = (torch.cat((prompt.expand(d["B"], -1, -1, -1), own), 1).transpose(1, 2)
            for prompt, own in ((t.KP, t.K), (t.VP, t.V)))
    mask = torch.arange(d["L"] + d["N"], device=k.device) < d["L"] + t.length[:, None, None, None]
    return sdpa(t.Q.unflatten(1, (d["G"], -1)), k, v, attn_mask=mask, scale=t.scale).flatten(1, 2)


def shared_prompt_flash(t, d):
    b, g, h, n = d["B"], d["G"], d["H"], d["D"]
    q = t.Q.unflatten(1, (g, -1))
    k, v = heads(t.KP[None], t.VP[None])
    one, lse, *_ = aten._scaled_dot_product_flash_attention(q.transpose(0, 1).reshape(1, g, -1, n), k, v, scale=t.scale)
    one, lse = (x.view(g, b, h // g, -1).transpose(0, 1) for x in (one, lse))
    scores = (q @ t.K.permute(0, 2, 3, 1)).float() * t.scale
    scores = scores.masked_fill(torch.arange(d["N"], device=q.device) >= t.length[:, None, None, None], float("-inf"))
    two, own = scores.softmax(-1).to(BF) @ t.V.transpose(1, 2), scores.logsumexp(-1, keepdim=True)
    w = torch.sigmoid(lse - own).to(BF)
    return torch.lerp(two, one, w).flatten(1, 2)


CASES = [
    Case("attention_bwd", BACKWARD,
         {"large": dict(B=2, N=4096, H=16, D=128), "odd": dict(B=1, N=3001, H=11, D=72), "small": dict(B=1, N=80, H=2, D=32)},
         backward_autograd, types=B16, reference=backward_reference, compiled=False, peers={"flash": backward_flash},
         tolerance=1e-2,  # of the worst element, sixteen times that: early rows come to 0.10 by steps of bf16 alone
         fills={"O": lambda s, t, d: sdpa(*heads(t.Q, t.K, t.V), is_causal=True).transpose(1, 2), "lse": filled_lse, "scale": scaled}),
    Case("swin_shifted", SWIN,
         {"large": dict(B=64, P=3136, H=6, D=32, rows=56, columns=56),
          "odd": dict(B=13, P=2695, H=5, D=40, rows=35, columns=77),
          "small": dict(B=1, P=294, H=2, D=16, rows=21, columns=14)}, swin_shifted, types=B16,
         fills={"rows": lambda s, t, d: d["rows"], "columns": lambda s, t, d: d["columns"], "scale": scaled}),
    Case("mla_decode", MLA,
         {"large": dict(B=32, H=128, pages=2048, P=64), "odd": dict(B=11, H=61, pages=701, P=37),
          "small": dict(B=2, H=10, pages=7, P=3)}, mla_decode, types=B16,
         fills={"table": lambda s, t, d: torch.randint(0, d["pages"], s, device=DEV).to(torch.int32),
                "length": lambda s, t, d: torch.randint(d["P"] * 16, d["P"] * 64 + 1, s, device=DEV).to(torch.int32),
                "scale": lambda s, t, d: 576 ** -0.5}),
    Case("shared_prompt", SHARED,
         {"large": dict(B=64, H=32, G=8, D=128, L=8192, N=512), "odd": dict(B=37, H=21, G=7, D=80, L=3001, N=301),
          "small": dict(B=3, H=4, G=2, D=32, L=200, N=50)}, shared_prompt, types=B16,
         fills={"length": lambda s, t, d: torch.randint(1, d["N"] + 1, s, device=DEV).to(torch.int32), "scale": scaled},
         peers={"flash": shared_prompt_flash}),
]
