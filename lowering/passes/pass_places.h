// Where a tile lies is worked out by who copies ahead, and handed to who computes.
#pragma once
#include "lowering/loop_ir/loop_ir.h"

namespace kachel::lowering {

// Of what the consumers name at the beginning of a tile, the values that take a division and are used behind come from
// shared memory, where the producer has put them; the names are the same. Changes nothing where there is no producer or
// no next tile, where no value takes a division, or where what it needs of shared memory would not fit or would keep a
// block out. The kernel must be synchronised: nothing but barriers of phases orders this.
void pass_places(LoopKernel* kernel, const Target& target);

}  // namespace kachel::lowering
