// Do distinct iterations of a `parallel` region write distinct elements? Private to the verifier.
#pragma once
#include "ir/poly.h"

namespace kachel::ir {

struct IterationSpace {
  std::vector<IterVar> iters;
  std::unordered_map<const Var*, int64_t> least;  // smallest value of each tunable
};

// True if two iterations with equal `components` (the indices of an element, and `a - b` for every condition `a == b`
// that holds) are one iteration. False also means "not shown". The variables that are in doubt are put in `doubtful`.
bool injective(PolyContext& polys, const IterationSpace& space, const std::vector<Poly>& components,
               std::vector<const Var*>& doubtful);

}  // namespace kachel::ir
