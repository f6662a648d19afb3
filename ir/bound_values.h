// What instantiate() is given, against what the kernel declares. Private to it.
#pragma once
#include <string_view>
#include <unordered_map>
#include <vector>

#include "ir/instantiate.h"
#include "ir/typecheck.h"

namespace kachel::ir {

// Constants of the variables' types.
using BoundValues = std::unordered_map<const Var*, ExprRef>;

// kInvalid with a mend where a type symbol has no type, or one that it does not list.
Result<TypeAssignment> choose_types(const Kernel& kernel, const Bindings& bindings);

// Of consts, tunables and `static_dims` of a kernel whose types are concrete. kInvalid with a mend where a value is
// missing or not allowed.
Result<BoundValues> bind_values(const Kernel& typed, const Bindings& bindings, const std::vector<VarRef>& static_dims);

// kInvalid: the kernel, the place, what is wrong and how to mend it.
Status cannot_instantiate(const Kernel& kernel, Loc loc, std::string_view message, std::string_view mend);

}  // namespace kachel::ir
