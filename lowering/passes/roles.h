// Splits a kernel into what computes and what copies ahead, and into what teams do in turn.
#pragma once
#include "lowering/loop_ir/loop_ir.h"

namespace kachel::lowering {

// Makes LoopKernel::producer: of every bulk pipeline the part that fills it, with the control flow around it and the
// values that it needs. With teams also LoopKernel::passed_over: of every bulk pipeline the steps over its stages.
// False if that cannot be told apart: something of it is known to those only that compute.
bool split_roles(LoopKernel* kernel);

// Names that the producer needs and cannot know, beside those in LoopKernel::handed. None where it lacks nothing, or
// what is no name.
std::vector<ir::VarRef> lacking(const LoopKernel& kernel);

}  // namespace kachel::lowering
