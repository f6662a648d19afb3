"""Gemms as models have them: rotary heads, a router of experts, a narrow net, a low rank beside, a loss behind."""
import torch
import torch.nn.functional as F
from sets.shared.chains import DEV, cases, dims, linear, value, wide

# ---- a projection to heads with rotary embeddings on them, halves rotated
ROPE = """tile 1

kernel gemm_rope<T: f32 | f16 | bf16>(A: T[B, S, K], W: T[H, D, K], cosine: f32[S, half], sine: f32[S, half],
                                      y: out T[B, H, S, D])
where D == 2 * half
key  bucket(S), H, D, K
tune BM = 64 | 128, BK = 64 | 32, stages = 3 | 4 | 6
grid z < B, s < ceildiv(S, BM), h < H
{
  shared   a: T[BM, BK], w: T[D, BK]
  fragment acc: f32[BM, D] = 0

  pipelined k < ceildiv(K, BK), stages {
    a = A[z, s*BM +: BM, k*BK +: BK]
    w = W[h, :, k*BK +: BK]
    acc += a @ w^T
  }
  parallel i < BM, d < half {
    let c = cosine[s*BM + i, d], n = sine[s*BM + i, d]
    let low = acc[i, d], high = acc[i, d + half]
    acc[i, d]        = low * c - high * n
    acc[i, d + half] = high * c + low * n
  }
  y[z, h, s*BM +: BM, :] = acc
}
"""

# ---- the router of a mixture of experts: probabilities of E experts
ROUTER = """tile 1

kernel router_softmax<T: f32 | f16 | bf16>(X: T[M, K], W: T[E, K], y: out f32[M, E])
where E <= 512
key  bucket(M), E, K
tune BM = 64 | 128 | 32 | 16, BK = 64 | 128, stages = 3 | 4 | 6
grid m < ceildiv(M, BM)
{
  shared   x: T[BM, BK], w: T[E, BK]
  fragment acc: f32[BM, E] = 0

  pipelined k < ceildiv(K, BK), stages {
    x = X[m*BM +: BM, k*BK +: BK]
    w = W[:, k*BK +: BK]
    acc += x @ w^T
  }
  parallel i < BM, e < E { acc[i, e] = exp(acc[i, e] - max[k < E](acc[i, k])) }
  parallel i < BM, e < E { acc[i, e] /= sum[k < E](acc[i, k]) }
  y[m*BM +: BM, :] = acc
}
"""

# ---- softmax(relu(x W1^T + b1) W2^T + b2): a narrow net, whose hidden row a block holds
MLP = """tile 1

kernel mlp_softmax<T: f32 | f16 | bf16>(X: T[M, K], W1: T[H, K], b1: T[H], W2: T[N, H], b2: T[N], y: out T[M, N])
where H <= 256 && N <= 256
key  bucket(M), K, H, N
tune BM = 64 | 128, BK = 64 | 32, stages = 3 | 4 | 2
grid m < ceildiv(M, BM)
{
  shared   x: T[BM, BK], w1: T[H, BK], w2: T[N, H]
  fragment hidden: f32[BM, H] = 0, h: T[BM, H], acc: f32[BM, N]

  pipelined k < ceildiv(K, BK), stages {
    x = X[m*BM +: BM, k*BK +: BK]
    w1 = W1[:, k*BK +: BK]
    hidden += x @ w1^T
  }
  w2 = W2
  parallel i < BM, j < H { h[i, j] = max(hidden[i, j] + b1[j], 0) }
  acc = h @ w2^T
  parallel i < BM, j < N { acc[i, j] += b2[j] }
  parallel i < BM, j < N { acc[i, j] = exp(acc[i, j] - max[k < N](acc[i, k])) }
  parallel i < BM, j < N { acc[i, j] /= sum[k < N](acc[i, k]) }
  y[m*BM +: BM, :] = acc
}
"""

# ---- gelu(x W^T + s (x A^T) B^T): a low rank beside the gemm, in the same loop
LORA = """tile 1

kernel gemm_lora_gelu<T: f32 | f16 | bf16>(X: T[M, K], W: T[N, K], A: T[R, K], B: T[N, R], y: out T[M, N], s: f32)
where R <= 64
key  bucket(M), N, K, R
tune BM = 64 | 128, BN = 128 | 256 | 64, BK = 64 | 32, stages = 3 | 4
grid m < ceildiv(M, BM), n < ceildiv(N, BN)
{
  shared   x: T[BM, BK], w: T[BN, BK], a: T[R, BK], b: T[BN, R]
  fragment acc: f32[BM, BN] = 0, low: f32[BM, R] = 0, h: T[BM, R]

  pipelined k < ceildiv(K, BK), stages {
    x = X[m*BM +: BM, k*BK +: BK]
    w = W[n*BN +: BN, k*BK +: BK]
    a = A[:, k*BK +: BK]
    acc += x @ w^T
    low += x @ a^T
  }
  b = B[n*BN +: BN, :]
  parallel i < BM, j < R { h[i, j] = low[i, j] * s }
  acc += h @ b^T
  parallel i < BM, j < BN {
    let u = acc[i, j]
    acc[i, j] = 0.5 * u * (1 + erf(u * 0.70710678))
  }
  y[m*BM +: BM, n*BN +: BN] = acc
}
"""

