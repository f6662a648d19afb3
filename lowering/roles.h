// Splits a kernel into what computes and what copies ahead.
#pragma once
#include "lowering/loop_ir.h"

namespace kachel::lowering {

// Makes LoopKernel::producer: of every bulk pipeline the part that fills it, with the control flow around it and the
// values that it needs. False if that cannot be told apart: something of it is known to the consumers only.
bool split_producer(LoopKernel* kernel);

}  // namespace kachel::lowering
