// Division by constants. ptxas writes out a division by any number, 15 instructions with a reciprocal among them, where
// the other compilers of PTX have multiplied before.
#include "lowering/emit/ptx/ptx_division.h"

#include <limits>

namespace kachel::lowering::ptx {

// With p = 32 + shift, m = ceil(2^p / d) and e = m d - 2^p: x m / 2^p = x / d + x e / (d 2^p), whose whole part is that
// of x / d where x e < 2^p. Source: Granlund and Montgomery, Division by invariant integers using multiplication, 1994.
std::optional<Multiplier> multiplier(uint32_t divisor, uint32_t most) {
  for (int shift = 0; shift < 32; ++shift) {
    const uint64_t power = uint64_t{1} << (32 + shift);
    const uint64_t factor = (power + divisor - 1) / divisor, excess = factor * divisor - power;
    if (factor > std::numeric_limits<uint32_t>::max()) return std::nullopt;
    if (excess * most < power) return Multiplier{static_cast<uint32_t>(factor), shift};
  }
  return std::nullopt;
}

std::optional<Value> divided(Code* code, const Value& a, uint64_t most, uint64_t divisor) {
  constexpr uint64_t kAll = std::numeric_limits<uint32_t>::max();
  if (most > kAll || divisor > kAll) return std::nullopt;
  const auto by = multiplier(static_cast<uint32_t>(divisor), static_cast<uint32_t>(most));
  if (!by) return std::nullopt;
  const Value high =
      code->pure(Class::kB32, "mul.hi.u32", {code->narrowed(a), Code::integer(static_cast<int64_t>(by->factor), 32)});
  code->at_most(high, (most * by->factor) >> 32);
  const Value quotient = code->shift(high, Code::integer(by->shift, 32), false, false);
  return a.kind == Class::kB64 ? code->widened(quotient, false) : quotient;
}

}  // namespace kachel::lowering::ptx
