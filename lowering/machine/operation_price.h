// What operations cost on a GPU, for the work profile (work.h).
#pragma once
#include "ir/kernel.h"

namespace kachel::lowering {

// Instructions that an operation takes, and how many of them are of the special function units. Functions that are no
// instruction are polynomials of about these lengths (cuda_math.cc).
struct OperationPrice {
  double scalar, special;
};
OperationPrice price_of(const ir::Expr& expr);
// Of all operations of an expression.
double instructions_of(const ir::ExprRef& expr);

}  // namespace kachel::lowering
