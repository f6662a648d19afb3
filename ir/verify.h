// The rules of GRAMMAR.md that a parsed or built module must keep, each with its diagnostic. Type rules are checked for
// every combination of the type symbols' options.
#pragma once
#include "ir/module.h"

namespace kachel::ir {

std::vector<Diagnostic> verify(const Module& module);

// Dimensions that a tile extent depends on, and that a binary is therefore specialised by. In the order of kernel.dims.
std::vector<VarRef> static_dims(const Kernel& kernel);

}  // namespace kachel::ir
