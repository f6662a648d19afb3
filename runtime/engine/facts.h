// Which of the facts that a program's passes ask for hold for given arguments.
#pragma once
#include "runtime/engine/argument_binder.h"

namespace kachel::runtime {

uint64_t facts_that_hold(const KernelModel& model, const BoundArguments& arguments);

// "index32, unit stride of `A`"; "none".
std::string facts_text(const KernelModel& model, uint64_t mask);

}  // namespace kachel::runtime
