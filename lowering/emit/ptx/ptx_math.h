// Functions of f32 for which PTX has no instruction that keeps the bounds of ir/GRAMMAR.md.
#pragma once
#include "ir/expr.h"
#include "lowering/emit/ptx/ptx_code.h"

namespace kachel::lowering::ptx {

// exp, log, log2, tanh, erf, sin, cos and quotients, written out; nothing: another operation.
std::optional<Value> written_out(Code* code, ir::Op op, const std::vector<Value>& args);

// k (1 + erf(x)), of |x| and a number with the sign of x.
Value raised_error_function(Code* code, const Value& magnitude, const Value& sign, float k);
// k (1 + tanh(x)).
Value raised_tangent(Code* code, const Value& x, float k);
// tanh(log(y)), of which neither has to be made.
Value tangent_of_logarithm(Code* code, const Value& y);

}  // namespace kachel::lowering::ptx
