// Canonical text of tile IR. print(parse(print(m))) == print(m) for every module.
#pragma once
#include <string>

#include "ir/module.h"

namespace kachel::ir {

std::string print(const Module& module);
std::string print(const Kernel& kernel);  // without the `tile 1` line
std::string print(const Program& program);
std::string print(const ExprRef& expr);
std::string print(const TileRef& tile);

// What a binary is keyed by: the kernel with every name replaced by its position (d0, p1, v2, ...), without its own
// name, comments, `tune` values and `key`. Two kernels that differ only in those have equal bodies.
std::string canonical_body(const Kernel& kernel);
// The same of a program, whose calls are followed by the bodies of the kernels that they name.
std::string canonical_body(const Module& module, const Program& program);

}  // namespace kachel::ir
