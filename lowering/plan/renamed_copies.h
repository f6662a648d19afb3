// Tile IR to tile IR: what a pipelined loop copies to a tile that it changes in place gets a tile of its own,
//
//   pipelined k < K, 3 { x = X[k]; parallel i, j { x[i, j] *= s[j] }; c += x @ b }
//   ->                 { raw = X[k]; parallel i, j { x[i, j] = raw[i, j] * s[j] }; c += x @ b }
//
// so that it can be copied ahead, and what the block makes of it lie wherever the product wants it. What is written in
// parts, as rotated halves or pairs are, is a fragment first.
#pragma once
#include "ir/kernel.h"
#include "lowering/lower.h"

namespace kachel::lowering {

// Where shared memory has room for both. REQUIRES: a concrete kernel. The result shares variables and all other buffers
// with `kernel`.
ir::Kernel renamed_copies(const ir::Kernel& kernel, const Target& target);

}  // namespace kachel::lowering
