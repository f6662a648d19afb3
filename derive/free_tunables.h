// Tunables that decide how work is cut and nothing else, so that values which nobody listed compute the same.
#pragma once
#include <set>

#include "ir/kernel.h"

namespace kachel::derive {

// Depths of pipelines, and extents along which everything is done for each element alone: where v counts the blocks
// along an axis, `ceildiv(X, E)` of them, the extent E of a tile is free if
//
// - v and E occur as ranges `v*E +: E` of tensors, as coordinates `v*E + i` of an index i of that extent, and E as the
//   whole extent of an axis of tiles and regions, once in each;
// - such indices are used for nothing but those coordinates and axes of that extent, and elements are set for each;
// - no product and no reduction adds up along such an axis;
// - no element of a tile with such an axis is named by its place, and no part of it;
// - outputs end at X along it, or at P for (v*E + i) / Q where X is P * Q, and of tensors that are written a block
//   reads what it writes.
//
// Rows of such an axis that no output has are then made in vain, whatever they hold. REQUIRES: verify() has passed the
// kernel.
std::set<const ir::Var*> free_tunables(const ir::Kernel& kernel);

}  // namespace kachel::derive
