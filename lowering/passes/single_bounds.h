// x >= 0 && x < n, where n is known not to be negative, as one comparison without signs: u32(x) < u32(n). Every guarded
// access has such a pair for each axis that is not proved.
#pragma once
#include "lowering/loop_ir/loop_ir.h"

namespace kachel::lowering {

void single_bounds(LoopKernel* kernel);

}  // namespace kachel::lowering
