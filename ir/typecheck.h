// Gives every expression its compute type and makes conversions explicit Casts. GRAMMAR.md, "Types", has the rules:
// integer literals adapt to what they meet, integers meet f32 as f32, i32 meets u32 as i64, and everything else that
// does not agree is diagnosed.
#pragma once
#include <unordered_map>
#include <vector>

#include "ir/kernel.h"
#include "support/status.h"

namespace kachel::ir {

using TypeAssignment = std::unordered_map<const TypeSymbol*, DType>;

// The kernel with concrete types: variables and buffers are new objects, `let`s have the type of their value, compound
// assignments are spelt out (`S[i] += e` is `S[i] = S[i] + e`; atomics keep their operation), and values that go to a
// buffer have its compute type or, where that differs from their own, a Cast to its element type. Dimensions, constants
// and tunables stay variables. What is wrong is added to `diagnostics`; the result is usable only if nothing was.
Kernel type_kernel(const Kernel& kernel, const TypeAssignment& types, std::vector<Diagnostic>& diagnostics);

// The type diagnostics of a kernel for one choice of types. A symbol without a type takes its first option.
std::vector<Diagnostic> check_types(const Kernel& kernel, const TypeAssignment& types);

// Types one expression over host values (`key`, `where`, grid extents); variables keep their identity. kInvalid with
// the first diagnostic's message and mend.
Result<ExprRef> type_expr(const ExprRef& expr);

}  // namespace kachel::ir
