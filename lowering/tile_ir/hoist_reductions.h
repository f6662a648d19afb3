// Tile IR to tile IR: every reduction that is not inside another one becomes a region of its own,
//
//   parallel i < M { r[i] = max[j < N](...) }
//
// over those variables of its region that it depends on, before the statement that uses r. So it runs once for each
// result, and layout inference sees results as the fragments that they are. Results that a whole block reads (in `let`,
// bounds, conditions) are shared tiles of one element.
//
// Prefix reductions become two regions, before all other passes,
//
//   parallel i < M, j < N { s[i, j] = e }
//   parallel i < M, j < N { s[i, j] = sum[<= j](s[i, j]) }
//
// of which the first is left out where e is a fragment's own element. The second is the only form of a kScan in which
// iterations depend on each other that passes meet: its operand names j, and it has no index of its own.
#pragma once
#include "ir/kernel.h"

namespace kachel::lowering {

// REQUIRES: a concrete kernel. The result shares the buffers and variables of `kernel`.
ir::Kernel hoist_scans(const ir::Kernel& kernel);
ir::Kernel hoist_reductions(const ir::Kernel& kernel);

// The reduction, or the prefix reduction, that a region of the forms above computes; null if it is none.
const ir::Expr* reduction_of(const ir::ParallelStmt& region);
const ir::Expr* scan_of(const ir::ParallelStmt& region);

// `let new = value  tile[...] = new`, as a region of one assignment comes to be.
struct RegionStep {
  const ir::AssignStmt* store = nullptr;  // null: the region is of another form
  ir::ExprRef value;
};
RegionStep step_of(const ir::ParallelStmt& region);

}  // namespace kachel::lowering
