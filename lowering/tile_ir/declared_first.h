// Tile IR to tile IR: tiles that are declared behind other statements are declared in front of all, and filled with their
// initial values where they were, so that passes may put statements into loops.
#pragma once
#include "ir/kernel.h"

namespace kachel::lowering {

// REQUIRES: a concrete kernel. The result shares buffers and variables with `kernel`.
ir::Kernel declared_first(const ir::Kernel& kernel);

}  // namespace kachel::lowering
