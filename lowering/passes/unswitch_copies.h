// Loop IR to loop IR: what decides how a producer copies, and does not change within its loop over stages, is decided
// before the loop,
//
//   for k { if alike { multicast a } else { copy a } }  ->  if alike { for k { multicast a } } else { for k { copy a }
//   }
//
// since the copy engine takes its operands from registers of the warp: a copy under a condition that the assembler
// does not know to hold for the whole warp costs it a vote and a loop over the threads that want it, whether or not any
// does.
#pragma once
#include "lowering/loop_ir/loop_ir.h"

namespace kachel::lowering {

void unswitch_copies(LoopKernel* kernel);

}  // namespace kachel::lowering
