// How tiles lie in shared memory: in slabs where wgmma reads them or the copy engine may fill them, else so that wide
// accesses meet no bank twice.
#pragma once
#include "lowering/plan/placement.h"

namespace kachel::lowering {

// Sets the layouts of what is in shared memory. REQUIRES: scopes, storage and gemms of `placements` are settled.
void lay_out_memory(const ir::Kernel& kernel, const Target& target, const Schedule& schedule, Placements* placements);

}  // namespace kachel::lowering
