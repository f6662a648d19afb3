// Tile IR to tile IR: masks that hold for a whole tile are not evaluated element by element. A region in a loop whose
// values are selected by comparisons that are linear in its variables,
//
//   parallel i < M, j < N { S[i, j] = j + c < n ? S[i, j] : -inf }
//
// becomes `if (N - 1) + c < n` the region without the selection, else the region as it was. So the tiles in the middle
// of a causal or ragged problem cost no mask.
#pragma once
#include "ir/kernel.h"

namespace kachel::lowering {

// REQUIRES: from hoist_reductions(). The result shares buffers and variables with `kernel`.
ir::Kernel unswitch_masks(const ir::Kernel& kernel);

}  // namespace kachel::lowering
