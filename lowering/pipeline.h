// lower() up to the text. For tests that execute or inspect loop IR.
#pragma once
#include <fmt/format.h>

#include <exception>

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

// No layouts, no instructions but plain ones.
inline bool is_plain(const Target& target) {
  return target.kind == Target::Kind::kCpu || target.generic;
}

// A defect of a pass costs a configuration, on whichever thread it is lowered, and not the process.
template <class Fn>
auto contained(const ir::Kernel& kernel, const Fn& fn) -> decltype(fn()) {
  try {
    return fn();
  } catch (const std::exception& defect) {
    return internal(fmt::format("lowering of `{}` failed: {}", kernel.name, defect.what()));
  }
}

// Arguments and errors as those of lower(). The result borrows nothing but the buffers and variables of `concrete`.
Result<Lowering> lower_to_loops(const ir::Kernel& concrete, const Target& target, uint64_t fact_mask);

}  // namespace kachel::lowering
