// Where each block-level buffer lies in memory. Buffers are laid one after another; when they exceed the target's
// shared memory, the largest move to the workspace (global scratch, one slice a launched block) until the rest fits.
// What an instruction addresses as shared memory cannot move.
#pragma once
#include "lowering/loop_ir.h"

namespace kachel::lowering {

// False if it does not fit, with nothing planned.
bool plan_memory(LoopKernel* kernel, const Target& target);

}  // namespace kachel::lowering
