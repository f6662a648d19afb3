// What copies of a fragment ask of its layout, see free_layouts.h. All arguments outlive what is returned.
#pragma once
#include <string>

#include "lowering/plan/free_layouts.h"
#include "lowering/plan/placement.h"

namespace kachel::lowering {

// What can be combined with a tensor but element by element has lanes beside each other meet in sectors: 1. `memory`:
// the fragments that live there.
Accessed accessed_by_copies(const ir::Kernel& kernel, const Target& target, uint64_t fact_mask,
                            const std::map<const ir::Buffer*, std::string>& memory);
// By 16 bytes of the widest type that the fragment is stored as.
Stored stored_by_copies(const ir::Kernel& kernel);

}  // namespace kachel::lowering