# ---- the loss of each row against a target, without ever writing the logits
XENT = """tile 1

kernel gemm_cross_entropy<T: f32 | f16 | bf16>(X: T[M, K], W: T[V, K], target: i32[M], loss: out f32[M])
key  bucket(M), V, K
tune BM = 128 | 64, BN = 128 | 256, BK = 64 | 32, stages = 3 | 4
grid m < ceildiv(M, BM)
{
  shared   x: T[BM, BK], w: T[BN, BK]
  fragment acc: f32[BM, BN], top: f32[BM] = -1e30, l: f32[BM] = 0, hit: f32[BM] = 0, at: i32[BM]
  at = target[m*BM +: BM]

  for v < ceildiv(V, BN) {
    acc = 0
    pipelined k < ceildiv(K, BK), stages {
      x = X[m*BM +: BM, k*BK +: BK]
      w = W[v*BN +: BN, k*BK +: BK]
      acc += x @ w^T
    }
    parallel i < BM { hit[i] += sum[j < BN](v*BN + j == at[i] ? acc[i, j] : 0.0) }
    parallel i < BM, j < BN { acc[i, j] = v*BN + j < V ? acc[i, j] : -inf }
    parallel i < BM {
      let next = max(top[i], max[j < BN](acc[i, j]))
      l[i] = l[i] * exp(top[i] - next) + sum[j < BN](exp(acc[i, j] - next))
      top[i] = next
    }
  }
  parallel i < BM { l[i] = top[i] + log(l[i]) - hit[i] }
  loss[m*BM +: BM] = l
}
"""


def rope(t, d):
    b, s, h, w = d["B"], d["S"], d["H"], d["D"]
    x = F.linear(t.A, t.W.flatten(0, 1)).view(b, s, h, w).transpose(1, 2)
    low, high = x.chunk(2, -1)
    c, n = t.cosine.to(x.dtype), t.sine.to(x.dtype)
    return torch.cat((low * c - high * n, high * c + low * n), -1)


def angles(turn):
    def fill(s, d):
        at = torch.arange(s[0], device=DEV)[:, None] * 10000.0 ** (-torch.arange(s[1], device=DEV) / s[1])
        return turn(at).float()
    return fill


CASES = [
    *cases("gemm_rope", ROPE, rope,
           dims("B S H D half K", (4, 2048, 32, 128, 64, 4096), (3, 501, 5, 90, 45, 451), (2, 9, 3, 6, 3, 17)),
           dims("B S H D half K", (1, 1024, 32, 128, 64, 4096), (3, 201, 5, 42, 21, 151), (2, 9, 3, 6, 3, 17)),
           plain={"cosine": angles(torch.cos), "sine": angles(torch.sin)}),
    *cases("router_softmax", ROUTER, lambda t, d: F.softmax(wide(F.linear(t.X, t.W)), 1),
           dims("M E K", (16384, 128, 7168), (3001, 61, 1003), (13, 11, 17)),
           dims("M E K", (8192, 64, 4096), (1001, 61, 523), (13, 11, 17)), tolerance=2e-5),
    *cases("mlp_softmax", MLP, lambda t, d: F.softmax(F.linear(F.relu(F.linear(t.X, t.W1, t.b1)), t.W2, t.b2), 1),
           dims("M K H N", (65536, 1024, 256, 128), (3001, 301, 133, 61), (13, 17, 21, 9)),
           dims("M K H N", (32768, 512, 128, 64), (1001, 259, 101, 43), (13, 17, 21, 9)),
           fills={"W1": linear, "W2": linear}),
    *cases("gemm_lora_gelu", LORA, lambda t, d: F.gelu(F.linear(t.X, t.W) + F.linear(F.linear(t.X, t.A), t.B) * t.s),
           dims("M N K R", (4096, 4096, 4096, 16), (1001, 777, 1003, 11), (13, 21, 17, 5)),
           dims("M N K R", (1024, 4096, 4096, 16), (333, 517, 259, 11), (13, 21, 17, 5)),
           fills={"A": linear, "B": linear, "s": value(0.5)}),
    *cases("gemm_cross_entropy", XENT,
           lambda t, d: F.cross_entropy(wide(F.linear(t.X, t.W)), t.target.long(), reduction="none"),
           dims("M V K", (16384, 4096, 1024), (2001, 1511, 301), (13, 300, 17)),
           dims("M V K", (8448, 1024, 1024), (777, 259, 131), (13, 300, 17)),
           plain={"target": lambda s, d: torch.randint(0, d["V"], s, device=DEV, dtype=torch.int32)}, tolerance=2e-5),
]
