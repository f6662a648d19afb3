// Tile IR to tile IR: tiles of which products use matrices, one for each head of a block say, become those matrices,
//
//   shared x: T[64, 4, D], w: T[4, N, D]   fragment c: f32[4, 64, N]
//   for h < 4 { c[h, :, :] += x[:, h, :] @ w[h, :, :]^T }
//     ->   shared x_0: T[64, D], ..., w_0: T[N, D], ...   fragment c_0: f32[64, N], ...
//          c_0 += x_0 @ w_0^T   c_1 += x_1 @ w_1^T   ...
//
// with all tiles that run along the same axis: copies become one for each matrix, and so do regions over that axis.
// Loops that count such matrices are written out. Rows of fragments that regions name by numbers likewise,
//
//   fragment m: f32[6, D]   y[d] = x[d] * m[4, d] + m[3, d]
//     ->   fragment m_3: f32[D], m_4: f32[D]   y[d] = x[d] * m_4[d] + m_3[d]
//
// and rows that nobody reads are left out. An axis along which anything is reduced stays, and one along which rows of
// tensors lie.
#pragma once
#include "ir/kernel.h"

namespace kachel::lowering {

// REQUIRES: a concrete kernel. The result shares variables and all other buffers with `kernel`.
ir::Kernel split_slices(const ir::Kernel& kernel);

}  // namespace kachel::lowering
