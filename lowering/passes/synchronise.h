// The one pass that emits barriers. Input: a loop kernel in which every statement is right if all threads finish one
// before any begins the next. Output: the same with barriers wherever a statement reads or writes what another thread
// may have written, or writes what another may still have to read, since the last barrier.
#pragma once
#include "lowering/loop_ir/loop_ir.h"

namespace kachel::lowering {

// False if a bulk pipeline cannot be filled by a producer of its own (roles.h); then the kernel is of no more use.
bool synchronise(LoopKernel* kernel);

}  // namespace kachel::lowering
