// What a tunable decides, read off where a program uses it. Names say nothing, but for the three that the language
// gives a meaning (GRAMMAR.md, section 3). From the role follows which values are worth deriving for `tune auto`.
#pragma once
#include "ir/module.h"

namespace kachel::ir {

enum class TunableRole : uint8_t {
  kUnknown,         // its uses do not say which values make sense
  kThreads,         // of a block, by name
  kCluster,         // neighbouring blocks that share copies, by name
  kClusterColumns,  // those of them along the axis that varies fastest, by name
  kStages,          // depth of a pipeline
  kProduct,         // extent of an operand or the result of a gemm
  kExtent,          // of other tiles, regions or reductions
  kParts,           // a number of blocks, iterations or elements of a temporary
};

// Of every tunable, in declared order, the first of these that a use speaks for, in the order threads, cluster, its
// columns, stages, product, extent, parts. One walk over the kernel.
std::vector<TunableRole> roles_of(const Kernel& kernel);
// Of the tunables of the program's own: kParts or kUnknown.
std::vector<TunableRole> roles_of(const Program& program);

// More tunables without a list are an error: a space of so many axes is not worth deriving.
inline constexpr size_t kMostAutomatic = 16;

// The largest value that a tunable of this role can have which is not listed. Values are at least 1.
int64_t most_automatic(TunableRole role);

bool mentions(const ExprRef& expr, const VarRef& var);

}  // namespace kachel::ir
