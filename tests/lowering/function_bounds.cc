#include "tests/lowering/function_bounds.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <cstdint>

#include "ir/numerics.h"

namespace kachel::lowering {

const std::vector<FunctionBound>& function_bounds() {
  static const std::vector<FunctionBound> kAll = {
      {"exp", std::exp, 4, INFINITY, true}, {"exp2", std::exp2, 4, INFINITY, true}, {"log", std::log, 2, INFINITY},
      {"log2", std::log2, 2, INFINITY},     {"tanh", std::tanh, 4, INFINITY},       {"erf", std::erf, 4, INFINITY},
      {"sin", std::sin, 4, 0x1p20},         {"cos", std::cos, 4, 0x1p20},
  };
  return kAll;
}

std::vector<float> floats_to_try(int step, int block) {
  std::vector<float> x;
  for (uint64_t bits = 0; bits < uint64_t{1} << 32; bits += static_cast<uint64_t>(step))
    x.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits)));
  for (float special : {0.0f,
                        -0.0f,
                        1.0f,
                        -1.0f,
                        INFINITY,
                        -INFINITY,
                        NAN,
                        0x1p-149f,
                        0x1p-126f,
                        0x1.fffffep127f,
                        -0x1.fffffep127f,
                        88.7228f,
                        88.7229f,
                        -87.3366f,
                        -103.9721f,
                        -103.973f,
                        128.0f,
                        -149.0f,
                        -150.0f,
                        1e5f,
                        0x1p20f,
                        -1e30f,
                        1e30f})
    x.push_back(special);
  while (x.size() % static_cast<size_t>(block)) x.push_back(1.0f + static_cast<float>(x.size()) * 0x1p-23f);
  return x;
}

void check_function(const FunctionBound& function, const std::vector<float>& x, const std::vector<float>& y) {
  int wrong = 0;
  double worst = 0;
  float worst_at = 0, wrong_at = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double want = function.exact(x[i]);
    const int before = wrong;
    const float rounded = static_cast<float>(want);
    if (std::abs(x[i]) > function.limit && std::isfinite(x[i])) {
      wrong += !(std::abs(y[i]) <= 1);
    } else if (std::isnan(want) || std::isnan(y[i])) {
      wrong += !(std::isnan(want) && std::isnan(y[i]));
    } else if (want == 0 && std::signbit(want) != std::signbit(y[i])) {
      wrong += !(function.limit < INFINITY) || y[i] != 0;
    } else if (std::isinf(rounded) || std::isinf(y[i])) {
      // Within a few ulp of the largest float both are right.
      wrong += rounded != y[i] && std::abs(want) < 0x1.ffffe0p127f;
    } else if (y[i] == 0 && std::abs(want) < 0x1p-126 && function.flushes) {
      continue;
    } else if (double error = std::abs(y[i] - want) / ir::ulp_at(ir::DType::F32, want); error > worst) {
      worst = error, worst_at = x[i];
    }
    if (wrong > before) wrong_at = x[i];
  }
  CAPTURE(function.name);
  CAPTURE(worst_at);
  CAPTURE(wrong_at);
  CHECK(wrong == 0);
  CHECK(worst <= function.ulps);
  MESSAGE(fmt::format("{}: {:.2f} ulp at {}", function.name, worst, worst_at));
}

bool is_quotient(float y, float a, float b) {
  const float want = a / b;
  if (std::isnan(want) || std::isnan(y)) return std::isnan(want) && std::isnan(y);
  if (std::bit_cast<uint32_t>(want) == std::bit_cast<uint32_t>(y)) return true;
  if (std::signbit(want) != std::signbit(y)) return false;
  if (std::abs(want) < 0x1p-124f) return std::abs(double{a} / double{b} - double{y}) <= 0x1p-147;
  const auto far = [](float value) { return std::abs(value) < 0x1p-100f || std::abs(value) > 0x1p126f; };
  return (far(a) || far(b) || far(want)) &&
         std::abs(int64_t{std::bit_cast<int32_t>(want)} - std::bit_cast<int32_t>(y)) <= 1;
}

void check_quotients(const std::vector<float>& a, const std::vector<float>& b, const std::vector<float>& y) {
  size_t wrong = 0, at = 0;
  for (size_t i = 0; i < a.size(); ++i)
    if (!is_quotient(y[i], a[i], b[i])) ++wrong, at = i;
  INFO("the last: " << a[at] << " / " << b[at] << " is not " << y[at]);
  CHECK(wrong == 0);
}

// 2^power a = m b + n with an odd m and a small n, of which the powers of two in b are a factor.
void hard_quotients(uint32_t first, uint32_t last, uint32_t step, std::vector<float>* a, std::vector<float>* b) {
  for (uint32_t divisor = first; divisor < last; divisor += step) {
    const int zeros = std::countr_zero(divisor);
    const int64_t odd = divisor >> zeros;
    for (const int power : {24, 25})
      for (int64_t n = -16; n <= 16; ++n) {
        if (n == 0 || n % (int64_t{1} << zeros)) continue;
        const int64_t rest = n / (int64_t{1} << zeros);
        int64_t dividend = (rest % odd + odd) % odd;
        for (int i = 0; i < power - zeros; ++i) dividend = (dividend % 2 ? dividend + odd : dividend) / 2;
        for (; dividend < 1 << 24; dividend += odd) {
          const int64_t middle = ((dividend << power) - n) / divisor;  // m, of 25 bits
          if (dividend < 1 << 23 || middle % 2 == 0 || middle >> 24 != 1) continue;
          a->push_back(static_cast<float>(dividend));
          b->push_back(std::ldexp(static_cast<float>(divisor), static_cast<int>(divisor % 64) - 32));
        }
      }
  }
}

}  // namespace kachel::lowering
