// Consumers that take a block's tiles in turn ("ping-pong"): while one team stores what it has computed, or works on
// it, the other one multiplies. Each holds the accumulators of a whole tile, and they share the stages of the
// pipelines, which the producer fills tile after tile.
#pragma once
#include "lowering/loop_ir/loop_ir.h"
#include "lowering/plan/placement.h"
#include "lowering/plan/schedule.h"

namespace kachel::lowering {

// Teams that the consumers are parted into, each a warp group; 1 where they are better off together or cannot be
// parted. A multiprocessor that holds several blocks has them take turns already. REQUIRES: choose_bulk_copies() has
// run.
int choose_teams(const ir::Kernel& kernel, const Schedule& schedule, const Placements& placements,
                 const Target& target);

// Whether the teams of a synchronised kernel neither meet at barriers nor share memory but for what the producer writes.
bool keeps_to_teams(const LoopKernel& kernel);

}  // namespace kachel::lowering
