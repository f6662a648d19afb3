// Tile IR to tile IR: a region over groups of a row's columns becomes a region for each group,
//
//   parallel g < 2, i < M { most[g, i] = max[j < 128](S[i, g * 128 + j]) }
//     ->   parallel i < M { most[0, i] = max[j < 128](S[i, j]) }   parallel i < M { most[1, i] = max[j < 128](S[i, 128 + j]) }
//
// so that parts of a fragment's rows are read where they are held (split_tiles.h, FragmentLayout::part).
#pragma once
#include "ir/kernel.h"

namespace kachel::lowering {

// REQUIRES: a concrete kernel. The result shares buffers and variables with `kernel`.
ir::Kernel part_regions(const ir::Kernel& kernel);

}  // namespace kachel::lowering
