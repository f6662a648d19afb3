// Which entries give way.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "cache/table.h"

namespace kachel::cache {

// Entries leave in batches, so that no single transaction stalls everybody else.
inline constexpr size_t kEvictionBatch = 64;

// The entries that were used longest ago, oldest first: as many as free `enough_bytes`, at least one, at most `count`.
// Ties go by slot, so that processes agree.
std::vector<Use> oldest(std::vector<Use> uses, size_t count, uint64_t enough_bytes);

}  // namespace kachel::cache
