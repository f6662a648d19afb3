// Operands of products along a k that grows: what lies behind the last element has to be zero.
#pragma once
#include "ir/kernel.h"

namespace kachel::lowering {

// Whether a slice has all that the tensor has along an axis of so many elements, so that zeros are read beyond them.
bool ends_with_tensor(const ir::TileRef& slice, size_t axis, int64_t extent);

// Whether elements of the tile behind the last one of its axis are zeros after the statement, or can be made so there,
// if it writes the tile: copies of what ends with its tensor have zeros, regions and copies of tiles can be told to
// make them. Of statements inside of it nothing is said.
bool may_be_cleared(const ir::Stmt& stmt, const ir::Buffer& tile, size_t axis);

}  // namespace kachel::lowering
