// Where each block-level buffer lies in memory. On a GPU buffers that are never needed at the same time share an
// address (live_ranges.h); synchronise() sees to it that the one is done with before the other begins. When the rest
// still exceeds the target's shared memory, the largest move to the workspace (global scratch, one slice a launched
// block) until it fits. What an instruction addresses as shared memory cannot move.
#pragma once
#include "lowering/loop_ir/loop_ir.h"

namespace kachel::lowering {

// False if it does not fit, with nothing planned.
bool plan_memory(LoopKernel* kernel, const Target& target);

// Whether two buffers have bytes in common. REQUIRES: the memory is planned.
bool share_memory(const LoopBuffer& a, const LoopBuffer& b);

}  // namespace kachel::lowering
