// Numbers of the command line, and random elements in the encoding of each tensor type.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

#include "kachel.h"
#include "options.h"

namespace kachel::cli {

struct Scalar {
  bool is_float = false;
  int64_t i = 0;  // integers; bools as 0 and 1
  double f = 0;
};
// `type` is the name of a scalar type: "f32", "i32", "bool", ... `option` is named in the error.
Outcome<Scalar> parse_scalar(const char* option, const Assignment& assignment, const std::string& type);

// Both ends included.
struct ValueRange {
  double low = 0, high = 0;
};
Outcome<ValueRange> parse_range(const Assignment& assignment);

// What elements of this type are drawn from if nobody says otherwise: floats from [-1, 1], integers of up to 8 bits
// from all their values, wider ones from 0 to 15, which as indices stay inside small tensors.
ValueRange default_range(kachel_dtype dtype);

// Writes `elements` elements, packed two a byte for 4-bit types. The same seed gives the same bytes everywhere.
void fill_random(kachel_dtype dtype, ValueRange range, uint64_t seed, int64_t elements, std::byte* out);

// The code of `value` in an 8-bit or 16-bit float type, rounded to nearest even, saturated. REQUIRES: not NaN.
uint32_t encode_narrow(kachel_dtype dtype, double value);

size_t storage_bytes(kachel_dtype dtype, int64_t elements);

}  // namespace kachel::cli
