// What `explain` says of a lowering: roles, pipelines, where tiles live, which instructions multiply.
#pragma once
#include <string>

#include "lowering/loop_ir/loop_ir.h"
#include "lowering/plan/placement.h"
#include "lowering/plan/schedule.h"

namespace kachel::lowering {

// A line for each choice. The reason stands behind it where something better was missing.
std::string notes_of(const Schedule& schedule, const Placements& placements, const ir::Kernel& kernel,
                     const LoopKernel& loops);

}  // namespace kachel::lowering
