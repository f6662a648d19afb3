// Tile IR to tile IR: a shared tile whose rows a pipelined loop takes from places that it works out, as those of a
// convolution are, or finds in a tensor, as a table says where the pages of a cache lie,
//
//   parallel i < BM, j < BK { let m = b*BM + i; a[i, j] = X[m / (H*W), m / W % H + r, m % W + s, c*BK + j] }
//     ->   a = X[i < BM: (b*BM + i) / (H*W), (b*BM + i) / W % H + r, (b*BM + i) % W + s, c*BK +: BK]
//
// is a copy, which runs ahead of its iteration. Rows that a condition leaves out are at place -1, outside of the tensor.
#pragma once
#include <cstdint>

#include "ir/kernel.h"

namespace kachel::lowering {

// REQUIRES: a concrete kernel for a GPU. The result shares variables and all buffers with `kernel`.
ir::Kernel placed_rows(const ir::Kernel& kernel, uint64_t fact_mask);

}  // namespace kachel::lowering
