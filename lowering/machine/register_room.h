// LoopKernel::blocks: how many blocks the compiler is told to leave registers for.
#pragma once
#include "lowering/loop_ir/loop_ir.h"

namespace kachel::lowering {

// Where a producer's loads come ahead, as many as shared memory has room for, and registers for what is live at once and
// for what a thread needs beside that: left to itself the compiler takes all that a thread can have, and of warps that
// wait for each other's products one block has few (16 rows, 160 threads: 235 registers and one block, 168 and two).
// 1 where threads hand registers on or teams take turns; 0 without a producer.
int blocks_with_registers(const LoopKernel& kernel, int architecture);

}  // namespace kachel::lowering
