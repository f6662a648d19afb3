// Functions of f32 for which PTX has no instruction that keeps the bounds of ir/GRAMMAR.md.
#pragma once
#include "ir/expr.h"
#include "lowering/emit/ptx/ptx_code.h"

namespace kachel::lowering::ptx {

// exp, log, log2, tanh, erf, sin, cos and quotients, written out; nothing: another operation.
std::optional<Value> written_out(Code* code, ir::Op op, const std::vector<Value>& args);

}  // namespace kachel::lowering::ptx
