// The tensor maps of a launch.
#pragma once
#include "runtime/device.h"
#include "runtime/engine/bind/argument_binder.h"

namespace kachel::runtime {

// Where the maps of a kernel begin, in words: behind its slots, at a multiple of 128 bytes.
constexpr size_t first_map_word(size_t slots) {
  return (slots + 15) / 16 * 16;
}

constexpr TensorMapRequest::Numbers map_numbers(ir::DType type) {
  using Numbers = TensorMapRequest::Numbers;
  return type == ir::DType::F32    ? Numbers::kF32
         : type == ir::DType::F16  ? Numbers::kF16
         : type == ir::DType::BF16 ? Numbers::kBF16
                                   : Numbers::kOther;
}

// Writes the maps one after the other. `out` is 128-byte aligned. No locks, no allocation.
Status encode_maps(const Device& device, const std::vector<lowering::TensorMap>& maps, const BoundArguments& arguments,
                   uint64_t* out);

}  // namespace kachel::runtime
