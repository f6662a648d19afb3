// What quotients and remainders determine together: of e / w and e % w, which divisions truncate, e follows; of e / (a
// * b) and e / b % a, e / b does. What is the same for all that is compared may be added, and factors are numbers other
// than 0: (e / w + 1, 2 * (e % w) + v). Of a sum of a digit below w and multiples of w, both follow: 2 * j + e % 2.
#pragma once
#include <functional>
#include <vector>

#include "ir/expr.h"

namespace kachel::ir {

struct DigitRules {
  // What a variable stands for, or null.
  std::function<ExprRef(const Var&)> named;
  // Whether a value is the same for all that is compared.
  std::function<bool(const ExprRef&)> is_fixed;
  // The number that a variable, which is not negative, is below; null: not known, or it may be negative.
  std::function<ExprRef(const Var&)> limit;
};

// Values that are known where `known` are, beside them.
std::vector<ExprRef> recomposed(const std::vector<ExprRef>& known, const DigitRules& rules);

}  // namespace kachel::ir
