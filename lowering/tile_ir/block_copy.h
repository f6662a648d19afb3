// Another instance of statements: variables that they bind are new, so that both may stand in one kernel.
#pragma once
#include <unordered_map>

#include "ir/kernel.h"

namespace kachel::lowering {

using Substitutions = std::unordered_map<const ir::Var*, ir::ExprRef>;

// With the expressions of `values` in the places of their variables.
ir::Block copy_of(const ir::Block& block, Substitutions values);

}  // namespace kachel::lowering
