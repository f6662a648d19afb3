// Values that nothing reads, stores of what is there already, and what is empty without them. A compiler would drop
// them too, after it has read them and unrolled the loops around them.
#pragma once
#include "lowering/loop_ir/loop_ir.h"

namespace kachel::lowering {

// REQUIRES: synchronise().
void drop_unused(LoopKernel* kernel);

}  // namespace kachel::lowering
