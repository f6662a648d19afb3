#include "cache/eviction.h"

#include <algorithm>

namespace kachel::cache {

std::vector<Use> oldest(std::vector<Use> uses, size_t count, uint64_t enough_bytes) {
  auto before = [](const Use& a, const Use& b) {
    return a.used_us != b.used_us ? a.used_us < b.used_us : a.slot < b.slot;
  };
  count = std::min(count, uses.size());
  std::partial_sort(uses.begin(), uses.begin() + count, uses.end(), before);
  uint64_t freed = 0;
  size_t chosen = 0;
  while (chosen < count && (chosen == 0 || freed < enough_bytes)) freed += uses[chosen++].bytes;
  uses.resize(chosen);
  return uses;
}

}  // namespace kachel::cache
