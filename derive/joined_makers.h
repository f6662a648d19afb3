// Kernels that make operands, of which several become one where they walk through the same tensors in the same way: the
// planes of complex numbers, the parts that one region makes of a tile. What they read is read once. Private to derive/.
#pragma once
#include <vector>

#include "ir/kernel.h"

namespace kachel::derive {

struct OperandMaker {
  ir::Kernel kernel;                // its last statements store, one each
  std::vector<ir::BufferRef> made;  // the tensors
};

// Adds what `other` makes to `maker`, if it may. REQUIRES: both are of maker_of() for slices of `source`.
bool join(const ir::Kernel& source, const OperandMaker& other, OperandMaker* maker);

}  // namespace kachel::derive
