// How an index goes along with a variable within groups of neighbours: of `width` values from a multiple of it on, a
// power of two. What places of patches and pixels are calculated from, t / (9 C) and t % C, stays the same in such
// groups or rises by one.
#pragma once
#include "lowering/loop_ir/range.h"

namespace kachel::lowering {

// How an index goes along with its variable in a group. With a `step` the same of words, of each of which so many
// neighbours have a part, t / step:
// groups are of `width * step` values then.
enum class InGroup : uint8_t {
  kAlike,  // one value in each group
  kRises,  // a multiple of `width`, then one more for each neighbour, or each `step` of them
  kOther,  // neither, as far as is known
};
// Looks at no loads. REQUIRES: `ranges` knows the variables of the expression.
InGroup in_group(const ir::ExprRef& expr, const ir::VarRef& var, int64_t width, const Ranges& ranges, int64_t step = 1);
// Whether the elements that the indices name are neighbours in each group: the last index rises, others are alike.
bool are_neighbours(const std::vector<ir::ExprRef>& indices, const ir::VarRef& var, int64_t width, const Ranges& ranges,
                    int64_t step = 1);

}  // namespace kachel::lowering
