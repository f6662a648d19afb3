// Generic kernel to concrete kernel: type symbols, consts, tunables and static dimensions replaced by values, constants
// folded, every expression typed with explicit casts, dead `if`s on constants removed. What the interpreter executes
// and lowering starts from.
#pragma once
#include <map>
#include <string>
#include <unordered_map>

#include "ir/kernel.h"

namespace kachel::ir {

// Values by name. A const of type f32 or bool is given as its value; integers exactly.
struct Bindings {
  std::map<std::string, DType> types;
  std::map<std::string, double> float_consts;
  std::map<std::string, int64_t> int_consts;  // integer and bool consts
  std::map<std::string, int64_t> tunables;
  std::map<std::string, int64_t> dims;  // the static ones; others are ignored
};

// kInvalid with a mend if a value is missing or not allowed, if a tile extent is not in 1 .. 2^24 or all tiles together
// exceed 2^28 elements. The result has empty type_symbols, consts, tunables; `dims` keeps the run-time dimensions; the
// buffers and variables are new objects.
Result<Kernel> instantiate(const Kernel& kernel, const Bindings& bindings);

// Host evaluation of grid extents, keys, where and shapes. Values by variable address; a missing one is kInvalid. An
// expression that is not typed is so by each call: whoever evaluates it often types it once (type_expr()).
struct HostValue {
  bool is_float = false;
  int64_t i = 0;  // integers, and bools as 0 or 1
  double f = 0;
};
using HostEnv = std::unordered_map<const Var*, HostValue>;
Result<HostValue> evaluate(const ExprRef& expr, const HostEnv& env);
Result<int64_t> evaluate_int(const ExprRef& expr, const HostEnv& env);

// Constant folding and algebraic identities of typed expressions, exact in the language's numerics.
ExprRef fold(const ExprRef& expr);

}  // namespace kachel::ir
