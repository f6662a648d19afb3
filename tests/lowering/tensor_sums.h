// Sums of products as tensor cores make them, as far as GRAMMAR.md lets them fall short of f32. Sources: PTX ISA on
// .tf32; DeepSeek-V3 report, 3.5.2, and SageAttention 2 on 8-bit floats (14 bits of each term, 13 behind the leading
// one).
#pragma once
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <span>

namespace kachel::lowering {

// wgmma takes an f32 for a tf32 as it is.
inline float cut_to_tf32(double value) {
  return std::bit_cast<float>(std::bit_cast<uint32_t>(static_cast<float>(value)) & ~0x1FFFu);
}

// The terms aligned to the largest of them and cut 13 bits behind its leading one, their sum cut likewise.
inline double short_sum(std::span<const double> terms) {
  double largest = 0;
  for (double term : terms) {
    if (!std::isfinite(term)) {
      double sum = 0;
      for (double each : terms) sum += each;
      return sum;
    }
    largest = std::max(largest, std::abs(term));
  }
  if (largest == 0) return 0;
  auto cut = [](double value, int exponent) {
    const double unit = std::ldexp(1.0, exponent - 13);
    return std::trunc(value / unit) * unit;
  };
  double sum = 0;
  for (double term : terms) sum += cut(term, std::ilogb(largest));
  return sum == 0 ? 0 : cut(sum, std::ilogb(sum));
}

}  // namespace kachel::lowering
