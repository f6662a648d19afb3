// A kernel whose sums lie where a tunable decides, with one of its values in the tunable's place: kernels that are
// derived from it agree on where sums lie, since both have that value.
#pragma once
#include <optional>

#include "ir/kernel.h"

namespace kachel::derive {

inline constexpr int64_t kMostExtent = 128;

// For extents of tiles that products add to, which are no free tunables (free_tunables.h): of the values listed that no
// condition on them alone excludes the largest up to `most`, else the smallest. Nothing where there is no such extent,
// or where values are derived. The result has variables and buffers of its own. REQUIRES: verify() has passed the
// kernel.
std::optional<ir::Kernel> with_fixed_extents(const ir::Kernel& kernel, int64_t most = kMostExtent);

}  // namespace kachel::derive
