"""Gradients of rotations, embeddings, depthwise convolutions and attention with a soft cap."""
import torch
import torch.nn.functional as F
from sets.shared.gradients import BF, HF, normal, number, up
from unseen import Case


ROPE = """tile 1
# The gradient is turned back; pairs lie beside each other, positions come from memory.
kernel rope_backward<T: f16 | bf16>(dY: T[N, H, D], at: i32[N], cosine: f32[L, half], sine: f32[L, half], dX: out T[N, H, D])
where D == 2 * half
key bucket(N), H, D
tune rows = 1 | 2 | 4, heads = 4 | 8 | 16, threads = 128 | 256
grid n < ceildiv(N, rows), h < ceildiv(H, heads)
{
  fragment x: f32[rows, heads, D]
  x = dY[n*rows +: rows, h*heads +: heads, :]
  parallel i < rows, g < heads, d < half {
    let p = at[n*rows + i]
    let c = cosine[p, d], s = sine[p, d]
    let a = x[i, g, 2*d], b = x[i, g, 2*d + 1]
    x[i, g, 2*d] = a * c + b * s
    x[i, g, 2*d + 1] = b * c - a * s
  }
  dX[n*rows +: rows, h*heads +: heads, :] = x
}
"""


def rope_backward(t, d):
    at = t.at.long()
    c, s = t.cosine[at][:, None], t.sine[at][:, None]
    a, b = up(t.dY[..., 0::2]), up(t.dY[..., 1::2])
    return torch.stack((a * c + b * s, b * c - a * s), -1).flatten(-2).to(t.dY.dtype)


def rope_complex(t, d):
    if not hasattr(t, "turn"):
        t.turn = torch.complex(t.cosine, -t.sine)
    x = torch.view_as_complex(t.dY.float().view(d["N"], d["H"], d["half"], 2))
    return torch.view_as_real(x * t.turn[t.at.long()][:, None]).flatten(-2).to(t.dY.dtype)


# ---- scatter --------------------------------------------------------------------------------------------------------
EMBEDDING = """tile 1
kernel clear(W: out f32[V, D])
key V, D
tune rows = 4 | 8 | 16, BD = 256 | 512, threads = 128 | 256
grid v < ceildiv(V, rows), d < ceildiv(D, BD)
{
  fragment z: f32[rows, BD] = 0
  W[v*rows +: rows, d*BD +: BD] = z
}

kernel add<T: f16 | bf16>(dY: T[N, D], at: i32[N], W: inout f32[V, D])
key bucket(N), D
tune rows = 1 | 2 | 4, BD = 256 | 512 | 1024, threads = 128 | 256
grid n < ceildiv(N, rows), d < ceildiv(D, BD)
{
  fragment g: f32[rows, BD]
  g = dY[n*rows +: rows, d*BD +: BD]
  parallel i < rows, j < BD {
    if n*rows + i < N && d*BD + j < D { atomic W[at[n*rows + i], d*BD + j] += g[i, j] }
  }
}

program embedding_backward<T: f16 | bf16>(dY: T[N, D], at: i32[N], dW: out f32[V, D])
key bucket(N), V, D
{
  clear(dW)
  add(dY, at, dW)
}
"""


def embedding(t, d):
    g = up(t.dY)
    return torch.zeros(d["V"], d["D"], device=g.device, dtype=g.dtype).index_add_(0, t.at, g)


