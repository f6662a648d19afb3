// Floats for tensors whose contents stay in another process.
#pragma once
#include <cstdint>

#include "ir/dtype.h"
#include "runtime/device.h"

namespace kachel::runtime {

// Fills `bytes` of device memory with elements between -1 and 1, rounded to the type, the same ones for the same seed.
// `to` is at a multiple of the element's size. REQUIRES: is_float(type).
Status synthesise(Device& device, ir::DType type, uint64_t seed, void* to, uint64_t bytes, void* stream);

}  // namespace kachel::runtime
