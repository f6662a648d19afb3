// The values that are tried for each tunable.
#pragma once
#include <vector>

#include "ir/tunable_role.h"
#include "lowering/space/outline.h"

namespace kachel::lowering {

// More points are never looked at, nor more nodes of expressions at all of them: longer axes are thinned out.
inline constexpr size_t kMostPoints = size_t{1} << 16, kMostWork = size_t{1} << 22;

// One axis a tunable, in declared order.
std::vector<std::vector<int64_t>> axes_of(const Outline& outline);

}  // namespace kachel::lowering