DEPTHWISE = """tile 1
# The gradient of a depthwise 3x3 filter: a sum over all pixels for each tap and channel.
kernel taps<T: f16 | bf16>(X: T[N, H, W, C], dY: T[N, H, W, C], part: out f32[S, 9, C])
key bucket(N), H, W, C, S
tune BW = 4 | 8 | 16, BC = 32 | 64 | 128, threads = 64 | 128 | 256
grid s < S, c < ceildiv(C, BC)
{
  fragment g: f32[BW, BC], f: f32[9, BC] = 0
  let share = ceildiv(N*H, S)
  for row in s*share .. min(N*H, (s + 1)*share) {
    let n = row / H, h = row % H
    for w < ceildiv(W, BW) {
      g = dY[n, h, w*BW +: BW, c*BC +: BC]
      parallel q < 9, j < BC {
        f[q, j] += sum[i < BW](g[i, j] * X[n, h + q / 3 - 1, w*BW + i + q % 3 - 1, c*BC + j])
      }
    }
  }
  part[s, :, c*BC +: BC] = f
}

kernel join(part: f32[S, 9, C], F: out f32[9, C])
key bucket(S), C
tune BC = 32 | 64, threads = 128 | 256
grid q < 9, c < ceildiv(C, BC)
{
  fragment p: f32[16, BC], acc: f32[BC] = 0
  for s < ceildiv(S, 16) {
    p = part[s*16 +: 16, q, c*BC +: BC]
    parallel j < BC { acc[j] += sum[i < 16](p[i, j]) }
  }
  F[q, c*BC +: BC] = acc
}

program depthwise_weight<T: f16 | bf16>(X: T[N, H, W, C], dY: T[N, H, W, C], dF: out f32[9, C])
key bucket(N), H, W, C
tune S = 128 | 64 | 256 | 512
{
  temp part: f32[S, 9, C]
  taps(X, dY, part)
  join(part, dF)
}
"""


def depthwise_weight(t, d):
    x, g = t.X.permute(0, 3, 1, 2), t.dY.permute(0, 3, 1, 2)
    w = torch.nn.grad.conv2d_weight(x, (d["C"], 1, 3, 3), g, padding=1, groups=d["C"])
    return up(w).view(d["C"], 9).T


def depthwise_reference(t, d):
    x = F.pad(t.X, (0, 0, 1, 1, 1, 1))
    return torch.stack([(x[:, r:r + d["H"], s:s + d["W"]] * t.dY).sum((0, 1, 2)) for r in range(3) for s in range(3)])


def depthwise_sums(t, d):
    return depthwise_reference(t, d)


# ---- attention ------------------------------------------------------------------------------------------------------
SOFTCAP = """tile 1
# Causal attention whose scores are cap * tanh(scale * q k / cap), with grouped heads.
kernel dots<T: f16 | bf16>(O: T[B, S, H, D], dO: T[B, S, H, D], delta: out f32[B, H, S])
key bucket(S), H, D
tune rows = 8 | 16 | 32, threads = 128 | 256
grid s < ceildiv(S, rows), h < H, b < B
{
  fragment o: f32[rows, D], g: f32[rows, D], x: f32[rows]
  o = O[b, s*rows +: rows, h, :]
  g = dO[b, s*rows +: rows, h, :]
  parallel i < rows { x[i] = sum[d < D](o[i, d] * g[i, d]) }
  delta[b, h, s*rows +: rows] = x
}

kernel queries<T: f16 | bf16>(Q: T[B, S, H, D], K: T[B, S, G, D], V: T[B, S, G, D], dO: T[B, S, H, D], lse: f32[B, H, S], delta: f32[B, H, S],
                              dQ: out T[B, S, H, D], scale: f32, cap: f32)
where H % G == 0
key bucket(S), H, D
tune BM = 128 | 64, BN = 64 | 128 | 32, stages = 2 | 3
grid s < ceildiv(S, BM), h < H, b < B
{
  shared   q: T[BM, D], g: T[BM, D], k: T[BN, D], v: T[BN, D]
  fragment x: f32[BM, BN], y: f32[BM, BN], z: T[BM, BN], acc: f32[BM, D] = 0
  let u = h / (H / G)
  q = Q[b, s*BM +: BM, h, :]
  g = dO[b, s*BM +: BM, h, :]
  pipelined n < ceildiv(min(S, (s + 1)*BM), BN), stages {
    k = K[b, n*BN +: BN, u, :]
    v = V[b, n*BN +: BN, u, :]
    x = q @ k^T
    y = g @ v^T
    parallel i < BM, j < BN {
      let row = s*BM + i, t = tanh(x[i, j] * (scale / cap))
      let p = n*BN + j <= row ? exp2((cap * t - lse[b, h, row]) * log2e) : 0
      z[i, j] = p * (y[i, j] - delta[b, h, row]) * (1 - t * t)
    }
    acc += z @ k
  }
  parallel i < BM, d < D { acc[i, d] *= scale }
  dQ[b, s*BM +: BM, h, :] = acc
}

kernel keys<T: f16 | bf16>(Q: T[B, S, H, D], K: T[B, S, G, D], V: T[B, S, G, D], dO: T[B, S, H, D], lse: f32[B, H, S], delta: f32[B, H, S],
                           dK: out T[B, S, G, D], dV: out T[B, S, G, D], scale: f32, cap: f32)
where H % G == 0
key bucket(S), H, G, D
tune BN = 128 | 64, BM = 64 | 32 | 128, stages = 2 | 3
grid n < ceildiv(S, BN), u < G, b < B
{
  shared   k: T[BN, D], v: T[BN, D], q: T[BM, D], g: T[BM, D]
  fragment x: f32[BN, BM], y: f32[BN, BM], p: T[BN, BM], z: T[BN, BM], dk: f32[BN, D] = 0, dv: f32[BN, D] = 0
  k = K[b, n*BN +: BN, u, :]
  v = V[b, n*BN +: BN, u, :]
  let first = n*BN / BM
  let steps = ceildiv(S, BM) - first
  pipelined e < steps * (H / G), stages {
    let h = u * (H / G) + e / steps, m = first + e % steps
    q = Q[b, m*BM +: BM, h, :]
    g = dO[b, m*BM +: BM, h, :]
    x = k @ q^T
    y = v @ g^T
    parallel i < BN, j < BM {
      let row = m*BM + j, t = tanh(x[i, j] * (scale / cap))
      let w = n*BN + i <= row ? exp2((cap * t - lse[b, h, row]) * log2e) : 0
      p[i, j] = w
      z[i, j] = w * (y[i, j] - delta[b, h, row]) * (1 - t * t)
    }
    dv += p @ g
    dk += z @ q
  }
  parallel i < BN, d < D { dk[i, d] *= scale }
  dK[b, n*BN +: BN, u, :] = dk
  dV[b, n*BN +: BN, u, :] = dv
}

program softcap_backward<T: f16 | bf16>(Q: T[B, S, H, D], K: T[B, S, G, D], V: T[B, S, G, D], dO: T[B, S, H, D], O: T[B, S, H, D], lse: f32[B, H, S],
                                        dQ: out T[B, S, H, D], dK: out T[B, S, G, D], dV: out T[B, S, G, D], scale: f32, cap: f32)
where H % G == 0
key bucket(S), H, G, D
{
  temp delta: f32[B, H, S]
  dots(O, dO, delta)
  queries(Q, K, V, dO, lse, delta, dQ, scale, cap)
  keys(Q, K, V, dO, lse, delta, dK, dV, scale, cap)
}
"""
CAP = 30.0


