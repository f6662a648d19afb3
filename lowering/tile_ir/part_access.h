// Accesses to equal parts of a tile's axis, as x[i, d] and x[i, d + half].
#pragma once
#include <optional>

#include "ir/kernel.h"

namespace kachel::lowering {

// More parts than that are left alone.
inline constexpr int64_t kMostParts = 8;

// An index `v` or `v + offset`.
struct Place {
  ir::VarRef var;
  int64_t offset = 0;
};
std::optional<Place> place_of(const ir::ExprRef& index);

// The statements of a region's body with a value for each use of the variable.
ir::Block substituted(ir::Block body, const ir::VarRef& var, const ir::ExprRef& value);
ir::ExprRef substituted(const ir::ExprRef& expr, const ir::VarRef& var, const ir::ExprRef& value);

}  // namespace kachel::lowering
