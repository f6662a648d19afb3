// Tile IR to tile IR: a fragment that is copied from a tensor, and whose columns regions read along their rows, becomes
// a shared tile, of the tensor's type if that is not the wider one,
//
//   fragment s: f32[64, 32]                              shared s: bf16[64, 32]
//   s = x[t*64 +: 64, c*32 +: 32]                  ->    s = x[t*64 +: 64, c*32 +: 32]
//   parallel j < 32, i < 64 { o[j, i] = s[i, j] }        parallel j < 32, i < 64 { o[j, i] = f32(s[i, j]) }
//
// In registers, either what is loaded or what the region makes would not lie in rows, and one of the two would be moved
// an element at a time, at places far from each other.
#pragma once
#include "ir/kernel.h"

namespace kachel::lowering {

// REQUIRES: a concrete kernel. The result shares variables and all other buffers with `kernel`.
ir::Kernel turned_tiles(const ir::Kernel& kernel);

}  // namespace kachel::lowering