def softcap_forward(t, d):
    """scores' tanh, probabilities; b h s s"""
    rep = d["H"] // d["G"]
    k = t.K.repeat_interleave(rep, 2)
    s = torch.tanh(torch.einsum("bqhd,bkhd->bhqk", t.Q, k) * (d["D"] ** -0.5 / CAP))
    mask = torch.ones(d["S"], d["S"], dtype=torch.bool, device=s.device).tril()
    return s, (up(s) * CAP).masked_fill(~mask, float("-inf"))


def softcap_o(shape, t, d):
    _, x = softcap_forward(t, d)
    p = torch.softmax(x, -1).to(t.Q.dtype)
    return torch.einsum("bhqk,bkhd->bqhd", p, t.V.repeat_interleave(d["H"] // d["G"], 2))


def softcap_lse(shape, t, d):
    return torch.logsumexp(softcap_forward(t, d)[1], -1).float()


def softcap_backward(t, d):
    rep = d["H"] // d["G"]
    b, n, h, g = (d[k] for k in "BSHG")
    s, x = softcap_forward(t, d)
    p = torch.exp(x - t.lse[..., None])
    dp = torch.einsum("bqhd,bkhd->bhqk", t.dO, t.V.repeat_interleave(rep, 2))
    delta = (up(t.dO) * up(t.O)).sum(-1).transpose(1, 2)
    ds = (p * (dp - delta[..., None]) * (1 - up(s) ** 2) * d["D"] ** -0.5).to(t.Q.dtype)
    dq = torch.einsum("bhqk,bkhd->bqhd", ds, t.K.repeat_interleave(rep, 2))
    dk = torch.einsum("bhqk,bqhd->bkhd", ds, t.Q).view(b, n, g, rep, -1).sum(3)
    dv = torch.einsum("bhqk,bqhd->bkhd", p.to(t.Q.dtype), t.dO).view(b, n, g, rep, -1).sum(3)
    return dq, dk, dv


def graph_of(t, d, forward):
    if not hasattr(t, "graph"):
        q, k, v = (x.detach().transpose(1, 2).contiguous().requires_grad_() for x in (t.Q, t.K, t.V))
        t.graph = (forward(q, k, v), (q, k, v), t.dO.transpose(1, 2).contiguous())
    out, inputs, grad = t.graph
    return torch.autograd.grad(out, inputs, grad, retain_graph=True)


FLEX = {}


def softcap_flex(t, d):
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention
    if "flex" not in FLEX:
        FLEX["flex"] = torch.compile(flex_attention, dynamic=False)
    mask = create_block_mask(lambda b, h, q, k: q >= k, None, None, d["S"], d["S"], device=t.Q.device) if not hasattr(t, "graph") else None
    return graph_of(t, d, lambda q, k, v: FLEX["flex"](q, k, v, score_mod=lambda s, b, h, i, j: CAP * torch.tanh(s / CAP), block_mask=mask,
                                                       enable_gqa=True))


def plain_sdpa(t, d):
    """without the cap: what a library's kernel takes for a simpler function"""
    rep = d["H"] // d["G"]
    return graph_of_plain(t, d, rep)


def graph_of_plain(t, d, rep):
    if not hasattr(t, "plain_graph"):
        q, k, v = (x.detach().transpose(1, 2).contiguous() for x in (t.Q, t.K, t.V))
        q, k, v = q.requires_grad_(), k.repeat_interleave(rep, 1).requires_grad_(), v.repeat_interleave(rep, 1).requires_grad_()
        t.plain_graph = (F.scaled_dot_product_attention(q, k, v, is_causal=True), (q, k, v), t.dO.transpose(1, 2).contiguous())
    out, inputs, grad = t.plain_graph
    return torch.autograd.grad(out, inputs, grad, retain_graph=True)


def angles(which):
    def fill(shape, t, d):
        w = 10000.0 ** (-torch.arange(d["half"], dtype=torch.float64) / d["half"])
        a = torch.arange(d["L"], dtype=torch.float64)[:, None] * w
        return (a.cos() if which == "cos" else a.sin()).float().to(t.dY.device)
    return fill


def places(of):
    return lambda shape, t, d: torch.randint(0, d[of], shape, device=t.dY.device, dtype=torch.int32)

CASES = [
    Case("rope_backward_pairs", ROPE,
         {"large": dict(N=16384, H=32, D=128, half=64, L=4096), "odd": dict(N=9001, H=27, D=90, half=45, L=3001),
          "small": dict(N=3, H=3, D=6, half=3, L=11)},
         rope_backward, types=BF, peers={"complex": rope_complex},
         fills={"at": places("L"), "cosine": angles("cos"), "sine": angles("sin")}),
    Case("embedding_backward", EMBEDDING,
         {"large": dict(N=16384, V=32000, D=2048), "odd": dict(N=9001, V=20011, D=1537), "small": dict(N=11, V=5, D=9)},
         embedding, kernel="embedding_backward", types=BF, fills={"at": places("V")}, tolerance=1e-4,
         peers={"native": lambda t, d: torch.ops.aten.embedding_dense_backward(t.dY, t.at, d["V"], -1, False)}),
    Case("depthwise_weight_grad", DEPTHWISE,
         {"large": dict(N=32, H=56, W=56, C=256), "odd": dict(N=13, H=53, W=47, C=333), "small": dict(N=2, H=3, W=5, C=7)},
         depthwise_weight, reference=depthwise_reference, kernel="depthwise_weight", types=HF, tolerance=1e-3, compiled=False,
         peers={"sums": depthwise_sums}),
    Case("softcap_attention_backward", SOFTCAP,
         {"large": dict(B=1, S=4096, H=16, G=8, D=128), "odd": dict(B=1, S=2999, H=9, G=3, D=88), "small": dict(B=1, S=7, H=4, G=2, D=8)},
         softcap_backward, kernel="softcap_backward", types=BF, tolerance=2e-2,
         fills={"O": softcap_o, "lse": softcap_lse, "scale": lambda shape, t, d: d["D"] ** -0.5, "cap": number(CAP),
                "K": normal(2.0, "Q"), "V": normal(1.0, "Q"), "dO": normal(1.0, "Q")},
         peers={"flex": softcap_flex, "sdpa_without_cap": plain_sdpa}),
]
