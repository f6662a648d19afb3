// Extents of concrete kernels. For the interpreter and for lowering.
#pragma once
#include <vector>

#include "ir/kernel.h"

namespace kachel::ir {

// The value of an extent. REQUIRES: an integer constant, as every tile extent is after instantiate().
int64_t constant_extent(const ExprRef& extent);

// Axes of a slice that make up its tile shape: all that are not kIndex.
bool is_tile_axis(const AxisSpec& axis);

// The tile shape of a slice. REQUIRES: from a concrete kernel.
std::vector<int64_t> tile_extents(const TileRef& tile);

// The extent of axis `axis` of `tile` as an expression; null for kIndex. Works on generic kernels too.
ExprRef axis_extent(const TileRef& tile, size_t axis);

}  // namespace kachel::ir
