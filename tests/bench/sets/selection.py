"""Selecting, sorting, compacting."""
import torch
from sets.shared.sparse import DEVICE
from unseen import Case


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

CASES = [
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
]
