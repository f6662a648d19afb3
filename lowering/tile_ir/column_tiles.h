// Tile IR to tile IR: fragments of which regions name columns by numbers, as of points, colours and complex numbers,
//
//   p = P[x +: n, :]   parallel i < n { a[i, 0] += p[i, 3] * p[i, 0]   a[i, 1] += p[i, 3] * p[i, 1] }   A[x +: n, :] = a
//
// become a fragment for each column, so that whoever computes a row has all of it in registers:
//
//   parallel i < n { p0[i] = P[x + i, 0]   p1[i] = P[x + i, 1] ... }   parallel i < n { a0[i] += p3[i] * p0[i] ... }
//
// A region that walks over the columns, `parallel i < n, c < 3 { a[i, c] = s * a[i, c] }`, is written once for each, and
// so is what a reduction over them reads.
#pragma once
#include "ir/kernel.h"

namespace kachel::lowering {

// REQUIRES: a concrete kernel. The result shares variables and all other buffers with `kernel`.
ir::Kernel column_tiles(const ir::Kernel& kernel);

}  // namespace kachel::lowering
