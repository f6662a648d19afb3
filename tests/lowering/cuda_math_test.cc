// The CUDA functions of lowering/emit/cuda_math.inc, compiled for the host, with instructions that err as far as PTX
// lets them.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <bit>
#include <cmath>

#include "ir/numerics.h"

namespace kachel::lowering {
namespace {

// Which way ex2.approx and rcp.approx err: -1, 0 or 1.
int exp2_errs, rcp_errs;

float flushed(float x) {
  return std::abs(x) < 0x1p-126f ? std::copysign(0.0f, x) : x;
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
  return rcp_errs == 0 ? y : std::nextafter(y, rcp_errs > 0 ? INFINITY : -INFINITY);
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

// Every exponent of either operand, with mantissas drawn at random and those that make ties and near misses.
TEST_CASE("division is rounded to nearest, and within 1 ulp of and in what is below 2^-100 or above 2^126") {
  uint64_t state = 1;
  auto draw = [&] {
    return static_cast<uint32_t>((state = state * 6364136223846793005u + 1442695040888963407u) >> 33);
  };
  int64_t wrong = 0, far_wrong = 0;
  float at_a = 0, at_b = 0;
  auto compare = [&](float a, float b) {
    const float want = a / b, got = kachel_divide(a, b);
    if (std::isnan(want) || std::isnan(got)) {
      wrong += std::isnan(want) != std::isnan(got);
      return;
    }
    if (std::bit_cast<uint32_t>(want) == std::bit_cast<uint32_t>(got)) return;
    auto far = [](float x) { return std::abs(x) < 0x1p-100f || std::abs(x) > 0x1p126f; };
    if (far(a) || far(b) || far(want)) {
      const bool near = std::abs(int64_t{std::bit_cast<int32_t>(want)} - std::bit_cast<int32_t>(got)) <= 1;
      far_wrong += !near && std::signbit(want) == std::signbit(got);
      return;
    }
    at_a = a, at_b = b;
    ++wrong;
  };
  for (rcp_errs = -1; rcp_errs <= 1; ++rcp_errs) {
    for (uint32_t exponent_a = 0; exponent_a < 256; ++exponent_a)
      for (uint32_t exponent_b = 0; exponent_b < 256; ++exponent_b)
        for (int i = 0; i < 16; ++i) {
          const uint32_t all = i % 4 == 0 ? 0x7fffffu : i % 4 == 1 ? draw() & 15u : draw() & 0x7fffffu;
          const uint32_t signs = draw();
          compare(std::bit_cast<float>(signs << 31 | exponent_a << 23 | (draw() & 0x7fffffu)),
                  std::bit_cast<float>((signs & 2u) << 30 | exponent_b << 23 | all));
        }
    for (int i = 0; i < 2000000; ++i)
      compare(static_cast<float>(draw() % 16777216), static_cast<float>(1 + draw() % 16777216));
    const float specials[] = {0.0f, INFINITY, NAN, 1.0f, 0x1p-149f, 0x1p-126f, 0x1.fffffep127f};
    for (float a : specials)
      for (float b : specials)
        for (float sign : {1.0f, -1.0f}) compare(a * sign, b), compare(a, b * sign);
  }
  CAPTURE(at_a);
  CAPTURE(at_b);
  CHECK(wrong == 0);
  CHECK(far_wrong == 0);
}

}  // namespace
}  // namespace kachel::lowering
