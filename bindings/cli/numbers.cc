// Elements are drawn as doubles and rounded to nearest even into the target's encoding, saturating at its largest
// finite value, so that one generic encoder serves all four narrow float types.
#include "numbers.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>

namespace kachel::cli {
namespace {

enum DTypeCode : uint8_t { kInt = 0, kUint = 1, kFloat = 2, kBfloat = 4, kBool = 6, kF8E4M3 = 10, kF8E5M2 = 12 };

bool is_integer(kachel_dtype dtype) {
  return dtype.code == kInt || dtype.code == kUint;
}

// Binary interchange layout with `mantissa_bits` stored bits; `largest` is the code of the largest finite value.
struct NarrowFloat {
  int exponent_bits, mantissa_bits;
  uint32_t largest;
};

NarrowFloat narrow_float(kachel_dtype dtype) {
  switch (dtype.code) {
    case kBfloat:
      return {8, 7, 0x7f7f};
    case kF8E4M3:
      return {4, 3, 0x7e};
    case kF8E5M2:
      return {5, 2, 0x7b};
    default:
      return {5, 10, 0x7bff};
  }
}

// SplitMix64: tiny, and the same everywhere, unlike the standard library's distributions.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t bits() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  double unit() { return static_cast<double>(bits() >> 11) * 0x1p-53; }  // [0, 1)

 private:
  uint64_t state_;
};

template <class T>
void store(T value, int64_t index, std::byte* out) {
  std::memcpy(out + static_cast<size_t>(index) * sizeof(T), &value, sizeof(T));
}

void store_bits(uint64_t value, int bits, int64_t index, std::byte* out) {
  switch (bits) {
    case 4: {
      std::byte& pair = out[index / 2];
      unsigned shift = index % 2 == 0 ? 0 : 4;
      pair = (pair & static_cast<std::byte>(0xf0 >> shift)) | static_cast<std::byte>((value & 15) << shift);
      return;
    }
    case 8:
      return store(static_cast<uint8_t>(value), index, out);
    case 16:
      return store(static_cast<uint16_t>(value), index, out);
    case 32:
      return store(static_cast<uint32_t>(value), index, out);
    default:
      return store(value, index, out);
  }
}

template <class T>
bool parse_all(const std::string& text, T* out) {
  const char* end = text.data() + text.size();
  auto [stop, error] = std::from_chars(text.data(), end, *out);
  return error == std::errc() && stop == end;
}

}  // namespace

Outcome<Scalar> parse_scalar(const char* option, const Assignment& assignment, const std::string& type) {
  const std::string& text = assignment.value;
  Scalar scalar;
  bool good = false;
  if (type == "bool") {
    good = text == "true" || text == "false" || text == "1" || text == "0";
    scalar.i = text == "true" || text == "1";
  } else if (type == "f32") {
    scalar.is_float = true;
    good = parse_all(text, &scalar.f);
  } else if (type == "u64") {
    uint64_t value = 0;
    good = parse_all(text, &value);
    scalar.i = static_cast<int64_t>(value);
  } else {
    good = parse_all(text, &scalar.i);
    if (type == "i32") good = good && scalar.i >= INT32_MIN && scalar.i <= INT32_MAX;
    if (type == "u32") good = good && scalar.i >= 0 && scalar.i <= UINT32_MAX;
  }
  if (good) return scalar;
  const char* wanted = type == "bool" ? "true or false" : type == "f32" ? "a number" : "an integer";
  return usage(fmt::format("{}: `{}={}`: `{}` is {}, so it wants {}{}", option, assignment.name, text, assignment.name,
                           type, wanted, type == "bool" || type == "f32" ? "" : " in its range"));
}

Outcome<ValueRange> parse_range(const Assignment& assignment) {
  size_t colon = assignment.value.find(':');
  ValueRange range;
  if (colon == std::string::npos || !parse_all(assignment.value.substr(0, colon), &range.low) ||
      !parse_all(assignment.value.substr(colon + 1), &range.high) || !std::isfinite(range.low) ||
      !std::isfinite(range.high))
    return usage(fmt::format("--range: `{}={}` is not NAME=LOW:HIGH; write for example {}=0:99", assignment.name,
                             assignment.value, assignment.name));
  if (range.low > range.high)
    return usage(fmt::format("--range: {} starts at {}, above its end {}", assignment.name, range.low, range.high));
  return range;
}

ValueRange default_range(kachel_dtype dtype) {
  if (dtype.code == kBool) return {0, 1};
  if (!is_integer(dtype)) return {-1, 1};
  if (dtype.bits > 8) return {0, 15};
  double half = static_cast<double>(1 << (dtype.bits - 1));
  return dtype.code == kInt ? ValueRange{-half, half - 1} : ValueRange{0, 2 * half - 1};
}

void fill_random(kachel_dtype dtype, ValueRange range, uint64_t seed, int64_t elements, std::byte* out) {
  Random random(seed);
  if (dtype.code == kBool || is_integer(dtype)) {
    double low = std::ceil(range.low), count = std::floor(range.high) - low + 1;
    for (int64_t i = 0; i < elements; ++i) {
      int64_t value = static_cast<int64_t>(low + std::floor(random.unit() * count));
      if (dtype.code == kBool) value = value != 0;
      store_bits(static_cast<uint64_t>(value), dtype.bits, i, out);
    }
    return;
  }
  for (int64_t i = 0; i < elements; ++i) {
    double value = range.low + random.unit() * (range.high - range.low);
    if (dtype.bits == 32)
      store(static_cast<float>(value), i, out);
    else
      store_bits(encode_narrow(dtype, value), dtype.bits, i, out);
  }
}

uint32_t encode_narrow(kachel_dtype dtype, double value) {
  NarrowFloat format = narrow_float(dtype);
  uint32_t sign = std::signbit(value) ? 1u << (format.exponent_bits + format.mantissa_bits) : 0;
  double magnitude = std::fabs(value);
  if (magnitude == 0) return sign;
  int bias = (1 << (format.exponent_bits - 1)) - 1;
  // In units of the last place; a normal number's hidden bit carries into the exponent field by itself.
  int exponent = std::max(std::ilogb(magnitude), 1 - bias);
  double units = std::nearbyint(std::ldexp(magnitude, format.mantissa_bits - exponent));
  double code = std::ldexp(exponent + bias - 1, format.mantissa_bits) + units;
  return sign | (code > format.largest ? format.largest : static_cast<uint32_t>(code));
}

size_t storage_bytes(kachel_dtype dtype, int64_t elements) {
  return (static_cast<size_t>(elements) * dtype.bits + 7) / 8;
}

}  // namespace kachel::cli
