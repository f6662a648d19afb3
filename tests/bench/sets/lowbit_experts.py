"""Products of experts in 8 and 4 bits."""
import torch
from sets.shared.lowbit import DEVICE, low_first, nibbles, normal, randint, uniform
from unseen import Case


# --- grouped products: a mixture of experts in fp8 ---------------------------------------------------------------------
# rows are sorted by expert, those of expert e end at ends[e]; `longest` bounds their number
GROUPED_HEAD = """
key  bucket(rows), E, N, K
TUNE
grid e < E, m < ceildiv(longest, BM), n < ceildiv(N, BN)
{
  shared   x: f8e4m3[BM, BK], w: f8e4m3[BN, BK]
  TILES
  let first = e == 0 ? 0 : ends[e - 1]
  let count = ends[e] - first
  if m*BM < count {
"""

GROUPED = """tile 1
kernel grouped(X: f8e4m3[rows, K], A: f32[rows], W: f8e4m3[E, N, K], S: f32[E, N], ends: i32[E], Y: out bf16[rows, N], longest: i32)
""" + GROUPED_HEAD.replace("TUNE", """where BM * BN <= 128 * 256
tune BM = 16 | 64 | 128, BN = 64 | 128 | 256, BK = 128, stages = 3 | 4 | 5""").replace("TILES", "fragment c: f32[BM, BN] = 0") + """
    pipelined k < ceildiv(K, BK), stages {
      x = X[first + m*BM +: BM, k*BK +: BK]
      w = W[e, n*BN +: BN, k*BK +: BK]
      c += x @ w^T
    }
    parallel i < BM, j < BN { c[i, j] *= A[first + m*BM + i] * S[e, n*BN + j] }
    Y[first + m*BM +: BM, n*BN +: BN] within first +: count = c
  }
}
"""

GROUPED_BLOCKS = """tile 1
kernel grouped_blocks(X: f8e4m3[rows, K], A: f32[rows, KG], W: f8e4m3[E, N, K], S: f32[E, NG, KG], ends: i32[E],
                      Y: out bf16[rows, N], longest: i32)
where KG == ceildiv(K, 128), NG == ceildiv(N, 128)""" + GROUPED_HEAD.replace("TUNE", """
tune BM = 16 | 64 | 128, BN = 64 | 128, BK = 128, stages = 3 | 4 | 5, threads = 128 | 256""").replace(
    "TILES", "fragment s: f32[BM, BN], c: f32[BM, BN] = 0") + """
    pipelined k < KG, stages {
      x = X[first + m*BM +: BM, k*BK +: BK]
      w = W[e, n*BN +: BN, k*BK +: BK]
      s = x @ w^T
      let b = S[e, n*BN / 128, k]
      parallel i < BM, j < BN { c[i, j] += s[i, j] * (A[first + m*BM + i, k] * b) }
    }
    Y[first + m*BM +: BM, n*BN +: BN] within first +: count = c
  }
}
"""

# gpt-oss: MXFP4 experts, tokens by number
MOE_MXFP4 = """tile 1
kernel moe_mxfp4(X: bf16[tokens, K], W: u4[E, N, K], S: u8[E, N, KG], C: bf16[16], index: i32[rows], ends: i32[E],
                 Y: out bf16[rows, N], longest: i32)
where K == 32 * KG
key  bucket(rows), E, N, K
where BM * BN <= 128 * 128
tune BM = 16 | 32 | 64 | 128, BN = 64 | 128, BK = 64 | 128, stages = 3 | 4
grid e < E, m < ceildiv(longest, BM), n < ceildiv(N, BN)
{
  shared   x: bf16[BM, BK], q: u4[BN, BK], code: bf16[16]
  fragment w: bf16[BN, BK], c: f32[BM, BN] = 0
  let first = e == 0 ? 0 : ends[e - 1]
  let count = ends[e] - first
  if m*BM < count {
    code = C
    pipelined k < ceildiv(K, BK), stages {
      x = X[index[first + m*BM +: BM] within first +: count pad -1, k*BK +: BK]
      q = W[e, n*BN +: BN, k*BK +: BK]
      parallel i < BN, j < BK { w[i, j] = code[q[i, j]] * exp2(f32(S[e, n*BN + i, (k*BK + j) / 32]) - 127) }
      c += x @ w^T
    }
    Y[first + m*BM +: BM, n*BN +: BN] within first +: count = c
  }
}
"""


def ends(shape, t, d):  # shares that differ much, some of them nothing
    share = torch.rand(shape[0], device=DEVICE).double() ** 2
    share[1::5] = 0
    return (share.cumsum(0) / share.sum() * d["rows"]).round().clamp(max=d["rows"]).to(torch.int32)


def counts(t):
    if not hasattr(t, "counts"):
        t.counts = torch.diff(t.ends.cpu(), prepend=torch.zeros(1, dtype=torch.int32)).tolist()
    return t.counts


def longest(shape, t, d):
    return max(torch.diff(t.ends.cpu(), prepend=torch.zeros(1, dtype=torch.int32)).tolist())


