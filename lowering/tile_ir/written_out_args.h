// Tile IR to tile IR: where the largest of a few elements of tensors stands, as in a window of a max pooling, is found
// by the iteration itself,
//
//   parallel i < M { let k = argmax[r < 3](X[i + r]) ... }
//
//   parallel i < M { let e0 = X[i + 0], e1 = X[i + 1], e2 = X[i + 2]
//                    let most = max(max(e0, e1), e2)
//                    let k = e0 == most ? 0 : e1 == most ? 1 : e2 == most ? 2 : 0 ... }
//
// and not by threads among which the window is dealt out. Of NaN alone it is the first, as in arg_reductions.h.
#pragma once
#include "ir/kernel.h"

namespace kachel::lowering {

// REQUIRES: a concrete kernel. Those that stay are arg_reductions.h's.
ir::Kernel written_out_args(const ir::Kernel& kernel);

}  // namespace kachel::lowering
