// Sums that regions make, an element at a time: `s[j] += e` or `s[j] = s[j] + e`, where e reads no such sum, and
// extremes, `m[j] = max(m[j], e)`, which stand among sums here. Private to derive/.
#pragma once
#include <optional>
#include <set>
#include <vector>

#include "ir/kernel.h"

namespace kachel::derive {

// Adds the fragments that some region of the block adds to, of types whose sums are rounded no more in parts, or takes
// extremes in.
void note_region_sums(const ir::Block& block, std::vector<ir::BufferRef>* sums);
// Whether the region does nothing else with the sums.
bool adds_only(const ir::ParallelStmt& region, const std::set<const ir::Buffer*>& sums);
// kAdd, kMax or kMin, if all that the block does with elements of the sum is that.
std::optional<ir::Op> operation_of(const ir::Block& block, const ir::Buffer& sum);

}  // namespace kachel::derive
