// The form of a parallel region that code is generated from: all reads first, all writes last.
#pragma once
#include <vector>

#include "ir/kernel.h"

namespace kachel::ir {

// One write of an iteration, performed if `guard` (null: always) is true. The value has the compute type of the buffer
// and is already rounded to its element type; indices, guard and value read no memory.
struct GuardedStore {
  ExprRef guard;
  AssignStmt store;
  Loc loc;
};

struct ForwardedRegion {
  std::vector<IterVar> iters;
  std::vector<LetStmt> lets;  // in order of evaluation; each may use those before it
  std::vector<GuardedStore> stores;
};

// Rewrites a region so that each iteration evaluates `lets`, whose loads all mean the memory from before the region,
// and then performs `stores` in order. A read of a buffer with the index expressions, ir::same(), of an earlier
// assignment of the same iteration becomes the value assigned, converted to the buffer's type; after an assignment
// under a condition it becomes a selection between that value and what was visible before. `if` becomes guards; what
// stood inside is evaluated always, which no program can notice. An assignment that a later one of the same element
// always overwrites is left out.
//
// What remains to the caller: that no iteration's stores are performed before another's loads of the same elements.
//
// REQUIRES: from a concrete kernel (instantiate.h).
ForwardedRegion forward_stores(const ParallelStmt& region);

// The name of the first of the roundings, from f32 to the type of the tensor that is stored to, which are all that
// becomes of a value before it is stored; null: there is none.
const LetStmt* rounding_of(const ForwardedRegion& region, const AssignStmt& store);

// Whether the region's iterations set every element of a matrix, each its own. REQUIRES: from a concrete kernel.
bool sets_all(const ParallelStmt& region, const AssignStmt& assign);

}  // namespace kachel::ir
