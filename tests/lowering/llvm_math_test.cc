// The CPU's functions of f32 against double precision.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "lowering/lower.h"
#include "tests/lowering/cpu_device.h"
#include "tests/lowering/function_bounds.h"
#include "tests/lowering/mapped_kernel.h"

namespace kachel::lowering {
namespace {

constexpr int64_t kBlock = 1024;

std::vector<float> run(runtime::Device& cpu, const std::string& value, const std::vector<float>& x) {
  Target target;
  target.kind = Target::Kind::kCpu;
  target.shared_limit = cpu.properties().shared_bytes_per_block;
  target.vector_bits = 512;
  auto lowered = lower(mapped_kernel(value, kBlock), target, ~uint64_t{0});
  REQUIRE(lowered.ok());
  auto compiled = cpu.compiler().compile({lowered->text, lowered->entry, cpu.properties().architecture, 0});
  REQUIRE_MESSAGE(compiled.ok(), compiled.status().log());
  auto loaded = cpu.load(compiled->binary);
  REQUIRE(loaded.ok());
  auto kernel = (*loaded)->function(lowered->entry, static_cast<uint32_t>(lowered->shared_bytes));
  REQUIRE(kernel.ok());
  std::vector<float> y(x.size());
  const auto blocks = static_cast<int64_t>(x.size()) / kBlock;
  const std::vector<int64_t> params = mapped_params(lowered->slots, x, x, y, kBlock);
  runtime::LaunchDims dims{static_cast<uint32_t>(blocks), 1, static_cast<uint32_t>(lowered->shared_bytes)};
  REQUIRE((*kernel)->launch(dims, params.data(), params.size() * 8, nullptr).ok());
  return y;
}

TEST_CASE("functions keep their bounds over all magnitudes") {
  const auto cpu = compiling_cpu();
  if (!cpu) return;
  const std::vector<float> x = floats_to_try(811, kBlock);
  for (const FunctionBound& function : function_bounds())
    check_function(function, x, run(*cpu, fmt::format("{}(x[i])", function.name), x));
}

// Blocks of negative numbers of all magnitudes and one positive one, their largest.
TEST_CASE("quotients by what a loop does not change are rounded to nearest, and within 1 ulp far from 1") {
  const auto cpu = compiling_cpu();
  if (!cpu) return;
  uint64_t state = 1;
  auto draw = [&] {
    return static_cast<uint32_t>((state = state * 6364136223846793005u + 1442695040888963407u) >> 33);
  };
  std::vector<float> x, divisors;
  for (uint32_t exponent = 0; exponent < 255; ++exponent)
    for (const uint32_t mantissa : {1 + draw() % 0x7fffff, 0x7fffffu, 1u}) {
      divisors.push_back(std::bit_cast<float>(exponent << 23 | mantissa));
      for (int64_t i = 0; i < kBlock; ++i) x.push_back(std::bit_cast<float>(0x80000000u | draw()));
      x[x.size() - kBlock + draw() % kBlock] = divisors.back();
      for (int64_t i = 0; i < 8; ++i)  // of one magnitude with the divisor
        x[x.size() - kBlock + static_cast<size_t>(draw() % kBlock)] =
            -std::bit_cast<float>(exponent << 23 | (draw() & 0x7fffff));
      if (std::find(x.end() - kBlock, x.end(), divisors.back()) == x.end()) x.back() = divisors.back();
    }
  const std::vector<float> y = run(*cpu, fmt::format("x[i] / max[k < {}](x[k])", kBlock), x);
  std::vector<float> by;
  int64_t corrected = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    by.push_back(divisors[i / kBlock]);
    corrected += !std::isnan(x[i]) && x[i] * (1 / by[i]) != x[i] / by[i];
  }
  check_quotients(x, by, y);
  CHECK(corrected > 1000);  // a plain reciprocal would not do
}

TEST_CASE("extremes prefer a number to NaN, and infinities are numbers") {
  const auto cpu = compiling_cpu();
  if (!cpu) return;
  struct Block {
    float most, one;  // what all elements are but one
  };
  const Block blocks[] = {{NAN, NAN},      {NAN, -INFINITY}, {NAN, INFINITY}, {-INFINITY, NAN},
                          {INFINITY, NAN}, {NAN, 3},         {2, NAN},        {-INFINITY, -INFINITY}};
  for (size_t place : {size_t{0}, size_t{17}, size_t{kBlock - 1}}) {
    std::vector<float> x;
    for (const Block& block : blocks) {
      x.resize(x.size() + kBlock, block.most);
      x[x.size() - kBlock + place] = block.one;
    }
    const std::vector<float> most = run(*cpu, fmt::format("max[k < {}](x[k])", kBlock), x),
                             least = run(*cpu, fmt::format("min[k < {}](x[k])", kBlock), x);
    for (size_t i = 0; i < x.size(); ++i) {
      const Block& block = blocks[i / kBlock];
      const float max = std::fmax(block.most, block.one), min = std::fmin(block.most, block.one);
      CHECK((std::isnan(max) ? std::isnan(most[i]) : most[i] == max));
      CHECK((std::isnan(min) ? std::isnan(least[i]) : least[i] == min));
    }
  }
}

}  // namespace
}  // namespace kachel::lowering
