// Programs whose reads of tensors planted bugs change.
#pragma once

namespace kachel::lowering {

// Windows of rows, that tiles hold and that lie around a tensor's edge, and of every second column.
inline constexpr const char* kWindows = R"(tile 1
kernel windows(X: f16[20, 40, 32], R: f16[24, 128], Y: out f32[10, 20, 32], Z: out f32[24, 64])
grid h < 10
{
  fragment t: f32[3, 41, 32], y: f32[20, 32], z: f32[24, 64]
  t = X[2*h - 1 +: 3, -1 +: 41, :] pad -1
  parallel i < 20, j < 32 { y[i, j] = sum[a < 3, b < 2](t[a, 2*i + b, j]) }
  Y[h, :, :] = y
  if h == 0 {
    parallel i < 24, j < 64 { z[i, j] = R[i, 2*j] - 2 * R[i, 2*j + 1] + min[k < 3](R[i, j + k - 1]) }
    Z = z
  }
}
)";

// Places that a loop divides out, by a number of the launch.
inline constexpr const char* kDividedPlaces = R"(tile 1
kernel quotients(X: f32[W, H], Y: out f32[256])
grid b < 1
{
  fragment s: f32[256] = 0
  for t < ceildiv(H * W, 256) {
    parallel i < 256 {
      let e = t*256 + i
      s[i] += X[e % W, e / W] * f32(t + 1)
    }
  }
  Y[:] = s
}
)";

// Pixels that are counted through all images, whose axes lie as one.
inline constexpr const char* kPixels = R"(tile 1
kernel pixels(X: f32[N, C, H, W], Y: out f32[N, C, H, W])
grid p < ceildiv(N * H * W, 32), c < C
{
  parallel i < 32 {
    let m = p*32 + i
    Y[m / (H * W), c, m / W % H, m % W] = X[m / (H * W), c, m / W % H, m % W] * 2
  }
}
)";

// Rows of three elements, the last tile of which is not full.
inline constexpr const char* kJoinedRows = R"(tile 1
kernel joined(X: f16[80, 3], Y: out f32[80])
grid h < 2
{
  shared x: f16[64, 3]
  fragment y: f32[64]
  x = X[h*64 +: 64, :]
  parallel i < 64 { y[i] = x[i, 0] + 2 * x[i, 1] + 3 * x[i, 2] }
  Y[h*64 +: 64] = y
}
)";

// Windows of a tile that holds a 16-bit tensor, and of one that is computed from such a one in place; and elements that
// an index of the program's may not find.
inline constexpr const char* kSliding = R"(tile 1
kernel sliding(X: bf16[40, 64], I: i32[40], Y: out f32[32, 64])
grid h < 1
{
  shared   s: f32[34, 64]
  fragment x: f32[34, 64], t: f32[34, 64], u: f32[34, 64], y: f32[32, 64]
  t = X[3 +: 34, :]
  u = X[0 +: 34, :]
  parallel i < 34, j < 64 { u[i, j] = u[i, j] * 1.001 + 0.3 }
  parallel i < 32, j < 64 { y[i, j] = sum[a < 3](t[i + a, j] * (1 + a)) - max[a < 3](u[i + a, j]) }
  x = X[0 +: 34, :]
  parallel i < 34, j < 64 { s[i, j] = x[i, j] * x[i, j] }
  parallel i < 32, j < 64 { y[i, j] += X[I[i] - 7, j] + s[i + 1, j] }
  Y = y
}
)";

// A loop that reads the row which its next iteration writes.
inline constexpr const char* kNextRow = R"(tile 1
kernel next_row(X: f32[64], Y: out f32[64])
grid b < 1
{
  shared   y: f32[17, 64]
  fragment h: f32[64]
  h = X
  y = 1
  for t < 16 {
    parallel i < 64 { y[t, i] = h[i] }
    parallel i < 64 { h[i] = h[i] * 0.5 + y[t + 1, 63 - i] }
  }
  Y = h
}
)";

// A region between tensors, of which a thread moves several vectors, and elements of rows that no vector suits.
inline constexpr const char* kDirect = R"(tile 1
kernel direct(X: f16[64, 128], S: f32[64, 65], Y: out f16[64, 128], Z: out f32[64, 65])
grid h < 2
{
  parallel i < 32, j < 128 { Y[h*32 + i, j] = X[h*32 + i, j] * 0.5 + 1 }
  parallel i < 32, j < 64 { Z[h*32 + i, j] = S[h*32 + i, j + 1] - 1 }
  parallel i < 32 { Z[h*32 + i, 64] = S[h*32 + i, 0] }
}
)";

// A tile that is read, between its copy and what changes it.
inline constexpr const char* kChanged = R"(tile 1
kernel changed(X: f32[M, K], Y: out f32[M, K], R: out f32[M])
{
  shared   x: f32[8, 64]
  fragment r: f32[8] = 0
  pipelined k < ceildiv(K, 64), 2 {
    x = X[0 +: 8, k*64 +: 64]
    parallel i < 8 { r[i] += sum[j < 64](x[i, j]) }
    parallel i < 8, j < 64 { x[i, j] = x[i, 63 - j] * 2 }
    Y[0 +: 8, k*64 +: 64] = x
  }
  R[0 +: 8] = r
}
)";

}  // namespace kachel::lowering
