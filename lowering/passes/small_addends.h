// Addends that a quotient, a remainder or a mask of bits does not see.
#pragma once
#include <unordered_map>

#include "lowering/loop_ir/range.h"

namespace kachel::lowering {

using NamedSums = std::unordered_map<const ir::Var*, ir::ExprRef>;  // sums by their names

// Where a is a multiple of m and 0 <= b < m:
//   (a + b) / c is a / c where c is one, too, and a >= 0, since division truncates; (a + b) % m is b then;
//   (a + b) & c is b & c where m is a power of two above c, whatever b is, and a & c where c is a multiple of it; and 0
//   where c is.
// Else the node itself.
ir::ExprRef without_small_addend(const ir::ExprRef& node, const Ranges& ranges, const NamedSums& sums);

}  // namespace kachel::lowering
