// What iterations of a loop touch apart from each other: in
//
//   for t < L { parallel i < BD { h[i] = g[t, i] * h[i]; y[t, i] = h[i] } }
//
// no iteration touches an element of y that another one does, so that none need wait for others on account of y.
#pragma once
#include "lowering/tile_ir/tile_uses.h"

namespace kachel::lowering {

// The tiles in memory and the tensors that the body writes, all of whose accesses in it, by an index of theirs, follow
// the loop's variable: t, 2 * t + 1, or ranges t * 16 +: 16. REQUIRES: from a concrete kernel.
BufferSet own_elements(const ir::ForStmt& loop);

}  // namespace kachel::lowering