def experts_fp8(t, d):
    """A scaled product for each expert"""
    if not hasattr(t, "rowwise"):
        t.rowwise = (t.A if t.A.dim() == 1 else t.A[:, 0])[:, None].contiguous()
        t.columns = t.S if t.A.dim() == 1 else torch.rand(d["E"], d["N"], device=DEVICE)
        t.out = torch.empty(d["rows"], d["N"], device=DEVICE, dtype=torch.bfloat16)
    at = 0
    for e, n in enumerate(counts(t)):
        if n:
            torch._scaled_mm(t.X[at:at + n], t.W[e].T, scale_a=t.rowwise[at:at + n], scale_b=t.columns[e:e + 1],
                             out_dtype=torch.bfloat16, out=t.out[at:at + n])
        at += n
    return t.out


def grouped_fp8(t, d):
    if not hasattr(t, "columns"):
        t.rows1 = (t.A if t.A.dim() == 1 else t.A[:, 0]).contiguous()
        t.columns = t.S if t.A.dim() == 1 else torch.rand(d["E"], d["N"], device=DEVICE)
    rows1 = t.rows1 if hasattr(t, "rows1") else t.rowwise[:, 0].contiguous()
    return torch._scaled_grouped_mm(t.X, t.W.transpose(1, 2), rows1, t.columns, offs=t.ends, out_dtype=torch.bfloat16)


def grouped16(t, d):
    if not hasattr(t, "w16"):
        t.w16 = torch.randn(d["E"], d["N"], d["K"], device=DEVICE).bfloat16()
    x = t.X[t.index] if hasattr(t, "index") else t.X.bfloat16()
    return torch._grouped_mm(x, t.w16.transpose(1, 2), offs=t.ends, out_dtype=torch.bfloat16)


def experts16(t, d):
    if not hasattr(t, "w16"):
        t.w16 = torch.randn(d["E"], d["N"], d["K"], device=DEVICE).bfloat16()
    x = t.X[t.index]
    at, out = 0, []
    for e, n in enumerate(counts(t)):
        out.append(x[at:at + n] @ t.w16[e].T)
        at += n
    return torch.cat(out)


def grouped_reference(t, d):
    out, at = torch.zeros(d["rows"], d["N"], device=t.ends.device, dtype=torch.double), 0
    for e, n in enumerate(counts(t)):
        if hasattr(t, "index"):
            code = t.C.double()[low_first(t.W[e]).long()]
            out[at:at + n] = t.X.double()[t.index[at:at + n].long()] @ (
                code * torch.exp2(t.S[e].double() - 127).repeat_interleave(32, 1)).T
        elif t.A.dim() == 1:
            out[at:at + n] = (t.X[at:at + n].double() @ t.W[e].double().T) * t.A[at:at + n, None].double() * t.S[e].double()
        else:
            x = t.X[at:at + n].double() * t.A[at:at + n].double().repeat_interleave(128, 1)[:, :d["K"]]
            s = t.S[e].double().repeat_interleave(128, 0)[:d["N"]].repeat_interleave(128, 1)[:, :d["K"]]
            out[at:at + n] = x @ (t.W[e].double() * s).T
        at += n
    return out


E2M1 = [0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6]
fp8 = normal(torch.float8_e4m3fn)
grouped_fills = {"X": fp8, "A": uniform(0.01, 0.1), "W": fp8, "S": uniform(0.01, 0.1), "ends": ends, "longest": longest}
grouped_sizes = {"decode": dict(rows=256, K=4096, E=32, N=4096), "large": dict(rows=16384, K=4096, E=64, N=4096),
                 "odd": dict(rows=3001, K=2000, E=13, N=1808), "small": dict(rows=37, K=160, E=5, N=48)}
grouped_block_sizes = {label: dict(one, KG=-(-one["K"] // 128), NG=-(-one["N"] // 128)) for label, one in grouped_sizes.items()}
moe_sizes = {"decode": dict(tokens=64, K=2880, E=32, N=5760, KG=90, rows=256), "large": dict(tokens=2048, K=2880, E=32, N=5760, KG=90, rows=8192),
             "odd": dict(tokens=701, K=2016, E=13, N=1807, KG=63, rows=2804), "small": dict(tokens=11, K=96, E=5, N=37, KG=3, rows=33)}

CASES = [
    Case("grouped_fp8", GROUPED, grouped_sizes, experts_fp8, fills=grouped_fills, reference=grouped_reference, compiled=False,
         peers={"grouped_mm": grouped_fp8, "bf16": grouped16}, tolerance=1e-2),
    Case("grouped_fp8_blocks", GROUPED_BLOCKS, grouped_block_sizes, experts_fp8, fills=grouped_fills, reference=grouped_reference,
         compiled=False, peers={"grouped_mm": grouped_fp8, "bf16": grouped16}, tolerance=1e-2),
    Case("moe_mxfp4", MOE_MXFP4, moe_sizes, experts16, compiled=False, peers={"grouped16": grouped16}, tolerance=1e-2,
         reference=grouped_reference,
         fills={"W": nibbles, "S": randint(117, 125, torch.uint8), "C": lambda s, t, d: torch.tensor(E2M1, device=DEVICE).bfloat16(),
                "index": lambda s, t, d: torch.randint(0, d["tokens"], s, device=DEVICE, dtype=torch.int32), "ends": ends, "longest": longest}),
]
