// Tile IR to tile IR: rows that take about half of a multiprocessor's registers and more, so that none of another block
// could be loaded while they are worked on, are held no longer than they have to be:
//
//   y = Y[n, :]                                      let total = sum[v < V](dy[v])
//   let total = sum[v < V](dy[v])              ->    parallel v < V { X[n, v] = dy[v] - exp(Y[n, v]) * total }
//   parallel v < V { dy[v] -= exp(y[v]) * total }
//   X[n, :] = dy
//
// What one region alone reads, each iteration its own element, it reads from the tensor; and what a region makes for a
// tensor alone it writes there.
#pragma once
#include "ir/kernel.h"

namespace kachel::lowering {

// Of the fragments of a concrete kernel, each element in a word at least, as registers hold what is computed.
int64_t fragment_bytes(const ir::Kernel& kernel);

// Whether the fragments of a kernel, which multiplies no matrices, take so many registers of each of the blocks that
// compute a tile.
bool has_long_rows(const ir::Kernel& kernel, int blocks);

// REQUIRES: from a concrete kernel.
ir::Kernel long_rows(const ir::Kernel& kernel, int blocks);

}  // namespace kachel::lowering
