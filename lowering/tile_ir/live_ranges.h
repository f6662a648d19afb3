// How long a tile's memory is needed, in top-level statements of a tile's work. Memory is not preserved from tile to
// tile, so that a tile lives from the first statement that touches it to the last; loops and branches count as one
// statement.
#pragma once
#include <map>

#include "lowering/loop_ir/loop_ir.h"

namespace kachel::lowering {

struct LiveRange {
  size_t first = 0, last = 0;
  bool meets(const LiveRange& other) const { return first <= other.last && other.first <= last; }
};
using LiveRanges = std::map<const ir::Buffer*, LiveRange>;  // what is absent is never touched

// Of tiles and fragments.
LiveRanges live_ranges(const ir::Kernel& kernel);

// Of buffers in shared memory and in registers. What the copy engine fills, and its barriers, live throughout, since it
// runs ahead into the next tile; where a block has one, from the beginning to their last use.
LiveRanges live_ranges(const LoopKernel& kernel);

// Registers of 32 bits for all arrays of a thread that live at the same time, where most do.
int64_t live_registers(const LoopKernel& kernel);
// The same with lives within an iteration of a loop told apart: of what every iteration makes anew.
int64_t most_live_registers(const LoopKernel& kernel);

}  // namespace kachel::lowering
