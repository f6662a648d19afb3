// Tile IR to tile IR: where regions access a fragment's axis in equal parts, as x[i, d] and x[i, d + half], what runs
// over the whole of that axis does so in parts, too,
//
//   sum[k < 128](f(x[i, k]))                         ->   sum[k < 64](f(x[i, k]) + f(x[i, k + 64]))
//   parallel i < M, d < 128 { x[i, d] = g(x[i, d]) } ->   parallel i < M, d < 64 { x[i, d] = g(x[i, d]) }
//                                                         parallel i < M, d < 64 { x[i, d + 64] = g(x[i, d + 64]) }
//
// so that the fragment can be split (split_tiles.h): heads that are normalised, then turned by halves.
#pragma once
#include "ir/kernel.h"

namespace kachel::lowering {

// REQUIRES: a concrete kernel. The result shares buffers and variables with `kernel`.
ir::Kernel equal_parts(const ir::Kernel& kernel);

}  // namespace kachel::lowering
