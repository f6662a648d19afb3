// What a region makes of several elements in each iteration, as one expression for each of them (woven_stores.h).
#pragma once
#include <vector>

#include "ir/kernel.h"
#include "lowering/loop_ir/range.h"
#include "lowering/loop_ir/region_index.h"

namespace kachel::lowering {

// Of one region: the axis along which its assignments differ, and how.
struct Weave {
  std::vector<const ir::AssignStmt*> parts;  // in the order of their elements
  size_t axis = 0, iteration = 0;            // of the tile; which of the region's variables goes along it
  ir::IterVar from;                          // that variable
  bool neighbours = true;                    // n * j + part, else part * extent + j
  ir::VarRef to;                             // the new one
  int64_t count() const { return static_cast<int64_t>(parts.size()); }
  int64_t extent() const { return from.extent->int_value; }
  ir::ExprRef index() const { return ir::make_var(to); }
  ir::ExprRef part() const;  // which one an element belongs to
  ir::ExprRef old() const;   // where `from` stood then
};

// Of what the parts are assigned, in their order, without names of the region's. Null: there is none. `indexes`,
// `ranges`: of the region as it was.
ir::ExprRef woven_value(const Weave& weave, const RegionIndexes& indexes, const Ranges& ranges,
                        const std::vector<ir::ExprRef>& parts);

}  // namespace kachel::lowering
