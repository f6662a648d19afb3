// Division by constants, by multiplication.
#pragma once
#include <cstdint>
#include <optional>

#include "lowering/emit/ptx/ptx_code.h"

namespace kachel::lowering::ptx {

// x / divisor = (x * factor >> 32) >> shift for all x <= most.
struct Multiplier {
  uint32_t factor = 0;
  int shift = 0;
};
// REQUIRES: divisor > 1. Nothing where a factor has more than 32 bits.
std::optional<Multiplier> multiplier(uint32_t divisor, uint32_t most);

// a / divisor of an integer in [0, most]; nothing where that takes a division.
std::optional<Value> divided(Code* code, const Value& a, uint64_t most, uint64_t divisor);

}  // namespace kachel::lowering::ptx
