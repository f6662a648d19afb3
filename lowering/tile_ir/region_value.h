// What a region computes, without the names that it gives to parts of it.
#pragma once
#include <cstdint>

#include "ir/kernel.h"

namespace kachel::lowering {

// The value that the region's last statement assigns, with the names in front of it written out. Null where anything but
// names stands there, or where a name or the value has more than `most` nodes.
ir::ExprRef region_value(const ir::ParallelStmt& region, uint64_t most);

}  // namespace kachel::lowering
