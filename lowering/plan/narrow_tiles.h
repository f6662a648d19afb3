// Tile IR to tile IR: a tile of f32 that lies in memory, or one of long rows (long_rows.h), and holds nothing but
// copies of 16-bit floats holds them as they are. A number is the same either way, and half as many bytes are written
// and read; the copy can go past registers.
#pragma once
#include "ir/kernel.h"

namespace kachel::lowering {

// `blocks`: that compute each tile. REQUIRES: from hoist_reductions(). The result shares variables and all other
// buffers with `kernel`.
ir::Kernel narrow_tiles(const ir::Kernel& kernel, int blocks);

}  // namespace kachel::lowering
