// What quotients and remainders determine together: of e / w and e % w, which divisions truncate, e follows; of e / (a
// * b) and e / b % a, e / b does. What is the same for all that is compared may be added, and factors are numbers other
// than 0: (e / w + 1, 2 * (e % w) + v).
#pragma once
#include <functional>
#include <vector>

#include "ir/expr.h"

namespace kachel::ir {

// Values that are known where `known` are, beside them. `named`: what a variable stands for, or null; `is_fixed`:
// whether a value is the same for all that is compared.
std::vector<ExprRef> recomposed(const std::vector<ExprRef>& known, const std::function<ExprRef(const Var&)>& named,
                                const std::function<bool(const ExprRef&)>& is_fixed);

}  // namespace kachel::ir
