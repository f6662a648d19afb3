// What quotients and remainders determine together: of e / w and e % w, which divisions truncate, e follows; of e / (a *
// b) and e / b % a, e / b does.
#pragma once
#include <functional>
#include <vector>

#include "ir/expr.h"

namespace kachel::ir {

// Values that are known where `known` are, beside them. `named`: what a variable stands for, or null.
std::vector<ExprRef> recomposed(const std::vector<ExprRef>& known, const std::function<ExprRef(const Var&)>& named);

}  // namespace kachel::ir
