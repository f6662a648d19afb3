// What tiles that fill a cluster up must not do. They compute the last tile along an axis once more, so that all blocks
// of a cluster pass through the same stages, and touch no tensor.
#pragma once
#include "lowering/loop_ir/loop_ir.h"

namespace kachel::lowering {

// Puts what writes to tensors under LoopKernel::real. Barriers stay where they are. REQUIRES: synchronise(); clusters.
void spare_tiles(LoopKernel* kernel);

}  // namespace kachel::lowering
