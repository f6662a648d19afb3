// Tile IR to tile IR: what a region reads of a tile at places that differ from its own in some bits,
//
//   parallel i < M, d < N { x[i, d] = f(x[i, d], x[i, d ^ 8]) }
//
// as butterflies and sorting networks do, becomes an exchange of its own,
//
//   parallel i < M, d < N { o[i, d] = x[i, d ^ 8] }
//   parallel i < M, d < N { x[i, d] = f(x[i, d], o[i, d]) }
//
// which threads answer by registers and exchanges between lanes (lower/lower_exchange.cc). Loops and names that say
// which bits are written out for it. A shared tile that is used so, and in no other way, becomes a fragment.
#pragma once
#include <optional>

#include "ir/kernel.h"

namespace kachel::lowering {

// `threads`: of a block, 0: as many as it takes. REQUIRES: a concrete kernel. The result shares buffers and variables
// with `kernel`, and is `kernel` where threads would exchange more elements each than are worth writing out.
ir::Kernel hoist_exchanges(const ir::Kernel& kernel, int threads);

// All that is exchanged, in elements, and how many of them a thread may have: each is an instruction or three, and with
// what is computed of it ten. The assembler takes a second for 40000 instructions.
int64_t exchanged_elements(const ir::Kernel& kernel);
inline constexpr int64_t kMostExchanged = 2048;

// A region of the form above. Its iterations are the elements of both tiles, in their order.
struct Exchange {
  ir::BufferRef to, from;
  size_t axis = 0;
  int64_t bits = 0;  // in which places along the axis differ; more than 0, less than the extent, a power of two
};
std::optional<Exchange> exchange_of(const ir::ParallelStmt& region);

}  // namespace kachel::lowering
