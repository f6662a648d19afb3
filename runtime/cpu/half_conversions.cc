// One rounding routine serves every pair: a double holds each float exactly, so a float is widened first, and the
// single rounding is from the double's 52 fraction bits to those of the narrow format. A value below the narrow
// format's smallest normal number loses one more bit for each power of two that it is below.
#include "runtime/cpu/half_conversions.h"

#include <bit>

namespace kachel::runtime {
namespace {

struct Format {
  int fraction_bits;
  int exponent_bits;
};
constexpr Format kHalf{10, 5}, kBfloat{7, 8};

uint16_t narrow(double value, Format format) {
  const uint64_t bits = std::bit_cast<uint64_t>(value);
  const auto sign = static_cast<uint16_t>(bits >> 63 << 15);
  const int bias = (1 << (format.exponent_bits - 1)) - 1;
  const auto infinity = static_cast<uint16_t>(((1 << format.exponent_bits) - 1) << format.fraction_bits);
  const int exponent = static_cast<int>(bits >> 52 & 0x7ff);
  const uint64_t fraction = bits & ((uint64_t{1} << 52) - 1);

  if (exponent == 0x7ff) {
    if (fraction == 0) return sign | infinity;
    // A quiet NaN that keeps the leading payload bits.
    uint64_t payload = fraction >> (52 - format.fraction_bits);
    return static_cast<uint16_t>(sign | infinity | payload | 1u << (format.fraction_bits - 1));
  }
  if (exponent == 0) return sign;  // far below half the smallest subnormal of either format

  const int narrow_exponent = exponent - 1023 + bias;
  if (narrow_exponent >= (1 << format.exponent_bits) - 1) return sign | infinity;
  uint64_t significand = fraction | uint64_t{1} << 52;
  int dropped = 52 - format.fraction_bits;
  uint64_t result = 0;
  if (narrow_exponent > 0) {
    result = static_cast<uint64_t>(narrow_exponent - 1) << format.fraction_bits;  // the hidden bit adds the last one
  } else {
    dropped += 1 - narrow_exponent;
    if (dropped > 53) return sign;  // less than half the smallest subnormal
  }
  const uint64_t half = uint64_t{1} << (dropped - 1), rest = significand & ((half << 1) - 1);
  result += significand >> dropped;
  if (rest > half || (rest == half && (result & 1))) ++result;  // may carry into the exponent, up to infinity
  return static_cast<uint16_t>(sign | result);
}

float in_register(uint16_t bits) {
  return std::bit_cast<float>(uint32_t{bits});
}

}  // namespace

uint16_t half_from_double(double value) {
  return narrow(value, kHalf);
}
uint16_t bfloat_from_double(double value) {
  return narrow(value, kBfloat);
}

float float_from_half(uint16_t bits) {
  const uint32_t sign = uint32_t{bits} >> 15 << 31, exponent = bits >> 10 & 31;
  uint32_t fraction = bits & 1023;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | fraction << 13 | (fraction ? 0x400000u : 0));
  if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
  if (fraction == 0) return std::bit_cast<float>(sign);
  const int shift = std::countl_zero(fraction) - 21;  // brings the leading one to the hidden bit's place
  fraction = fraction << shift & 1023;
  return std::bit_cast<float>(sign | static_cast<uint32_t>(113 - shift) << 23 | fraction << 13);
}

float call_extend_half(float half) {
  return float_from_half(static_cast<uint16_t>(std::bit_cast<uint32_t>(half)));
}
float call_half_from_float(float value) {
  return in_register(half_from_double(value));
}
float call_half_from_double(double value) {
  return in_register(half_from_double(value));
}
float call_bfloat_from_float(float value) {
  return in_register(bfloat_from_double(value));
}
float call_bfloat_from_double(double value) {
  return in_register(bfloat_from_double(value));
}

}  // namespace kachel::runtime
