// How many arrivals end a phase where each lane arrives by itself (see emit_cuda() on `bounded`).
#pragma once
#include "lowering/loop_ir/loop_ir.h"

namespace kachel::lowering {

int64_t lane_arrivals(const LoopKernel& kernel, const LoopPhases& phases);

}  // namespace kachel::lowering
