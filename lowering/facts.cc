// The facts that the passes ask for: narrow index arithmetic (lower_access.cc) and constant unit strides.
#include "lowering/lower.h"

namespace kachel::lowering {

std::vector<Fact> facts_of(const ir::Kernel& kernel) {
  constexpr size_t kMost = 64;
  std::vector<Fact> facts = {{Fact::Kind::kIndex32, -1}};
  for (size_t i = 0; i < kernel.params.size() && facts.size() < kMost; ++i)
    if (kernel.params[i].tensor) facts.push_back({Fact::Kind::kUnitStride, static_cast<int>(i)});
  return facts;
}

}  // namespace kachel::lowering
