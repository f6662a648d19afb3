"""Steps of optimisers."""
import torch
from sets.shared.gradients import BF, number, up
from unseen import Case


def normal32(factor=1.0, of="X"):
    return lambda shape, t, d: torch.randn(shape, device=getattr(t, of).device) * factor


# ---- optimisers -----------------------------------------------------------------------------------------------------
ADAM = """tile 1
# AdamW on f32 master weights, with the weights of 16 bits written beside them.
kernel adamw<T: f16 | bf16>(P: inout f32[N], G: T[N], M: inout f32[N], V: inout f32[N], W: out T[N],
                            lr: f32, b1: f32, b2: f32, eps: f32, decay: f32, c1: f32, c2: f32)
key bucket(N)
tune BN = 512 | 1024 | 2048 | 4096, threads = 128 | 256 | 512
grid n < ceildiv(N, BN)
{
  fragment p: f32[BN], g: f32[BN], m: f32[BN], v: f32[BN]
  p = P[n*BN +: BN]
  g = G[n*BN +: BN]
  m = M[n*BN +: BN]
  v = V[n*BN +: BN]
  parallel i < BN {
    m[i] = b1 * m[i] + (1 - b1) * g[i]
    v[i] = b2 * v[i] + (1 - b2) * g[i] * g[i]
    p[i] = p[i] * (1 - lr * decay) - lr * (m[i] / c1) / (sqrt(v[i] / c2) + eps)
  }
  P[n*BN +: BN] = p
  M[n*BN +: BN] = m
  V[n*BN +: BN] = v
  W[n*BN +: BN] = p
}
"""
LR, B1, B2, EPS, DECAY, C1, C2 = 1e-3, 0.9, 0.95, 1e-8, 0.1, 0.4, 0.2


def adamw(t, d):
    g = up(t.G) if t.G.dtype != torch.float64 else t.G
    m = B1 * t.M + (1 - B1) * g
    v = B2 * t.V + (1 - B2) * g * g
    p = t.P * (1 - LR * DECAY) - LR * (m / C1) / (torch.sqrt(v / C2) + EPS)
    return p, m, v, p.to(t.G.dtype)


def adamw_in_place(t, d):
    p, m, v, w = adamw(t, d)
    t.P.copy_(p)
    t.M.copy_(m)
    t.V.copy_(v)
    t.W.copy_(w)


ADAM_IN_PLACE = {}


def adamw_compiled(t, d):
    if "f" not in ADAM_IN_PLACE:
        ADAM_IN_PLACE["f"] = torch.compile(adamw_in_place, dynamic=False)
    ADAM_IN_PLACE["f"](t, d)


def adamw_fused(t, d):
    """torch's own: gradients of f32, no copy in 16 bits"""
    if not hasattr(t, "G32"):
        t.G32, t.step = t.G.float(), torch.tensor(5.0, device=t.G.device)
    torch._fused_adamw_([t.P], [t.G32], [t.M], [t.V], [], [t.step], lr=LR, beta1=B1, beta2=B2, weight_decay=DECAY, eps=EPS,
                        amsgrad=False, maximize=False)


LION = """tile 1
kernel lion<T: f16 | bf16>(P: inout f32[N], G: T[N], M: inout T[N], lr: f32, b1: f32, b2: f32, decay: f32)
key bucket(N)
tune BN = 512 | 1024 | 2048 | 4096, threads = 128 | 256 | 512
grid n < ceildiv(N, BN)
{
  fragment p: f32[BN], g: f32[BN], m: f32[BN]
  p = P[n*BN +: BN]
  g = G[n*BN +: BN]
  m = M[n*BN +: BN]
  parallel i < BN {
    let c = b1 * m[i] + (1 - b1) * g[i]
    p[i] = p[i] * (1 - lr * decay) - (c > 0 ? lr : c < 0 ? -lr : 0)
    m[i] = b2 * m[i] + (1 - b2) * g[i]
  }
  P[n*BN +: BN] = p
  M[n*BN +: BN] = m
}
"""


