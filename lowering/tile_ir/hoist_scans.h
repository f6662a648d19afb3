// Tile IR to tile IR: a prefix reduction becomes two regions,
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

// The prefix reduction that a region of the form above computes; null if it is none.
const ir::Expr* scan_of(const ir::ParallelStmt& region);

}  // namespace kachel::lowering
