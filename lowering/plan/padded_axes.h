// Tile IR to tile IR: a product whose rows or columns are no multiple of the instruction's, as of eight query heads
// that share a key, grows to the next one, with all that is computed along those rows or columns,
//
//   shared q: T[8, D]   fragment s: f32[8, BN]   q = Q[8*g +: 8, :]   s = q @ k^T   parallel i < 8, j < BN { s[i, j] =
//   ... }
//     ->   shared q: T[16, D]   fragment s: f32[16, BN]   q = Q[8*g +: 16, :]   s = q @ k^T   parallel i < 16, j < BN
//     ...
//
// The further elements hold what the tensor has there, or zeros; none of them reaches another element, since reductions
// along such an axis leave them out and stores are bounded. Where k of a product grows, as of operands that are
// computed for a head of 72, they are made zeros in both operands.
#pragma once
#include "ir/kernel.h"
#include "lowering/lower.h"
#include "lowering/tile_ir/tile_uses.h"

namespace kachel::lowering {

// `wide`: sums grow so far that twice as many warp groups share them. Of what is copied from tiles in `results`, whole
// ones to whole ones, as much is as the other tile holds. REQUIRES: a concrete kernel. The result shares variables and
// all other buffers with `kernel`.
ir::Kernel padded_axes(const ir::Kernel& kernel, const Target& target, const BufferSet& results, bool wide);

}  // namespace kachel::lowering
