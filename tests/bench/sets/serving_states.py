"""Caches and states of a server's layers: keys and values, convolutions, state space models, embeddings."""
import torch
import torch.nn.functional as F
from sets.shared.everyday import B16, BF, DEV, const, uniform, wide
from unseen import Case

F8 = torch.float8_e4m3fn
F32 = torch.float32


def normal(scale, dtype=BF):
    return lambda s, t, d: (torch.randn(s, device=DEV) * scale).to(dtype)


def slots(count, none=0.0, dtype=torch.int64):
    """Distinct places, some of them -1"""
    def fill(s, t, d):
        x = torch.randperm(count(d), device=DEV)[:s[0]]
        return torch.where(torch.rand(s, device=DEV) < none, -1, x).to(dtype)
    return fill


# ---- reshape_and_cache: new keys and values to their places in the pages, as 8-bit floats
RESHAPE = """tile 1
kernel reshape_and_cache<T: f16 | bf16>(K: T[N, G, D], V: T[N, G, D], slot: i64[N], ks: f32[1], vs: f32[1],
                                        KC: inout f8e4m3[PAGES, PS, G, D], VC: inout f8e4m3[PAGES, PS, G, D])
key bucket(N), G, D
tune threads = 64 | 128 | 256
grid n < N
{
  fragment k: f32[G, D], v: f32[G, D]
  let s = slot[n]
  if s >= 0 {
    let ik = 1 / ks[0], iv = 1 / vs[0]
    k = K[n, :, :]
    v = V[n, :, :]
    parallel g < G, d < D {
      k[g, d] *= ik
      v[g, d] *= iv
    }
    KC[s / PS, s % PS, :, :] = k
    VC[s / PS, s % PS, :, :] = v
  }
}
"""


def reshape_and_cache(t, d):
    live = t.slot >= 0
    at = t.slot[live]
    out = []
    for x, c, s in ((t.K, t.KC, t.ks), (t.V, t.VC, t.vs)):
        y = c.to(F8).view(torch.uint8).flatten(0, 1).clone()
        y[at] = (wide(x[live]) / s).clamp(-448, 448).to(F8).view(torch.uint8)
        out.append(y.view(F8).view(c.shape))
    return tuple(out)


def reshape_peer(t, d):
    for x, c, s in ((t.K, t.KC, t.ks), (t.V, t.VC, t.vs)):
        c.view(torch.uint8).flatten(0, 1).index_copy_(0, t.slot.clamp(min=0), (wide(x) / s).to(F8).view(torch.uint8))


def float8(s, t, d):
    return torch.randn(s, device=DEV).to(F8)


# ---- rotary embedding by position of queries and keys, keys and values to the cache
ROPE_CACHE = """tile 1
kernel rope_cache<T: f16 | bf16>(QKV: T[N, C, D], position: i64[N], slot: i64[N], table: T[L, D], Q: out T[N, H, D],
                                 KC: inout T[SLOTS, G, D], VC: inout T[SLOTS, G, D])
where C == H + 2 * G && D % 2 == 0
key bucket(N), H, G, D
tune threads = 64 | 128 | 256
grid n < N
{
  fragment q: f32[H, D], k: f32[G, D], v: T[G, D]
  let p = position[n]
  q = QKV[n, 0 +: H, :]
  k = QKV[n, H +: G, :]
  v = QKV[n, H + G +: G, :]
  parallel h < H, d < D / 2 {
    let c = table[p, d], s = table[p, D / 2 + d], x = q[h, d], y = q[h, d + D / 2]
    q[h, d] = x * c - y * s
    q[h, d + D / 2] = y * c + x * s
  }
  parallel h < G, d < D / 2 {
    let c = table[p, d], s = table[p, D / 2 + d], x = k[h, d], y = k[h, d + D / 2]
    k[h, d] = x * c - y * s
    k[h, d + D / 2] = y * c + x * s
  }
  Q[n, :, :] = q
  KC[slot[n], :, :] = k
  VC[slot[n], :, :] = v
}
"""


