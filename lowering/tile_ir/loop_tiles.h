// Tile IR to tile IR: a shared tile that several loops fill anew in every iteration becomes one tile for each loop, so
// that each can load its own ahead.
#pragma once
#include "ir/kernel.h"

namespace kachel::lowering {

// REQUIRES: a concrete kernel. The result shares variables and all other buffers with `kernel`.
ir::Kernel loop_tiles(const ir::Kernel& kernel);

}  // namespace kachel::lowering
