// Tile IR to tile IR: products whose right operand a region makes of few bits, turned,
//
//   acc += a @ w^T                     acc_turned += w @ a^T
//   ...                        ->      ...
//   C[...] = acc                       parallel i < BM, j < BN { acc[i, j] = acc_turned[j, i] }
//                                      C[...] = acc
//
// so that what a thread unpacks is a left operand, which wgmma takes from the registers that hold it: it passes through
// no shared memory, of which the products would otherwise read both operands while others write one of them. What
// follows the loop, or several loops of one sum, finds its sums as ever, in registers: 8 x 8 elements turn within a
// warp (lower/lower_turn.cc).
#pragma once
#include <optional>

#include "ir/kernel.h"
#include "lowering/plan/placement.h"

namespace kachel::lowering {

// REQUIRES: from a concrete kernel. Where products are wgmma's; one that turns out to be none is better left as it was.
ir::Kernel turned_sums(const ir::Kernel& kernel);

// Whether all products that were turned are wgmma's, and what follows them finds their sums in registers.
bool turn_as_wished(const ir::Kernel& kernel, const Placements& placements);

// A region `to[i, j] = from[j, i]` over all of two tiles of one type of 32 bits, and nothing else.
struct Turn {
  ir::BufferRef to, from;
};
std::optional<Turn> turn_of(const ir::ParallelStmt& region);

}  // namespace kachel::lowering
