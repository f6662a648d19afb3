#include "runtime/cpu/half_conversions.h"

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace kachel::runtime {
namespace {

// The definition: the value of a narrow float, exact in a double.
double value_of(uint16_t bits, int fraction_bits, int exponent_bits) {
  int bias = (1 << (exponent_bits - 1)) - 1, exponent = bits >> fraction_bits & ((1 << exponent_bits) - 1);
  int fraction = bits & ((1 << fraction_bits) - 1);
  double sign = bits >> 15 ? -1.0 : 1.0;
  if (exponent == (1 << exponent_bits) - 1)
    return fraction ? std::numeric_limits<double>::quiet_NaN() : sign * std::numeric_limits<double>::infinity();
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias - fraction_bits);
  return sign * std::ldexp(fraction + (1 << fraction_bits), exponent - bias - fraction_bits);
}

void check_format(uint16_t (*narrow)(double), int fraction_bits, int exponent_bits) {
  const int infinity = ((1 << exponent_bits) - 1) << fraction_bits;
  int wrong = 0;
  for (int bits = 0; bits < 0x10000; ++bits) {
    double value = value_of(static_cast<uint16_t>(bits), fraction_bits, exponent_bits);
    uint16_t back = narrow(value);
    if (std::isnan(value))
      wrong += (back & 0x7fff) <= infinity;
    else
      wrong += back != bits;
  }
  CHECK(wrong == 0);

  // Between neighbours: the middle goes to the even one, a hair off the middle to the nearer one.
  for (int bits = 0; bits + 1 < infinity; ++bits) {
    double low = value_of(static_cast<uint16_t>(bits), fraction_bits, exponent_bits);
    double high = value_of(static_cast<uint16_t>(bits + 1), fraction_bits, exponent_bits);
    double middle = (low + high) / 2;
    wrong += narrow(middle) != bits + (bits & 1);
    wrong += narrow(std::nextafter(middle, low)) != bits;
    wrong += narrow(std::nextafter(middle, high)) != bits + 1;
    wrong += narrow(-std::nextafter(middle, high)) != (0x8000 | (bits + 1));
  }
  CHECK(wrong == 0);

  // Above the largest number the next would be a power of two; from the middle on it is infinity.
  double largest = value_of(static_cast<uint16_t>(infinity - 1), fraction_bits, exponent_bits);
  double step = largest - value_of(static_cast<uint16_t>(infinity - 2), fraction_bits, exponent_bits);
  CHECK(narrow(largest + step / 2) == infinity);
  CHECK(narrow(std::nextafter(largest + step / 2, 0)) == infinity - 1);
  CHECK(narrow(std::numeric_limits<double>::max()) == infinity);
  CHECK(narrow(std::numeric_limits<double>::denorm_min()) == 0);
  CHECK(narrow(-std::numeric_limits<double>::min()) == 0x8000);
}

TEST_CASE("half: every value and every tie") {
  check_format(half_from_double, 10, 5);
}
TEST_CASE("bfloat: every value and every tie") {
  check_format(bfloat_from_double, 7, 8);
}

TEST_CASE("widening a half is exact") {
  int wrong = 0;
  for (int bits = 0; bits < 0x10000; ++bits) {
    float wide = float_from_half(static_cast<uint16_t>(bits));
    double expected = value_of(static_cast<uint16_t>(bits), 10, 5);
    wrong += std::isnan(expected) ? !std::isnan(wide)
                                  : std::bit_cast<uint64_t>(double{wide}) != std::bit_cast<uint64_t>(expected);
  }
  CHECK(wrong == 0);
}

TEST_CASE("one rounding from double, not two") {
  // 1 + 2^-11 is the tie above 1; 2^-40 more decides it, and would be lost on the way through a float.
  CHECK(half_from_double(1 + 0x1p-11 + 0x1p-40) == 0x3c01);
  CHECK(half_from_double(1 + 0x1p-11) == 0x3c00);
}

TEST_CASE("the callable forms carry the bits in the low half of a float") {
  CHECK(std::bit_cast<uint32_t>(call_half_from_float(1.5f)) == 0x3e00);
  CHECK(std::bit_cast<uint32_t>(call_half_from_double(-2.0)) == 0xc000);
  CHECK(std::bit_cast<uint32_t>(call_bfloat_from_float(1.5f)) == 0x3fc0);
  CHECK(std::bit_cast<uint32_t>(call_bfloat_from_double(-2.0)) == 0xc000);
  CHECK(call_extend_half(std::bit_cast<float>(0xdead3e00u)) == 1.5f);  // upper bits are ignored
}

}  // namespace
}  // namespace kachel::runtime