def lion(t, d):
    g, m = up(t.G), up(t.M)
    c = 0.9 * m + (1 - 0.9) * g
    return t.P * (1 - 1e-4 * DECAY) - 1e-4 * torch.sign(c), (0.99 * m + (1 - 0.99) * g).to(t.M.dtype)


CLIP = """tile 1
kernel squares<T: f16 | bf16 | f32>(G: T[N], part: out f32[S])
key bucket(N), S
tune BN = 1024 | 2048 | 4096, threads = 128 | 256 | 512
grid s < S
{
  fragment x: f32[BN], total: f32[1] = 0
  let share = ceildiv(ceildiv(N, S), 4096) * 4096
  for n < share / BN {
    x = G[s*share + n*BN +: BN]
    parallel i < 1 { total[i] += sum[j < BN](x[j] * x[j]) }
  }
  part[s +: 1] = total
}

kernel join(part: f32[S], norm: out f32[1])
key S
grid b < 1
{
  fragment x: f32[S], y: f32[1]
  x = part[:]
  parallel i < 1 { y[i] = sqrt(sum[s < S](x[s])) }
  norm[0 +: 1] = y
}

kernel scale<T: f16 | bf16 | f32>(G: T[N], norm: f32[1], Y: out T[N], most: f32)
key bucket(N)
tune BN = 1024 | 2048 | 4096, threads = 128 | 256 | 512
grid n < ceildiv(N, BN)
{
  fragment x: f32[BN]
  let factor = min(most / (norm[0] + 1e-6), 1.0)
  x = G[n*BN +: BN]
  parallel i < BN { x[i] *= factor }
  Y[n*BN +: BN] = x
}

program clip<T: f16 | bf16 | f32>(G: T[N], Y: out T[N], norm: out f32[1], most: f32)
key bucket(N)
tune S = 264 | 528 | 1056
{
  temp part: f32[S]
  squares(G, part)
  join(part, norm)
  scale(G, norm, Y, most)
}
"""


def clip(t, d):
    n = torch.linalg.vector_norm(t.G, dtype=torch.float64 if t.G.dtype == torch.float64 else torch.float32)
    return (t.G * torch.clamp_max(1000.0 / (n + 1e-6), 1.0)).to(t.G.dtype), n[None]


def clip_out(t, d):
    n = torch.linalg.vector_norm(t.G, dtype=torch.float32)
    return torch.mul(t.G, torch.clamp_max(1000.0 / (n + 1e-6), 1.0), out=t.Y), n


def rand(low, of="P"):
    return lambda shape, t, d: torch.rand(shape, device=getattr(t, of).device) + low

CASES = [
    Case("adamw_master", ADAM, {"large": dict(N=100_000_000), "odd": dict(N=33_333_331), "small": dict(N=1001)}, adamw, types=BF,
         fills={"M": normal32(0.1, "G"), "V": rand(0.0), "lr": number(LR), "b1": number(B1), "b2": number(B2), "eps": number(EPS),
                "decay": number(DECAY), "c1": number(C1), "c2": number(C2)},
         peers={"in place": adamw_in_place, "compiled in place": adamw_compiled, "fused f32": adamw_fused}),
    Case("lion", LION, {"large": dict(N=100_000_000), "odd": dict(N=33_333_331), "small": dict(N=1001)}, lion, types=BF, tolerance=1e-2,
         fills={"lr": number(1e-4), "b1": number(0.9), "b2": number(0.99), "decay": number(DECAY)}),
    Case("clip_global_norm", CLIP, {"large": dict(N=200_000_000), "odd": dict(N=66_666_667), "small": dict(N=10_007)}, clip, kernel="clip",
         types=BF, fills={"most": number(1000.0)}, tolerance=1e-2, peers={"out": clip_out}),
]
