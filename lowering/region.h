// The normal form of a parallel region: named values, then guarded stores. Reads of an element that the same iteration
// has assigned before see the assigned value; all other reads see what was there before the region.
#pragma once
#include "ir/kernel.h"

namespace kachel::lowering {

struct RegionStore {
  ir::BufferRef buffer;
  std::vector<ir::ExprRef> indices;
  ir::AtomicOp atomic = ir::AtomicOp::kNone;
  ir::ExprRef value;  // in the compute type of the buffer
  ir::ExprRef guard;  // null: always
};

struct Region {
  std::vector<ir::IterVar> iters;
  std::vector<ir::LetStmt> lets;    // in order; each sees the ones before
  std::vector<RegionStore> stores;  // in program order
};

// REQUIRES: a region of a concrete kernel (assignments are kSet or atomic).
Region normalise(const ir::ParallelStmt& region);

// Some iteration may read an element that another one writes: all reads must be done before the first write.
bool reads_what_others_write(const Region& region);

}  // namespace kachel::lowering