def rope_cache(t, d):
    q, k, v = t.QKV.split([d["H"], d["G"], d["G"]], 1)
    c, s = t.table[t.position][:, None].chunk(2, -1)

    def turn(z):
        x, y = wide(z).chunk(2, -1)
        return torch.cat((x * c - y * s, y * c + x * s), -1).to(z.dtype)
    return turn(q), t.KC.index_copy(0, t.slot, turn(k)), t.VC.index_copy(0, t.slot, v)


def rope_cache_in_place(t, d):
    q, k, v = t.QKV.split([d["H"], d["G"], d["G"]], 1)
    c, s = t.table[t.position][:, None].chunk(2, -1)

    def turn(z):
        x, y = wide(z).chunk(2, -1)
        return torch.cat((x * c - y * s, y * c + x * s), -1).to(z.dtype)
    t.KC.index_copy_(0, t.slot, turn(k))
    t.VC.index_copy_(0, t.slot, v)
    return turn(q)


def rotation(s, t, d):
    a = torch.arange(s[0], device=DEV)[:, None] * 10000.0 ** (-torch.arange(s[1] // 2, device=DEV) / (s[1] // 2))
    return torch.cat((a.cos(), a.sin()), -1).to(BF)


# ---- causal convolution of four taps, one new element for each sequence; silu
CONV_UPDATE = """tile 1
kernel conv1d_update<T: f16 | bf16>(X: T[B, D], state: inout T[SLOTS, D, 3], at: i32[B], W: T[D, 4], bias: T[D], Y: out T[B, D])
key bucket(B), bucket(D)
tune BD = 256 | 512 | 1024
grid b < B, x < ceildiv(D, BD)
{
  fragment s: T[BD, 3], w: T[BD, 4], v: T[BD], y: f32[BD]
  let slot = at[b]
  s = state[slot, x*BD +: BD, :]
  w = W[x*BD +: BD, :]
  v = X[b, x*BD +: BD]
  parallel d < BD {
    let z = bias[x*BD + d] + s[d, 0] * w[d, 0] + s[d, 1] * w[d, 1] + s[d, 2] * w[d, 2] + v[d] * w[d, 3]
    y[d] = z * rcp(1 + exp(-z))
    s[d, 0] = s[d, 1]
    s[d, 1] = s[d, 2]
    s[d, 2] = v[d]
  }
  state[slot, x*BD +: BD, :] = s
  Y[b, x*BD +: BD] = y
}
"""


def conv_update(t, d):
    at = t.at.long()
    x = torch.cat((t.state[at], t.X[..., None]), -1)
    y = F.silu((wide(x) * t.W).sum(-1) + t.bias).to(t.X.dtype)
    return t.state.index_copy(0, at, x[..., 1:]), y


# ---- the same over whole prompts that lie behind each other; nothing before each one's first
CONV_PREFILL = """tile 1
kernel conv1d_prefill<T: f16 | bf16>(X: T[N, D], start: i32[C], W: T[D, 4], bias: T[D], Y: out T[N, D], longest: i32)
key bucket(N), C, bucket(D)
tune BN = 8 | 16 | 32, BD = 64 | 128 | 256
grid b < C - 1, n < ceildiv(longest, BN), x < ceildiv(D, BD)
{
  fragment y: f32[BN, BD]
  let first = start[b], rows = start[b + 1] - first
  if n*BN < rows {
    parallel i < BN, d < BD {
      let t = n*BN + i, c = x*BD + d
      let z = bias[c] + sum[k < 4](t + k >= 3 ? X[first + t + k - 3, c] * W[c, k] : 0.0)
      y[i, d] = z * rcp(1 + exp(-z))
    }
    Y[first + n*BN +: BN, x*BD +: BD] within first +: rows = y
  }
}
"""


def cuts(d):
    n, parts = d["N"], d["C"] - 1
    weights = [7 * i % 5 + 2 for i in range(parts)]
    c = [0]
    for w in weights[:-1]:
        c.append(c[-1] + n * w // sum(weights))
    return c + [n]


def conv_prefill(t, d):
    c, w = cuts(d), t.W[:, None]
    parts = [F.conv1d(F.pad(t.X[a:b].T[None], (3, 0)), w, t.bias, groups=d["D"])[0].T for a, b in zip(c, c[1:])]
    return F.silu(torch.cat(parts))


# ---- state space model, one step: h = exp(dt A) h + dt B x, y = C h + D x, gated (mamba 2's selective_state_update)
SSU = """tile 1
kernel selective_state_update<T: f16 | bf16>(S: inout f32[B, H, P, N], X: T[B, H, P], dt: T[B, H], A: f32[H], bias: f32[H],
                                             Bm: T[B, G, N], Cm: T[B, G, N], D: f32[H], Z: T[B, H, P], Y: out T[B, H, P])
where H % G == 0
key bucket(B), H, P, N
tune BP = 8 | 16 | 32 | 64
grid b < B, h < H, p < ceildiv(P, BP)
{
  fragment s: f32[BP, N], x: f32[BP], z: f32[BP], y: f32[BP], bm: f32[N], cm: f32[N]
  let g = h / (H / G)
  let raw = dt[b, h] + bias[h]
  let step = raw > 20 ? raw : log(1 + exp(raw))
  let decay = exp(step * A[h])
  s = S[b, h, p*BP +: BP, :]
  x = X[b, h, p*BP +: BP]
  z = Z[b, h, p*BP +: BP]
  bm = Bm[b, g, :]
  cm = Cm[b, g, :]
  parallel i < BP, n < N { s[i, n] = s[i, n] * decay + step * bm[n] * x[i] }
  parallel i < BP {
    y[i] = sum[n < N](s[i, n] * cm[n]) + D[h] * x[i]
    y[i] *= z[i] * rcp(1 + exp(-z[i]))
  }
  S[b, h, p*BP +: BP, :] = s
  Y[b, h, p*BP +: BP] = y
}
"""


def ssu(t, d):
    r = d["H"] // d["G"]
    step = F.softplus(wide(t.dt) + t.bias)
    b, c = (wide(x).repeat_interleave(r, 1) for x in (t.Bm, t.Cm))
    x = wide(t.X)
    s = t.S * (step * t.A).exp()[..., None, None] + (step[..., None] * x)[..., None] * b[:, :, None]
    y = (s * c[:, :, None]).sum(-1) + t.D[:, None] * x
    return s, (y * F.silu(wide(t.Z))).to(t.X.dtype)


def ssu_in_place(t, d):
    s, y = ssu(t, d)
    t.S.copy_(s)
    return y


# ---- norm of y silu(z) by groups, behind such a layer
GATED_NORM = """tile 1
kernel gated_rmsnorm<T: f16 | bf16>(X: T[N, G, D], Z: T[N, G, D], W: T[G, D], Y: out T[N, G, D], eps: f32)
key bucket(N), G, D
tune R = 1 | 2 | 4
grid n < ceildiv(N, R), g < G
{
  fragment x: f32[R, D], z: f32[R, D]
  x = X[n*R +: R, g, :]
  z = Z[n*R +: R, g, :]
  parallel i < R, d < D { x[i, d] *= z[i, d] * rcp(1 + exp(-z[i, d])) }
  parallel i < R, d < D { x[i, d] = x[i, d] * rsqrt(sum[k < D](x[i, k] * x[i, k]) / D + eps) * W[g, d] }
  Y[n*R +: R, g, :] = x
}
"""


def gated_norm(t, d):
    x = wide(t.X) * F.silu(wide(t.Z))
    return (x * (x.square().mean(-1, keepdim=True) + t.eps).rsqrt() * t.W).to(t.X.dtype)


# ---- embeddings of words, places and kinds, summed up, and layernorm (BERT)
EMBED = """tile 1
kernel embed_layernorm<T: f16 | bf16>(word: T[V, D], place: T[L, D], kind: T[2, D], id: i64[N], position: i64[N], type_: i64[N],
                                      W: T[D], B: T[D], Y: out T[N, D], eps: f32)
key bucket(N), D
tune R = 1 | 2 | 4 | 8
grid b < ceildiv(N, R)
{
  fragment x: f32[R, D], p: f32[R, D], k: f32[R, D]
  x = word[id[b*R +: R], :]
  p = place[position[b*R +: R], :]
  k = kind[type_[b*R +: R], :]
  parallel i < R, d < D { x[i, d] += p[i, d] + k[i, d] }
  parallel i < R, d < D { x[i, d] -= sum[j < D](x[i, j]) / D }
  parallel i < R, d < D { x[i, d] = x[i, d] * rsqrt(sum[j < D](x[i, j] * x[i, j]) / D + eps) * W[d] + B[d] }
  Y[b*R +: R, :] = x
}
"""


def embed_layernorm(t, d):
    x = wide(t.word[t.id]) + wide(t.place[t.position]) + wide(t.kind[t.type_])
    return F.layer_norm(x, (d["D"],), wide(t.W), wide(t.B), t.eps).to(t.word.dtype)


def below(dim):
    return lambda s, t, d: torch.randint(0, d[dim] if isinstance(dim, str) else dim, s, device=DEV)


# ---- gated delta rule, one step for each sequence: keys and queries are normed, S decays, what it says of k is corrected
DELTA = """tile 1
kernel delta_step<T: f16 | bf16>(S: inout f32[B, H, K, V], q: T[B, G, K], k: T[B, G, K], v: T[B, H, V], gate: f32[B, H], beta: T[B, H],
                                 O: out T[B, H, V], scale: f32)
where H % G == 0
key bucket(B), H, K, V
tune BV = 8 | 16 | 32 | 64
grid b < B, h < H, x < ceildiv(V, BV)
{
  fragment s: f32[K, BV], a: f32[K], c: f32[K], u: f32[BV], o: f32[BV]
  let g = h / (H / G), decay = exp(gate[b, h]), rate = beta[b, h]
  s = S[b, h, :, x*BV +: BV]
  a = q[b, g, :]
  c = k[b, g, :]
  u = v[b, h, x*BV +: BV]
  let na = rsqrt(sum[i < K](a[i] * a[i]) + 1e-6), nc = rsqrt(sum[i < K](c[i] * c[i]) + 1e-6)
  parallel i < K { a[i] *= na * scale; c[i] *= nc }
  parallel i < K, j < BV { s[i, j] *= decay }
  parallel j < BV { u[j] = (u[j] - sum[i < K](s[i, j] * c[i])) * rate }
  parallel i < K, j < BV { s[i, j] += c[i] * u[j] }
  parallel j < BV { o[j] = sum[i < K](s[i, j] * a[i]) }
  S[b, h, :, x*BV +: BV] = s
  O[b, h, x*BV +: BV] = o
}
"""


def delta_step(t, d):
    r = d["H"] // d["G"]
    q, k = (wide(x) * (wide(x).square().sum(-1, keepdim=True) + 1e-6).rsqrt() for x in (t.q, t.k))
    q, k = q.repeat_interleave(r, 1) * t.scale, k.repeat_interleave(r, 1)
    s = t.S * t.gate.exp()[..., None, None]
    u = (wide(t.v) - torch.einsum("bhkv,bhk->bhv", s, k)) * wide(t.beta)[..., None]
    s = s + k[..., None] * u[..., None, :]
    return s, torch.einsum("bhkv,bhk->bhv", s, q).to(t.v.dtype)


def delta_in_place(t, d):
    s, o = delta_step(t, d)
    t.S.copy_(s)
    return o


CASES = [
    Case("reshape_and_cache", RESHAPE,
         {"large": dict(N=32768, G=8, D=128, PAGES=4096, PS=16), "odd": dict(N=5003, G=5, D=80, PAGES=501, PS=16),
          "small": dict(N=37, G=2, D=24, PAGES=7, PS=16)},
         reshape_and_cache, types=B16, tolerance=1e-2, peers={"in_place": reshape_peer}, compiled=False,
         fills={"K": normal(1), "V": normal(1), "slot": slots(lambda d: d["PAGES"] * d["PS"], 0.05), "KC": float8, "VC": float8,
                "ks": lambda s, t, d: torch.full(s, 0.02137, device=DEV), "vs": lambda s, t, d: torch.full(s, 0.03011, device=DEV)}),
    Case("rope_cache", ROPE_CACHE,
         {"large": dict(N=16384, C=48, H=32, G=8, D=128, L=8192, SLOTS=65536), "odd": dict(N=5003, C=22, H=14, G=4, D=80, L=2003, SLOTS=8009),
          "small": dict(N=11, C=8, H=4, G=2, D=24, L=50, SLOTS=40)},
         rope_cache, types=B16, peers={"in_place": torch.compile(rope_cache_in_place, dynamic=False)},
         fills={"QKV": normal(1), "position": below("L"), "slot": slots(lambda d: d["SLOTS"]), "table": rotation, "KC": normal(1), "VC": normal(1)}),
    Case("conv1d_update", CONV_UPDATE,
         {"large": dict(B=1024, D=8192, SLOTS=2048), "odd": dict(B=301, D=5003, SLOTS=401), "small": dict(B=5, D=301, SLOTS=9)},
         conv_update, types=B16, fills={"X": normal(1), "state": normal(1), "at": slots(lambda d: d["SLOTS"], dtype=torch.int32),
                                        "W": normal(0.5), "bias": normal(0.5)}),
    Case("conv1d_prefill", CONV_PREFILL,
         {"large": dict(N=16384, D=8192, C=9), "odd": dict(N=5003, D=3001, C=8), "small": dict(N=101, D=75, C=4)},
         conv_prefill, types=B16,
         fills={"X": normal(1), "start": lambda s, t, d: torch.tensor(cuts(d), device=DEV, dtype=torch.int32), "W": normal(0.5), "bias": normal(0.5),
                "longest": lambda s, t, d: max(b - a for a, b in zip(cuts(d), cuts(d)[1:]))}, tolerance=1e-2),
    Case("selective_state_update", SSU,
         {"large": dict(B=128, H=64, P=64, N=128, G=8), "odd": dict(B=37, H=30, P=48, N=80, G=5), "small": dict(B=2, H=4, P=24, N=20, G=2)},
         ssu, types=B16, peers={"in_place": torch.compile(ssu_in_place, dynamic=False)},
         fills={"S": normal(1, F32), "X": normal(1), "dt": normal(1), "A": lambda s, t, d: -torch.rand(s, device=DEV) - 0.2, "bias": normal(1, F32),
                "Bm": normal(1), "Cm": normal(1), "D": normal(1, F32), "Z": normal(1)}, tolerance=3e-3),
    Case("gated_rmsnorm", GATED_NORM,
         {"large": dict(N=16384, G=8, D=1024), "odd": dict(N=5003, G=5, D=777), "small": dict(N=13, G=2, D=75)},
         gated_norm, types=B16, fills={"X": normal(1), "Z": normal(1), "W": normal(1), "eps": const(1e-5)}),
    Case("embed_layernorm", EMBED,
         {"large": dict(V=30522, L=512, D=1024, N=65536), "odd": dict(V=30011, L=511, D=777, N=20011), "small": dict(V=97, L=23, D=75, N=31)},
         embed_layernorm, types=B16,
         fills={"word": normal(1), "place": normal(1), "kind": normal(1), "id": below("V"), "position": below("L"), "type_": below(2),
                "W": normal(1), "B": normal(1), "eps": const(1e-12)}),
    Case("delta_step", DELTA,
         {"large": dict(B=128, H=32, G=16, K=128, V=128), "odd": dict(B=37, H=15, G=5, K=96, V=80), "small": dict(B=2, H=4, G=2, K=24, V=20)},
         delta_step, types=B16, peers={"in_place": torch.compile(delta_in_place, dynamic=False)},
         fills={"S": normal(1, F32), "q": normal(1), "k": normal(1), "v": normal(1), "gate": lambda s, t, d: -torch.rand(s, device=DEV),
                "beta": uniform(0.1, 1, BF), "scale": lambda s, t, d: d["K"] ** -0.5}, tolerance=3e-3),
]
