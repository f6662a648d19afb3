// Sums that regions make, an element at a time: `s[j] += e` or `s[j] = s[j] + e`, where e reads no such sum. Private to
// derive/.
#pragma once
#include <set>
#include <vector>

#include "ir/kernel.h"

namespace kachel::derive {

// Adds the fragments that some region of the block adds to, of types whose sums are rounded no more in parts.
void note_region_sums(const ir::Block& block, std::vector<ir::BufferRef>* sums);
// Whether the region does nothing else with the sums.
bool adds_only(const ir::ParallelStmt& region, const std::set<const ir::Buffer*>& sums);

}  // namespace kachel::derive
