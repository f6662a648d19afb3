// Tile IR to tile IR: where the largest element stands is the least number of an element that equals the maximum,
//
//   parallel i < M, j < N { t[i, j] = e }
//   parallel i < M { most[i] = max[j < N](t[i, j]) }
//   parallel i < M { first[i] = min[j < N](t[i, j] == most[i] ? j : N) }
//
// of which the first region is left out where e is an element that can be read again. e is computed once, since two
// computations of it may differ in a rounding, and then nothing equals the maximum. A comparison and a minimum an
// element cost less than pairs of value and number, which take two selections and twice the exchanges.
#pragma once
#include "ir/kernel.h"
#include "lowering/lower.h"

namespace kachel::lowering {

// REQUIRES: a concrete kernel. The result shares the buffers and variables of `kernel` and has no kArgMax and kArgMin.
// An error where operands would have to be kept that are more than a block's tiles may have.
Result<ir::Kernel> expand_arg_reductions(const ir::Kernel& kernel);

}  // namespace kachel::lowering
