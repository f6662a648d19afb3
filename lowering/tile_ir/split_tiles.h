// Tile IR to tile IR: a fragment that regions access in equal parts of an axis, as x[i, d] and x[i, d + half], becomes
// a fragment for each part. One iteration then owns all that it reads and writes, so that the parts stay in registers;
// whole, the fragment would have to lie in memory, since an iteration reads elements of other threads.
//
// A fragment stays as it is where anything but such regions, fills, whole copies from or to tensors and from other
// fragments, of which it then takes parts of the last axis, uses it, or where regions part it along several axes.
#pragma once
#include "ir/kernel.h"

namespace kachel::lowering {

// REQUIRES: a concrete kernel. The result shares variables and all other buffers with `kernel`.
ir::Kernel split_tiles(const ir::Kernel& kernel);

}  // namespace kachel::lowering
