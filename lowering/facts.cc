// The facts that the passes ask for: narrow index arithmetic (lower_access.cc), coordinates of boxes (box_rules.cc),
// constant unit strides, and how wide an access may be (lower_copy.cc); views of tensors whose rows are columns
// (transposed_views.cc); groups whose size a scalar gives (lower_groups.cc); axes that lie as one (one_axis_views.cc).
#include "lowering/lower.h"

namespace kachel::lowering {

std::vector<Fact> facts_of(const ir::Kernel& kernel) {
  constexpr size_t kMost = 63;  // and one behind them
  std::vector<Fact> facts = {{Fact::Kind::kIndex32, -1}};
  for (size_t i = 0; i < kernel.params.size() && facts.size() + 5 <= kMost; ++i) {
    if (!kernel.params[i].tensor) continue;
    facts.push_back({Fact::Kind::kUnitStride, static_cast<int>(i)});
    for (int bytes : {16, 8, 4}) facts.push_back({Fact::Kind::kVector, static_cast<int>(i), bytes});
    const ir::Buffer& tensor = *kernel.params[i].tensor;
    if (tensor.direction == ir::Direction::kIn && tensor.shape.size() >= 2)
      facts.push_back({Fact::Kind::kTransposed, static_cast<int>(i), 16});
  }
  for (size_t i = 0; i < kernel.params.size() && facts.size() < kMost; ++i)
    if (kernel.params[i].one_axis && facts.size() + 2 <= kMost)
      for (int bytes : {16, 1}) facts.push_back({Fact::Kind::kOneAxis, static_cast<int>(i), bytes});
    else if (kernel.params[i].tensor && kernel.params[i].tensor->shape.size() >= 2)
      facts.push_back({Fact::Kind::kRows, static_cast<int>(i), 16});
  for (size_t i = 0; i < kernel.params.size(); ++i)
    for (int of = kMostMultiple; kernel.params[i].divides && of >= kLeastMultiple && facts.size() < kMost; of /= 2)
      facts.push_back({Fact::Kind::kMultiple, static_cast<int>(i), of});
  facts.push_back({Fact::Kind::kExtent32, -1});
  return facts;
}

}  // namespace kachel::lowering
