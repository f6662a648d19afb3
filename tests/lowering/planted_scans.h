// Programs whose prefix and arg reductions, exchanges, and named columns planted bugs change.
#pragma once

namespace kachel::lowering {

// Columns that regions name by numbers.
inline constexpr const char* kNamedColumns = R"(tile 1
kernel named_columns(P: f32[N, 4], Y: out f32[N, 3])
where N <= 90
grid n < ceildiv(N, 32)
{
  fragment p: f32[32, 4], y: f32[32, 3]
  p = P[n * 32 +: 32, :]
  parallel i < 32 {
    y[i, 0] = p[i, 1] * p[i, 2]
    y[i, 1] = p[i, 0] - p[i, 3]
    y[i, 2] = p[i, 3]
  }
  Y[n * 32 +: 32, :] = y
}
)";

// Of rows that one warp holds, that several warps hold, and of columns.
inline constexpr const char* kScans = R"(tile 1
kernel scans(X: i32[6, 1000], C: f32[64, 8], Y: out i32[6, 1000], Z: out i32[6, 64], W: out f32[64, 8])
{
  fragment x: i32[6, 1000], z: i32[6, 64], c: f32[64, 8]
  x = X
  c = C
  parallel i < 6, j < 1000 { x[i, j] = sum[k <= j](x[i, k]) }
  parallel i < 6, j < 64 { z[i, j] = max[k < j](X[i, k] % 50) }
  parallel i < 64, j < 8 { c[i, j] = min[k <= i](c[k, j]) }
  Y = x
  Z = z
  W = c
}
)";

// A sum of sixteen warps; parts of what registers hold, from the first element on and from another one.
inline constexpr const char* kManyWarps = R"(tile 1
kernel many_warps(X: i32[1200], S: out i32[1], Y: out i32[7], Z: out i32[5])
tune threads = 512
{
  fragment x: i32[1200], s: i32[1]
  x = X
  parallel i < 1 { s[i] = sum[j < 1200](x[j]) }
  S = s
  Y = x[0 +: 7]
  Z = x[11 +: 5]
}
)";

// Of rows that one warp holds, that several warps hold, and of columns; and of one of each two elements.
inline constexpr const char* kExchanges = R"(tile 1
kernel exchanges(X: i32[4, 256], C: i32[32, 8], Y: out i32[4, 256], Z: out i32[1, 1024], W: out i32[32, 8])
{
  fragment x: i32[4, 256], z: i32[1, 1024], c: i32[32, 8]
  x = X
  c = C
  parallel i < 1, j < 1024 { z[i, j] = X[j % 4, j / 4] }
  for s < 8 {
    parallel i < 4, j < 256 { x[i, j] = x[i, j] * 3 - x[i, j ^ (1 << s)] }
  }
  for s < 5 {
    let h = 16 >> s
    parallel i < 32, j < 8 { c[i, j] = c[i & ~h, j] * 3 - c[i | h, j] }
  }
  parallel i < 1, j < 1024 { z[i, j] = z[i, 1023 - j] - z[i, (j + 512) % 1024] }
  Y = x
  Z = z
  W = c
}
)";

// Where the largest of several equal elements stands.
inline constexpr const char* kLargest = R"(tile 1
kernel largest(X: i32[6, 300], Y: out i32[6])
{
  fragment y: i32[6]
  parallel i < 6 { y[i] = argmax[j < 300](X[i, j] % 20) }
  Y = y
}
)";

// Numbers that threads combine in a tile, which other threads read.
inline constexpr const char* kCounted = R"(tile 1
kernel counted(X: i32[512], Y: out i32[64])
{
  shared h: i32[64] = 0
  parallel i < 512 { atomic h[X[i] & 63] += 1 }
  parallel i < 512 { atomic h[(X[i] >> 2) & 63] += 3 }
  parallel b < 64 { Y[b] = h[63 - b] }
}
)";

}  // namespace kachel::lowering
