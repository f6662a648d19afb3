// No output may share memory with anything else, nor one of its elements with another.
#pragma once
#include "runtime/engine/bind/argument_binder.h"

namespace kachel::runtime {

// kInvalid with both parameters' names. Views that interleave without sharing an element, such as two column ranges of
// one matrix, pass where that is seen from their strides; what cannot be told apart is refused.
Status check_overlap(const KernelModel& model, const BoundArguments& arguments);

}  // namespace kachel::runtime
