// Tile IR to tile IR: products grow to the instruction's extents. Tiles along k reach past the ends of their tensors
// first (padded_depth.h), then all axes grow (shared_results.h). An operand that a region reads as well along that axis,
//
//   s = c @ b^T   parallel i < BM, n < 72 { d[i, n] = c[i, n] * f[i] }   y += d @ state
//
// would have another extent than the region then, whose products stay what they are: where such a product is left, axes
// grow first.
#pragma once
#include "ir/kernel.h"
#include "lowering/lower.h"

namespace kachel::lowering {

// `wide`: of padded_axes(). REQUIRES: a concrete kernel.
ir::Kernel grown_products(const ir::Kernel& kernel, const Target& target, bool wide);

}  // namespace kachel::lowering
