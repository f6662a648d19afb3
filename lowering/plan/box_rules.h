// What the copy engine asks of a slice that it moves in boxes. Limits: CUDA driver API, cuTensorMapEncodeTiled.
#pragma once
#include <string>

#include "ir/kernel.h"
#include "lowering/loop_ir/range.h"

namespace kachel::lowering {

// "" if boxes of the slice of a tensor can be moved, either way; else why not. `multiples`: note_multiples() of the
// body.
std::string refuses_boxes(const ir::Kernel& kernel, const ir::TileRef& slice, const Ranges& multiples,
                          uint64_t fact_mask);

}  // namespace kachel::lowering
