// lower() up to the text. For tests that execute or inspect loop IR.
#pragma once
#include "lowering/loop_ir/loop_ir.h"
#include "lowering/machine/work.h"
#include "lowering/plan/placement.h"
#include "lowering/plan/schedule.h"

namespace kachel::lowering {

struct Lowering {
  ir::Kernel kernel;  // what schedule and placements speak of
  Schedule schedule;
  Placements placements;
  LoopKernel loops;
  WorkProfile work;  // empty on the CPU
};

// Arguments and errors as those of lower(). The result borrows nothing but the buffers and variables of `concrete`.
Result<Lowering> lower_to_loops(const ir::Kernel& concrete, const Target& target, uint64_t fact_mask);

}  // namespace kachel::lowering
