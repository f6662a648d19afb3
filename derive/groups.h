// Indices of regions in groups of neighbours: which group (`i / 8`, `i >> 3`), and which of its elements (`i % 8`,
// `i & 7`, `i / 4 % 2`). Private to derive/.
#pragma once
#include <optional>

#include "ir/expr.h"

namespace kachel::derive {

struct Grouped {
  ir::VarRef var;  // the index
  int64_t by;      // elements of a group; at most 2^30, which no tile has more of
};

// The number of an index's group.
std::optional<Grouped> group_number(const ir::ExprRef& expr);
// An element of several that an index's group has: `i / 4 * 2 + 1`, or the only one, `i / 8`.
struct GroupElement {
  Grouped group;
  int64_t elements;  // a divisor of group.by
};
std::optional<GroupElement> group_element(const ir::ExprRef& expr);
// What the places in groups of so many elements decide alone.
std::optional<Grouped> within_groups(const ir::ExprRef& expr);

}  // namespace kachel::derive
