// The command's own encoders: what it puts into tensors must be what the types say.
#include "numbers.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>
#include <vector>

using namespace kachel::cli;

namespace {

constexpr kachel_dtype kF16{2, 16, 1}, kBf16{4, 16, 1}, kF8E4M3{10, 8, 1}, kF8E5M2{12, 8, 1};
constexpr kachel_dtype kI4{0, 4, 1}, kU4{1, 4, 1}, kI8{0, 8, 1}, kI32{0, 32, 1}, kU64{1, 64, 1}, kBool{6, 8, 1};
constexpr kachel_dtype kF32{2, 32, 1};

// The value of a finite code, straight from the definition of the format.
double decode(int exponent_bits, int mantissa_bits, uint32_t code) {
  uint32_t mantissa = code & ((1u << mantissa_bits) - 1);
  int exponent = static_cast<int>((code >> mantissa_bits) & ((1u << exponent_bits) - 1));
  double sign = (code >> (mantissa_bits + exponent_bits)) != 0 ? -1 : 1;
  int bias = (1 << (exponent_bits - 1)) - 1;
  double significand = mantissa + (exponent > 0 ? std::ldexp(1, mantissa_bits) : 0);
  return sign * std::ldexp(significand, std::max(exponent, 1) - bias - mantissa_bits);
}

struct Format {
  kachel_dtype dtype;
  int exponent_bits, mantissa_bits;
  uint32_t largest;
};
constexpr Format kFormats[] = {
    {kF16, 5, 10, 0x7bff}, {kBf16, 8, 7, 0x7f7f}, {kF8E4M3, 4, 3, 0x7e}, {kF8E5M2, 5, 2, 0x7b}};

std::vector<std::byte> random_bytes(kachel_dtype dtype, ValueRange range, int64_t elements, uint64_t seed = 1) {
  std::vector<std::byte> bytes(storage_bytes(dtype, elements));
  fill_random(dtype, range, seed, elements, bytes.data());
  return bytes;
}

}  // namespace

TEST_CASE("every finite code of a narrow float type encodes to itself") {
  for (const Format& f : kFormats)
    for (uint32_t code = 0; code <= f.largest; ++code) {
      double value = decode(f.exponent_bits, f.mantissa_bits, code);
      REQUIRE(encode_narrow(f.dtype, value) == code);
      REQUIRE(encode_narrow(f.dtype, -value) == (code | 1u << (f.exponent_bits + f.mantissa_bits)));
    }
}

TEST_CASE("between two codes the nearer one is taken, and of two equally near ones the even") {
  for (const Format& f : kFormats)
    for (uint32_t code = 0; code < f.largest; ++code) {
      double low = decode(f.exponent_bits, f.mantissa_bits, code);
      double high = decode(f.exponent_bits, f.mantissa_bits, code + 1);
      REQUIRE(encode_narrow(f.dtype, low + (high - low) * 0.25) == code);
      REQUIRE(encode_narrow(f.dtype, low + (high - low) * 0.5) == code + code % 2);
      REQUIRE(encode_narrow(f.dtype, low + (high - low) * 0.75) == code + 1);
    }
}

TEST_CASE("beyond the largest finite value is the largest finite value") {
  for (const Format& f : kFormats) {
    CHECK(encode_narrow(f.dtype, 1e300) == f.largest);
    CHECK(encode_narrow(f.dtype, -1e300) == (f.largest | 1u << (f.exponent_bits + f.mantissa_bits)));
  }
}

TEST_CASE("random elements fill their range and stay inside it") {
  auto bytes = random_bytes(kI8, {-3, 4}, 1000);
  std::set<int> seen;
  for (std::byte b : bytes) seen.insert(static_cast<int8_t>(b));
  CHECK(seen == std::set<int>{-3, -2, -1, 0, 1, 2, 3, 4});

  auto bools = random_bytes(kBool, default_range(kBool), 200);
  CHECK(std::set<int>{0, 1} == [&] {
    std::set<int> values;
    for (std::byte b : bools) values.insert(static_cast<int>(b));
    return values;
  }());

  auto words = random_bytes(kU64, {5, 6}, 100);
  for (size_t i = 0; i < words.size(); i += 8) {
    CHECK((words[i] == std::byte{5} || words[i] == std::byte{6}));
    for (size_t k = 1; k < 8; ++k) CHECK(words[i + k] == std::byte{0});
  }

  auto floats = random_bytes(kF32, default_range(kF32), 1000);
  float low = 1, high = -1;
  for (size_t i = 0; i < floats.size(); i += 4) {
    float value;
    std::memcpy(&value, &floats[i], 4);
    low = std::min(low, value);
    high = std::max(high, value);
  }
  CHECK(low >= -1);
  CHECK(low < -0.9);
  CHECK(high <= 1);
  CHECK(high > 0.9);
}

TEST_CASE("4-bit elements are packed, low nibble first, and all their values occur") {
  for (kachel_dtype dtype : {kI4, kU4}) {
    auto bytes = random_bytes(dtype, default_range(dtype), 2001);
    CHECK(bytes.size() == 1001);
    std::set<int> low, high;
    for (size_t i = 0; i + 1 < bytes.size(); ++i) {
      low.insert(static_cast<int>(bytes[i] & std::byte{15}));
      high.insert(static_cast<int>(bytes[i] >> 4));
    }
    CHECK(low.size() == 16);
    CHECK(high.size() == 16);
    CHECK((bytes.back() >> 4) == std::byte{0});  // 2001 is odd: nobody's nibble
  }
  auto minus_one = random_bytes(kI4, {-1, -1}, 2);
  CHECK(minus_one[0] == std::byte{0xff});
}

TEST_CASE("the seed decides the elements") {
  CHECK(random_bytes(kI32, {0, 1e6}, 64, 1) == random_bytes(kI32, {0, 1e6}, 64, 1));
  CHECK(random_bytes(kI32, {0, 1e6}, 64, 1) != random_bytes(kI32, {0, 1e6}, 64, 2));
}

TEST_CASE("scalars of the command line are read as their type and nothing else") {
  auto value = [](const char* type, const char* text) { return parse_scalar("--scalar", {"x", text}, type); };
  CHECK((*value("i32", "-7")).i == -7);
  CHECK((*value("f32", "0.5")).f == 0.5);
  CHECK((*value("f32", "1e-3")).f == 1e-3);
  CHECK((*value("bool", "true")).i == 1);
  CHECK((*value("bool", "0")).i == 0);
  CHECK(static_cast<uint64_t>((*value("u64", "18446744073709551615")).i) == UINT64_MAX);
  for (auto [type, text] : {std::pair("i32", "2147483648"),
                            {"i32", "1.5"},
                            {"i32", ""},
                            {"u32", "-1"},
                            {"u64", "-1"},
                            {"i64", "9223372036854775808"},
                            {"f32", "1x"},
                            {"bool", "yes"},
                            {"bool", "2"}})
    CHECK_FALSE(value(type, text).ok());
  CHECK(value("i32", "x").failure().exit == Exit::kUsage);
}

TEST_CASE("ranges") {
  auto range = parse_range({"A", "-1.5:2"});
  REQUIRE(range.ok());
  CHECK(range->low == -1.5);
  CHECK(range->high == 2);
  for (const char* text : {"1", "1:", ":1", "a:b", "2:1", "0:inf", "nan:1"}) CHECK_FALSE(parse_range({"A", text}).ok());
}
