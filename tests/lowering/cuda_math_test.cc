// The CUDA functions of lowering/emit/cuda_math.inc, compiled for the host, with instructions that err as far as PTX
// lets them.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "ir/numerics.h"
#include "tests/lowering/function_bounds.h"

namespace kachel::lowering {
namespace {

using std::max;

// Which way ex2.approx and rcp.approx err: -1, 0 or 1.
int exp2_errs, rcp_errs;

float flushed(float x) {
  return std::abs(x) < 0x1p-126f ? std::copysign(0.0f, x) : x;
}
float __int_as_float(int x) {
  return std::bit_cast<float>(x);
}
int __float_as_int(float x) {
  return std::bit_cast<int>(x);
}
float __fmaf_rn(float a, float b, float c) {
  return std::fma(a, b, c);
}
// At most 2^-22 of the result.
float kachel_exp2(float x) {
  return flushed(static_cast<float>(std::exp2(static_cast<double>(flushed(x))) * (1 + exp2_errs * 0x1p-22)));
}
// At most 1 ulp.
float kachel_rcp_ftz(float x) {
  const float y = flushed(1.0f / flushed(x));
  if (!std::isfinite(y) || y == 0) return y;
  if (rcp_errs < 0 && (std::bit_cast<uint32_t>(x) & 0x7fffff) == 0x7fffff) return y;
  const float next = rcp_errs == 0 ? y : std::nextafter(y, rcp_errs > 0 ? INFINITY : -INFINITY);
  const double exact = 1 / static_cast<double>(x);
  return std::abs(next - exact) <= ir::ulp_at(ir::DType::F32, exact) ? next : y;
}

#define KACHEL_DEVICE
#define KACHEL_CUDA_MATH(...) __VA_ARGS__
#include "lowering/emit/cuda_math.inc"

struct Function {
  const char* name;
  float (*ours)(float);
  double (*exact)(double);
  double ulps;
};
const Function kFunctions[] = {{"tanh", kachel_tanh, std::tanh, 4}, {"erf", kachel_erf, std::erf, 4}};

struct Worst {
  double error = 0;
  float at = 0;
  int wrong = 0;
};

void check(const Function& f, float x, Worst& worst) {
  const double want = f.exact(x);
  const float got = f.ours(x);
  if (std::isnan(want) || std::isnan(got)) {
    worst.wrong += !(std::isnan(want) && std::isnan(got));
    return;
  }
  worst.wrong += std::signbit(want) != std::signbit(got) || std::abs(got) > 1;
  const double error = std::abs(got - want) / ir::ulp_at(ir::DType::F32, want);
  if (error > worst.error) worst = {error, x, worst.wrong};
}

TEST_CASE("functions of CUDA keep their bounds whatever the approximate instructions return") {
  for (const Function& f : kFunctions) {
    Worst worst;
    for (exp2_errs = -1; exp2_errs <= 1; ++exp2_errs) {
      for (rcp_errs = -1; rcp_errs <= 1; ++rcp_errs) {
        for (uint64_t bits = 0; bits < uint64_t{1} << 32; bits += 9973)
          check(f, std::bit_cast<float>(static_cast<uint32_t>(bits)), worst);
        // every 61st where the results are neither x times a constant nor 1
        for (uint32_t bits = std::bit_cast<uint32_t>(0x1p-6f); bits < std::bit_cast<uint32_t>(16.0f); bits += 61)
          check(f, std::bit_cast<float>(bits), worst);
        for (float special : {0.0f, INFINITY, NAN, 0x1p-149f, 0x1p-126f, 0x1.fffffep127f})
          for (float x : {special, -special}) check(f, x, worst);
      }
    }
    CAPTURE(f.name);
    CAPTURE(worst.at);
    CHECK(worst.wrong == 0);
    CHECK(worst.error <= f.ulps);
    MESSAGE(fmt::format("{}: {:.2f} ulp at {}", f.name, worst.error, worst.at));
  }
}

TEST_CASE("what is raised by 1 keeps its bound whatever the approximate instructions return") {
  const auto all = [](const char* name, auto&& ours, auto&& exact) {
    double worst = 0;
    int wrong = 0;
    const auto check = [&](float x) {
      for (const float k : {1.0f, -0.5f}) {
        const double want = k * exact(static_cast<double>(x));
        const float got = ours(x, k);
        if (std::isnan(want) || std::isnan(got))
          wrong += !(std::isnan(want) && std::isnan(got));
        else
          worst = std::max(worst, std::abs(got - want) / std::abs(k));
      }
    };
    for (exp2_errs = -1; exp2_errs <= 1; ++exp2_errs)
      for (rcp_errs = -1; rcp_errs <= 1; ++rcp_errs) {
        for (uint64_t bits = 0; bits < uint64_t{1} << 32; bits += 19973)
          check(std::bit_cast<float>(static_cast<uint32_t>(bits)));
        for (uint32_t bits = std::bit_cast<uint32_t>(0x1p-6f); bits < std::bit_cast<uint32_t>(16.0f); bits += 121)
          for (const float x : {std::bit_cast<float>(bits), -std::bit_cast<float>(bits)}) check(x);
        for (const float x : {0.0f, -0.0f, INFINITY, -INFINITY, NAN}) check(x);
      }
    CAPTURE(name);
    CHECK(wrong == 0);
    CHECK(worst <= 0x1p-21);
    MESSAGE(fmt::format("1 + {}: 2^{:.2f}", name, std::log2(worst)));
  };
  all("tanh", kachel_raised_tanh, [](double x) { return 1 + std::tanh(x); });
  all("erf", kachel_raised_erf, [](double x) { return std::erfc(-x); });
}

// Every exponent of either operand, with mantissas drawn at random and those that make ties and near misses. rcp.approx
// is taken not to return the lower neighbour where all bits of the mantissa are ones.
TEST_CASE("division is rounded to nearest, and nearly so far from 1") {
  uint64_t state = 1;
  auto draw = [&] {
    return static_cast<uint32_t>((state = state * 6364136223846793005u + 1442695040888963407u) >> 33);
  };
  std::vector<float> a, b;
  const auto add = [&](float of, float by) { a.push_back(of), b.push_back(by); };
  for (uint32_t exponent_a = 0; exponent_a < 256; ++exponent_a)
    for (uint32_t exponent_b = 0; exponent_b < 256; ++exponent_b)
      for (int i = 0; i < 16; ++i) {
        const uint32_t all = i % 4 == 0 ? 0x7fffffu : i % 4 == 1 ? draw() & 15u : draw() & 0x7fffffu;
        const uint32_t signs = draw();
        add(std::bit_cast<float>(signs << 31 | exponent_a << 23 | (draw() & 0x7fffffu)),
            std::bit_cast<float>((signs & 2u) << 30 | exponent_b << 23 | all));
      }
  for (int i = 0; i < 2000000; ++i)
    add(static_cast<float>(draw() % 16777216), static_cast<float>(1 + draw() % 16777216));
  const float specials[] = {0.0f, INFINITY, NAN, 1.0f, 0x1p-149f, 0x1p-126f, 0x1.8p127f, 0x1.fffffep127f};
  for (float of : specials)
    for (float by : specials)
      for (float sign : {1.0f, -1.0f}) add(of * sign, by), add(of, by * sign);
  hard_quotients(1 << 23, 1 << 24, 279, &a, &b);
  for (rcp_errs = -1; rcp_errs <= 1; ++rcp_errs) {
    std::vector<float> y;
    for (size_t i = 0; i < a.size(); ++i) y.push_back(kachel_divide(a[i], b[i]));
    check_quotients(a, b, y);
  }
}

// By the error of what is rounded last, no others can be wrong.
TEST_CASE("all quotients that lie near to the middle between two floats" * doctest::skip()) {
  constexpr uint32_t kStep = 1 << 16;
  size_t tried = 0;
  for (uint32_t first = 1 << 23; first < 1 << 24; first += kStep) {
    std::vector<float> a, b;
    hard_quotients(first, first + kStep, 1, &a, &b);
    tried += a.size();
    for (rcp_errs = -1; rcp_errs <= 1; ++rcp_errs) {
      std::vector<float> y;
      for (size_t i = 0; i < a.size(); ++i) y.push_back(kachel_divide(a[i], b[i]));
      check_quotients(a, b, y);
    }
  }
  MESSAGE(tried << " quotients");
}

}  // namespace
}  // namespace kachel::lowering
