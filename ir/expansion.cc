#include "ir/expansion.h"

#include <algorithm>

namespace kachel::ir {

uint64_t Expansion::size(const ExprRef& value) const {
  uint64_t size = 0;
  visit(value, [&](const ExprRef& node) {
    const auto named = node->kind == ExprKind::kVar ? sizes_.find(node->var.get()) : sizes_.end();
    size = std::min(size + (named == sizes_.end() ? 1 : named->second), kMost);
  });
  return size;
}

}  // namespace kachel::ir
