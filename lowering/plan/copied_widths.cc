#include "lowering/plan/copied_widths.h"

#include <algorithm>

namespace kachel::lowering {

Accessed accessed_by_copies(const ir::Kernel& kernel, const Target& target, uint64_t fact_mask,
                            const std::map<const ir::Buffer*, std::string>& memory) {
  return [&kernel, &target, fact_mask, &memory](const ir::Buffer* fragment, int64_t most_bytes) -> int64_t {
    int64_t elements = 0;
    for (const auto& [other, atomic, written] : SpaceCollector::copies_of(kernel, fragment)) {
      const ir::DType type = other->type.dtype;
      if (atomic != ir::AtomicOp::kNone && most_stored(atomic, type, target.architecture) == 1) return 1;
      if (other->scope == ir::Scope::kFragment && !memory.count(other.get())) continue;
      const int64_t bytes = other->scope == ir::Scope::kGlobal ? vector_bytes(kernel, fact_mask, other) : kVectorBytes;
      elements = std::max(elements, std::min(bytes, most_bytes) / std::max(1, ir::bits(type) / 8));
    }
    return elements;
  };
}

Stored stored_by_copies(const ir::Kernel& kernel) {
  return [&kernel](const ir::Buffer* fragment) {
    int64_t elements = 0;
    for (const SpaceCollector::Copied& copy : SpaceCollector::copies_of(kernel, fragment)) {
      if (!copy.stored || copy.other->scope != ir::Scope::kGlobal) continue;
      const int64_t one = kVectorBytes / std::max(1, ir::bits(copy.other->type.dtype) / 8);
      elements = elements ? std::min(elements, one) : one;
    }
    return elements;
  };
}

}  // namespace kachel::lowering
