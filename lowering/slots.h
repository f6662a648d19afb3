// What a lowered kernel is passed.
#pragma once
#include <cstdint>

namespace kachel::lowering {

// The kernel's parameters: one 8-byte slot each, in order.
struct Slot {
  enum class Kind : uint8_t {
    kPointer,    // of tensor parameter `index`
    kStride,     // of tensor parameter `index`, axis `axis`, in elements
    kDim,        // run-time dimension `index` of the concrete kernel's `dims` (matched with the generic one's by name)
    kScalar,     // scalar parameter `index`: integers sign- or zero-extended, f32 bits in the low half
    kGrid,       // extent of grid axis `index`
    kBlocks,     // product of the grid extents
    kWorkspace,  // pointer to workspace_bytes * launched blocks of scratch
  } kind;
  int index = 0;
  int axis = 0;
};

}  // namespace kachel::lowering
