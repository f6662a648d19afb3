// Tiles that nothing reads, or only what computes such tiles, are left out with what sets them: the rows of six that a
// block has no use for, once each row is a tile (split_slices.h).
#pragma once
#include "ir/kernel.h"
#include "lowering/tile_ir/tile_uses.h"

namespace kachel::lowering {

// Of `tiles`. REQUIRES: a concrete kernel. The result shares buffers and variables with `kernel`.
ir::Kernel without_unread_tiles(const ir::Kernel& kernel, BufferSet tiles);

}  // namespace kachel::lowering
