// Tile IR to tile IR: every reduction that is not inside another one becomes a region of its own,
//
//   parallel i < M { r[i] = max[j < N](...) }
//
// over those variables of its region that it depends on, before the statement that uses r. So it runs once for each
// result, and layout inference sees results as the fragments that they are. Results that a whole block reads (in `let`,
// bounds, conditions) are shared tiles of one element. One that has been made, and of which nothing has been written
// since that it reads, is not made again.
#pragma once
#include "ir/kernel.h"

namespace kachel::lowering {

// REQUIRES: a concrete kernel without arg reductions (expand_arg_reductions). The result shares the buffers and
// variables of `kernel`.
ir::Kernel hoist_reductions(const ir::Kernel& kernel);

// The reduction that a region of the form above computes; null if it is none.
const ir::Expr* reduction_of(const ir::ParallelStmt& region);
// What a region of one assignment assigns, if it is of that kind.
const ir::Expr* assigned(const ir::ParallelStmt& region, ir::ExprKind kind);

// `let new = value  tile[...] = new`, as a region of one assignment comes to be.
struct RegionStep {
  const ir::AssignStmt* store = nullptr;  // null: the region is of another form
  ir::ExprRef value;
};
RegionStep step_of(const ir::ParallelStmt& region);

}  // namespace kachel::lowering
