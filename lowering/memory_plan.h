// Where each block-level buffer lies in memory. Buffers are laid one after another; when they exceed the target's
// shared memory, the largest move to the workspace (global scratch, one slice a launched block) until the rest fits.
#pragma once
#include "lowering/loop_ir.h"

namespace kachel::lowering {

void plan_memory(LoopKernel* kernel, const Target& target);

}  // namespace kachel::lowering
