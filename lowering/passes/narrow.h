// Index arithmetic in 32 bits: an I64 value whose range fits I32, made of parts that do, is computed in I32. GPUs have
// no 64-bit integer units, so that each such operation would cost two to four. Relies on the ranges of the kernel,
// which the fact kIndex32 narrows.
#pragma once
#include "lowering/loop_ir/loop_ir.h"

namespace kachel::lowering {

void narrow(LoopKernel* kernel);

}  // namespace kachel::lowering
