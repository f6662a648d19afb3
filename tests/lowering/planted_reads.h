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

}  // namespace kachel::lowering
