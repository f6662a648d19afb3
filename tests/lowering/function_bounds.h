// What ir/GRAMMAR.md promises of functions of f32, for any device: bounds, and numbers of all magnitudes to try.
#pragma once
#include <cstdint>
#include <vector>

namespace kachel::lowering {

struct FunctionBound {
  const char* name;
  double (*exact)(double);
  double ulps, limit;    // beyond +-limit only the range [-1, 1] is promised; finite: nor the sign of 0
  bool flushes = false;  // results below 2^-126 may be 0
};
const std::vector<FunctionBound>& function_bounds();

// One in `step` of all floats, and those at which functions change; a multiple of `block` of them.
std::vector<float> floats_to_try(int step, int block);
// With doctest's checks.
void check_function(const FunctionBound& function, const std::vector<float>& x, const std::vector<float>& y);

// Whether y may be the quotient.
bool is_quotient(float y, float a, float b);
void check_quotients(const std::vector<float>& a, const std::vector<float>& b, const std::vector<float>& y);
// Quotients that lie within 2^-19 ulp of the middle between two floats, which are the hard ones, of every `step`th
// mantissa of b in [first, last), which are within [2^23, 2^24).
void hard_quotients(uint32_t first, uint32_t last, uint32_t step, std::vector<float>* a, std::vector<float>* b);

}  // namespace kachel::lowering
