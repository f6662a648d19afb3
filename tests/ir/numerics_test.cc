#include "ir/numerics.h"

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

namespace kachel::ir {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
const double kNan = std::numeric_limits<double>::quiet_NaN();

bool equal(double a, double b) {
  if (a != a || b != b) return a != a && b != b;
  return a == b && std::signbit(a) == std::signbit(b);
}

// Written from the formats' definitions, bit field by bit field, in another way than numerics.cc.
double decode_by_fields(uint32_t bits, int exponent_bits, int mantissa_bits, int bias) {
  int sign = bits >> (exponent_bits + mantissa_bits) & 1;
  int exponent = bits >> mantissa_bits & ((1 << exponent_bits) - 1);
  int mantissa = bits & ((1 << mantissa_bits) - 1);
  double fraction = std::ldexp(mantissa, -mantissa_bits);
  double value = exponent == 0 ? std::ldexp(fraction, 1 - bias) : std::ldexp(1 + fraction, exponent - bias);
  return sign ? -value : value;
}

struct Layout {
  DType type;
  int exponent_bits, mantissa_bits, bias;
  bool ieee;  // the top exponent means infinity and NaN
};
const Layout kLayouts[] = {{DType::F16, 5, 10, 15, true},
                           {DType::BF16, 8, 7, 127, true},
                           {DType::F8E4M3, 4, 3, 7, false},
                           {DType::F8E5M2, 5, 2, 15, true}};

TEST_CASE("every pattern of the narrow floats decodes and encodes back") {
  for (const Layout& layout : kLayouts) {
    CAPTURE(name(layout.type));
    int width = 1 + layout.exponent_bits + layout.mantissa_bits;
    int wrong = 0;
    for (uint32_t raw = 0; raw < 1u << width; ++raw) {
      uint32_t magnitude = raw & ((1u << (width - 1)) - 1);
      double expected = decode_by_fields(raw, layout.exponent_bits, layout.mantissa_bits, layout.bias);
      uint32_t top = ((1u << layout.exponent_bits) - 1) << layout.mantissa_bits;
      if (layout.ieee && magnitude == top) expected = raw == magnitude ? kInf : -kInf;
      if (layout.ieee && magnitude > top) expected = kNan;
      if (!layout.ieee && magnitude == (1u << (width - 1)) - 1) expected = kNan;
      double value = decode_float(layout.type, raw);
      if (!equal(value, expected)) ++wrong;
      if (value != value) continue;
      uint32_t back = raw;
      if (std::isinf(value) && layout.type == DType::F8E5M2) back = raw - 1;  // saturates
      if (encode_float(layout.type, value) != back) ++wrong;
    }
    CHECK(wrong == 0);
  }
}

// Finite values of a format in ascending order.
std::vector<double> ladder(DType type) {
  std::vector<double> values;
  for (uint32_t raw = 0; raw < 1u << (bits(type) - 1); ++raw) {
    double value = decode_float(type, raw);
    if (std::isfinite(value)) values.push_back(value);
  }
  return values;
}

TEST_CASE("rounding between all neighbours: nearest, ties to even, both signs") {
  for (const Layout& layout : kLayouts) {
    CAPTURE(name(layout.type));
    std::vector<double> values = ladder(layout.type);
    int wrong = 0;
    for (size_t i = 0; i + 1 < values.size(); ++i) {
      double low = values[i], high = values[i + 1], middle = (low + high) / 2;
      double even = i % 2 == 0 ? low : high;  // the patterns are consecutive, so parity is that of the mantissa
      for (double sign : {1.0, -1.0}) {
        if (!equal(round_float(layout.type, sign * middle), sign * even)) ++wrong;
        if (!equal(round_float(layout.type, sign * std::nextafter(middle, 0)), sign * low)) ++wrong;
        if (!equal(round_float(layout.type, sign * std::nextafter(middle, kInf)), sign * high)) ++wrong;
        if (!equal(round_float(layout.type, sign * low), sign * low)) ++wrong;
      }
      if (ulp_at(layout.type, low) != high - low) ++wrong;
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("overflow goes to infinity or saturates") {
  CHECK(round_float(DType::F16, 65519.999) == 65504);
  CHECK(round_float(DType::F16, 65520) == kInf);
  CHECK(round_float(DType::F16, -1e300) == -kInf);
  CHECK(round_float(DType::BF16, 0x1.FEp127) == 0x1.FEp127);
  CHECK(round_float(DType::BF16, 0x1.FFp127) == kInf);
  CHECK(round_float(DType::BF16, 0x1.FEFFp127) == 0x1.FEp127);
  CHECK(round_float(DType::F8E4M3, 449) == 448);
  CHECK(round_float(DType::F8E4M3, 1e10) == 448);
  CHECK(round_float(DType::F8E4M3, -kInf) == -448);
  CHECK(round_float(DType::F8E5M2, 61440) == 57344);
  CHECK(round_float(DType::F8E5M2, kInf) == 57344);
  CHECK(round_float(DType::F32, 1e39) == kInf);
  for (DType type : {DType::F32, DType::F16, DType::BF16, DType::F8E4M3, DType::F8E5M2}) {
    CHECK(std::isnan(round_float(type, kNan)));
    CHECK(std::isnan(decode_float(type, encode_float(type, kNan))));
    CHECK(equal(round_float(type, -0.0), -0.0));
    CHECK(equal(decode_float(type, encode_float(type, -0.0)), -0.0));
    CHECK(round_float(type, largest_finite(type)) == largest_finite(type));
  }
}

TEST_CASE("integers wrap, floats saturate on their way to integers") {
  CHECK(wrap_integer(DType::I8, 200) == -56);
  CHECK(wrap_integer(DType::U8, -1) == 255);
  CHECK(wrap_integer(DType::I4, 9) == -7);
  CHECK(wrap_integer(DType::U4, 19) == 3);
  CHECK(wrap_integer(DType::I16, 0x18000) == -32768);
  CHECK(wrap_integer(DType::I32, int64_t{1} << 31) == std::numeric_limits<int32_t>::min());
  CHECK(wrap_integer(DType::U32, -1) == 0xFFFFFFFF);
  CHECK(wrap_integer(DType::U64, -1) == -1);
  CHECK(wrap_integer(DType::Bool, 256) == 1);

  struct Row {
    DType type;
    double lowest, highest;
  };
  const Row rows[] = {{DType::I8, -128, 127},
                      {DType::U8, 0, 255},
                      {DType::I16, -32768, 32767},
                      {DType::I32, -2147483648.0, 2147483647.0},
                      {DType::U32, 0, 4294967295.0},
                      {DType::I4, -8, 7},
                      {DType::U4, 0, 15}};
  for (const Row& row : rows) {
    CAPTURE(name(row.type));
    CHECK(float_to_integer(row.type, 1e30) == static_cast<int64_t>(row.highest));
    CHECK(float_to_integer(row.type, kInf) == static_cast<int64_t>(row.highest));
    CHECK(float_to_integer(row.type, -kInf) == static_cast<int64_t>(row.lowest));
    CHECK(float_to_integer(row.type, row.highest + 0.5) == static_cast<int64_t>(row.highest));
    CHECK(float_to_integer(row.type, row.highest - 0.5) == static_cast<int64_t>(row.highest) - 1);
    CHECK(float_to_integer(row.type, row.lowest - 0.5) == static_cast<int64_t>(row.lowest));
    CHECK(float_to_integer(row.type, kNan) == 0);
    CHECK(float_to_integer(row.type, 3.99) == 3);
    CHECK(float_to_integer(row.type, -3.99) == (row.lowest < 0 ? -3 : 0));
  }
  CHECK(float_to_integer(DType::I64, 1e19) == std::numeric_limits<int64_t>::max());
  CHECK(float_to_integer(DType::I64, -1e19) == std::numeric_limits<int64_t>::min());
  CHECK(float_to_integer(DType::U64, 1e19) == static_cast<int64_t>(10000000000000000000u));
  CHECK(float_to_integer(DType::U64, 1e20) == -1);
  CHECK(float_to_integer(DType::Bool, 0.25) == 1);
  CHECK(float_to_integer(DType::Bool, kNan) == 1);
  CHECK(float_to_integer(DType::Bool, -0.0) == 0);
  CHECK(integer_to_float(DType::I64, 16777217) == 16777216);
  CHECK(integer_to_float(DType::I64, 16777219) == 16777220);
  CHECK(integer_to_float(DType::U64, -1) == 18446744073709551616.0);
  CHECK(integer_to_float(DType::I64, -1) == -1);
}

// What 300.7, -5.5 and so on become in each type, by hand.
TEST_CASE("conversion table") {
  const auto from_float = [](double value, DType to) { return convert({DType::F32, 0, value}, to); };
  const auto from_int = [](DType type, int64_t value, DType to) { return convert({type, value, 0}, to); };
  struct Row {
    DType to;
    double f300, fm5;       // 300.7, -5.5
    double i70000, im3;     // i32 70000, i32 -3
    double u32max, i64big;  // u32 2^32 - 1, i64 2^33 + 5
    double truth;           // bool true
  };
  const double f300 = static_cast<float>(300.7);
  const Row rows[] = {
      {DType::F32, f300, -5.5, 70000, -3, 4294967296.0, 8589934592.0, 1},
      {DType::F16, 300.75, -5.5, kInf, -3, kInf, kInf, 1},
      {DType::BF16, 300, -5.5, 70144, -3, 4294967296.0, 8589934592.0, 1},
      {DType::F8E4M3, 288, -5.5, 448, -3, 448, 448, 1},
      {DType::F8E5M2, 320, -6, 57344, -3, 57344, 57344, 1},
      {DType::I8, 127, -5, 112, -3, -1, 5, 1},
      {DType::U8, 255, 0, 112, 253, 255, 5, 1},
      {DType::I16, 300, -5, 4464, -3, -1, 5, 1},
      {DType::I32, 300, -5, 70000, -3, -1, 5, 1},
      {DType::U32, 300, 0, 70000, 4294967293.0, 4294967295.0, 5, 1},
      {DType::I64, 300, -5, 70000, -3, 4294967295.0, 8589934597.0, 1},
      {DType::U64, 300, 0, 70000, -3, 4294967295.0, 8589934597.0, 1},  // -3: the bit pattern of 2^64 - 3
      {DType::I4, 7, -5, 0, -3, -1, 5, 1},
      {DType::U4, 15, 0, 0, 13, 15, 5, 1},
      {DType::Bool, 1, 1, 1, 1, 1, 1, 1},
  };
  static_assert(std::size(rows) == kDTypeCount);
  for (const Row& row : rows) {
    CAPTURE(name(row.to));
    const auto check = [&](const Scalar& actual, double expected) {
      CHECK(actual.type == compute_type(row.to));
      CHECK((is_float(row.to) ? actual.f : static_cast<double>(actual.i)) == expected);
    };
    check(from_float(f300, row.to), row.f300);
    check(from_float(-5.5, row.to), row.fm5);
    check(from_int(DType::I32, 70000, row.to), row.i70000);
    check(from_int(DType::I32, -3, row.to), row.im3);
    check(from_int(DType::U32, 0xFFFFFFFF, row.to), row.u32max);
    check(from_int(DType::I64, (int64_t{1} << 33) + 5, row.to), row.i64big);
    check(from_int(DType::Bool, 1, row.to), row.truth);
    check(from_int(DType::Bool, 0, row.to), 0);
  }
}

TEST_CASE("elements in memory, the other nibble untouched") {
  for (int t = 0; t < kDTypeCount; ++t) {
    auto type = static_cast<DType>(t);
    CAPTURE(name(type));
    std::vector<unsigned char> memory(64, 0xAB);
    std::vector<unsigned char> before = memory;
    Scalar one = convert({DType::I32, 1, 0}, type);
    store_element(type, memory.data(), 3, one);
    Scalar back = load_element(type, memory.data(), 3);
    CHECK(back.type == one.type);
    CHECK(back.f == one.f);
    CHECK(back.i == one.i);
    int changed = 0;
    for (size_t i = 0; i < memory.size(); ++i) changed += memory[i] != before[i];
    CHECK(changed <= (bits(type) + 7) / 8);
    CHECK(load_element(type, memory.data(), 2).i == load_element(type, before.data(), 2).i);
  }
  unsigned char byte = 0;
  store_element(DType::I4, &byte, 0, {DType::I32, -1, 0});
  CHECK(byte == 0x0F);
  store_element(DType::I4, &byte, 1, {DType::I32, 5, 0});
  CHECK(byte == 0x5F);
  CHECK(load_element(DType::I4, &byte, 0).i == -1);
  CHECK(load_element(DType::U4, &byte, 0).i == 15);
}

TEST_CASE("integer division, remainder, shifts") {
  const int64_t least32 = std::numeric_limits<int32_t>::min(), least64 = std::numeric_limits<int64_t>::min();
  CHECK(integer_op(Op::kDiv, DType::I32, -7, 2) == -3);
  CHECK(integer_op(Op::kMod, DType::I32, -7, 2) == -1);
  CHECK(integer_op(Op::kMod, DType::I32, 7, -2) == 1);
  CHECK(integer_op(Op::kDiv, DType::I32, 7, 0) == 0);
  CHECK(integer_op(Op::kMod, DType::I32, 7, 0) == 0);
  CHECK(integer_op(Op::kDiv, DType::I32, least32, -1) == least32);
  CHECK(integer_op(Op::kMod, DType::I32, least32, -1) == 0);
  CHECK(integer_op(Op::kDiv, DType::I64, least64, -1) == least64);
  CHECK(integer_op(Op::kDiv, DType::U64, -1, 2) == std::numeric_limits<int64_t>::max());
  CHECK(integer_op(Op::kMod, DType::U64, -1, 10) == 5);
  for (int64_t a = -20; a <= 20; ++a)
    for (int64_t b = -7; b <= 7; ++b) {
      int64_t expected = b == 0 ? 0 : static_cast<int64_t>(std::ceil(static_cast<double>(a) / static_cast<double>(b)));
      CHECK(integer_op(Op::kCeilDiv, DType::I64, a, b) == expected);
    }
  CHECK(integer_op(Op::kCeilDiv, DType::U64, -1, 2) == least64);
  CHECK(integer_op(Op::kShl, DType::I32, 1, 31) == least32);
  CHECK(integer_op(Op::kShl, DType::I32, 1, 32) == 0);
  CHECK(integer_op(Op::kShl, DType::I32, 1, -1) == 0);
  CHECK(integer_op(Op::kShr, DType::I32, -8, 1) == -4);
  CHECK(integer_op(Op::kShr, DType::I32, -8, 99) == -1);
  CHECK(integer_op(Op::kShr, DType::I32, 8, 99) == 0);
  CHECK(integer_op(Op::kShr, DType::U32, 0xFFFFFFFF, 31) == 1);
  CHECK(integer_op(Op::kShr, DType::U64, -1, 63) == 1);
  CHECK(integer_op(Op::kShr, DType::U64, -1, 64) == 0);
  CHECK(integer_op(Op::kMul, DType::I32, 1 << 20, 1 << 12) == 0);
  CHECK(integer_op(Op::kAdd, DType::U32, 0xFFFFFFFF, 1) == 0);
  CHECK(integer_op(Op::kNeg, DType::U32, 1) == 0xFFFFFFFF);
  CHECK(integer_op(Op::kAbs, DType::I32, least32) == least32);
  CHECK(integer_op(Op::kPopcount, DType::I32, -1) == 32);
  CHECK(integer_op(Op::kPopcount, DType::I64, -1) == 64);
  CHECK(integer_op(Op::kLt, DType::U64, 1, -1) == 1);
  CHECK(integer_op(Op::kMax, DType::U64, 1, -1) == -1);
  CHECK(integer_op(Op::kClamp, DType::I32, 9, 0, 5) == 5);
  CHECK(integer_op(Op::kBucket, DType::I64, 5) == 8);
  CHECK(integer_op(Op::kBucket, DType::I64, 8) == 8);
  CHECK(integer_op(Op::kBucket, DType::I64, 0) == 1);
}

TEST_CASE("f32 operations round once; NaN loses against a number") {
  CHECK(float_op(Op::kAdd, 16777216, 1) == 16777216);
  CHECK(float_op(Op::kDiv, 1, 3) == static_cast<double>(1.0f / 3.0f));
  CHECK(float_op(Op::kFma, 1 + 0x1p-12, 1 + 0x1p-12, -1) == 0x1p-11 + 0x1p-24);
  CHECK(float_op(Op::kMax, kNan, 2) == 2);
  CHECK(float_op(Op::kMin, 2, kNan) == 2);
  CHECK(std::isnan(float_op(Op::kMin, kNan, kNan)));
  CHECK(float_op(Op::kClamp, kNan, 1, 3) == 1);
  CHECK(float_op(Op::kRound, 2.5) == 2);
  CHECK(float_op(Op::kRound, 3.5) == 4);
  CHECK(float_op(Op::kTrunc, -2.7) == -2);
  CHECK(float_op(Op::kMul, 1e30, 1e30) == kInf);
  CHECK(float_op(Op::kMul, 1e-30, 1e-30) == 0);
  CHECK(float_op(Op::kMul, 0x1p-100, 0x1p-49) == 0x1p-149);
  CHECK_FALSE(float_compare(Op::kEq, kNan, kNan));
  CHECK(float_compare(Op::kNe, kNan, kNan));
  CHECK_FALSE(float_compare(Op::kGe, kNan, 0));
}

}  // namespace
}  // namespace kachel::ir
