// Tile IR to tile IR: loops over the steps of a network, whose variables say which elements of a tile meet,
//
//   for s < 10 { let h = 1 << s  parallel d < N { x[d] = f(x[d], x[d ^ h]) } }
//
// are written out, with the names that they make numbers of, and branches that this settles. See exchanges.h.
#pragma once
#include "ir/kernel.h"

namespace kachel::lowering {

// REQUIRES: a concrete kernel. The result shares buffers with `kernel`.
ir::Kernel write_out_exchanges(const ir::Kernel& kernel);

}  // namespace kachel::lowering
