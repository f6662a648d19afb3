// Tile IR to tile IR: a tensor whose last axis but one has stride 1 (Fact::kTransposed) is read along that axis. The
// kernel comes to read the tensor with its two last axes exchanged, and so become the tiles that are filled from it;
// products read those transposed, regions with exchanged indices. The copy engine and 16-byte copies then apply to it
// as to any other.
//
// A tensor stays as it is where something else becomes of it or of a tile that it fills: a copy to a fragment, to a
// part of a tile or from tile to tile, `within`, rows named by an index.
#pragma once
#include <cstdint>

#include "ir/kernel.h"

namespace kachel::lowering {

// REQUIRES: a concrete kernel. `fact_mask`: facts that hold; of tensors that were exchanged, what the result may take
// for granted of them is added. The result shares variables and all other buffers with `kernel`.
ir::Kernel transposed_views(const ir::Kernel& kernel, uint64_t* fact_mask);

}  // namespace kachel::lowering
