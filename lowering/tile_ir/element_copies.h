// Copies between a fragment and a tensor for which regions stand, an element an iteration.
#pragma once
#include <vector>

#include "ir/kernel.h"

namespace kachel::lowering {

struct CopySides {
  const ir::TileRef *tile, *slice;  // the fragment, and of the tensor
  bool to_tile;
};
// REQUIRES: one side is a tensor.
CopySides sides_of(const ir::CopyStmt& copy);

// Whether a region can stand for the copy: it is of all of a fragment, without bounds or padding, of elements whose places
// are known without memory (what stands in front may write that), and rounds as a region does.
bool is_by_elements(const ir::CopyStmt& copy);

// Where the tensor's element is for these places in the fragment. REQUIRES: is_by_elements() of the copy.
std::vector<ir::ExprRef> element_of(const ir::TileRef& slice, const std::vector<ir::ExprRef>& places);

// One element's copy, of a fragment that may be another one than the copy's.
ir::Stmt element_copy(const CopySides& sides, const ir::BufferRef& fragment, const std::vector<ir::ExprRef>& in_fragment,
                      const std::vector<ir::ExprRef>& in_tensor, ir::Loc loc);

}  // namespace kachel::lowering
