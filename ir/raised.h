// Sums of a constant and tanh or erf as one operation: where 1 + tanh(x) is asked for, an error relative to tanh(x) is
// not, and functions that are small near 0 without cancellation cost more than sums that are not.
#pragma once
#include "ir/kernel.h"

namespace kachel::ir {

// c + k f(x) and c - k f(x), in any order, where f is tanh or erf, not `approx`, and c and k are constants of the same
// magnitude, become kRaisedTanh and kRaisedErf, also where f(x) or k f(x) has a name. A power of two that multiplies
// them becomes part of them: m (k f(x) + k), and of m y (k f(x) + k) with m up to 1.
//
// REQUIRES: from a concrete kernel, folded. What stands within keeps its place: the operand of a named f(x) gets a
// name.
void raise_functions(Block* body);

}  // namespace kachel::ir
