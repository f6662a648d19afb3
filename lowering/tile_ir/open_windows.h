// Tile IR to tile IR: reductions over the elements of a small window become what they stand for,
//
//   max[a < 2](x[2*i + a, j])   ->   max(x[2*i, j], x[2*i + 1, j])
//
// so that each element is at a fixed distance from the iteration's own: neighbours that read neighbours can be loaded
// together.
#pragma once
#include <functional>

#include "ir/kernel.h"

namespace kachel::lowering {

// In the regions of the block. `of`: whether windows of this buffer are meant.
ir::Block open_windows(const ir::Block& block, const std::function<bool(const ir::Buffer&)>& of);

}  // namespace kachel::lowering
