// Tile IR to tile IR: what a region behind the products reads beside them,
//
//   pipelined k < K, 4 { ... acc += a @ b }
//   parallel i < BM, j < BN { acc[i, j] += R[x + i, y + j] }
//
// becomes a tile that is loaded ahead, `pipelined fetched < 1, 2 { r = R[x +: BM, y +: BN]; parallel ... r[i, j] }`, so
// that the copy engine fills it while the products are made. And what a region in a pipelined loop reads in every
// iteration,
//
//   pipelined k < K, 4 { x = X[...]; parallel i < BM, d < BK { a[i, d] = x[i, d] * gain[k * BK + d] } ... }
//
// becomes a tile of the stages, `g = gain[k * BK +: BK]`, which nobody waits for; so do matrices where a producer copies.
#pragma once
#include <optional>

#include "ir/kernel.h"
#include "lowering/lower.h"

namespace kachel::lowering {

// Nothing if no region reads in that form. REQUIRES: grid kernel after instantiation, not yet with pipelines around
// others (pipeline_tiles.h). The result shares buffers and variables with `kernel`.
std::optional<ir::Kernel> fetched_tiles(const ir::Kernel& kernel, uint64_t fact_mask);
std::optional<ir::Kernel> staged_tiles(const ir::Kernel& kernel, const Target& target, uint64_t fact_mask);

}  // namespace kachel::lowering
