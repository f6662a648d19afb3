// The layout of a fragment that neither an instruction nor another fragment decides.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "lowering/lower.h"
#include "lowering/plan/spaces.h"

namespace kachel::lowering {

// `memory`: fragments that live there. For what runs along an axis, prefixes or exchanges, that axis decides; for a
// state that a loop carries, its sums; for what is gathered or turned, where its elements lie; else how it is copied.
FragmentLayout own_layout(const ir::Kernel& kernel, const Target& target, uint64_t fact_mask,
                          const std::vector<Space>& spaces, const std::map<const ir::Buffer*, std::string>& memory,
                          const ir::BufferRef& fragment, int64_t threads);

}  // namespace kachel::lowering
