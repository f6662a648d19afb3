// The functions of f32 that PTX has no instruction for, in a machine whose approximations are rounded to nearest, as
// far as nothing else is said.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <bit>
#include <cmath>

#include "tests/lowering/function_bounds.h"
#include "tests/lowering/mapped_kernel.h"
#include "tests/lowering/ptx_machine.h"
#include "tests/lowering/simulated_case.h"

namespace kachel::lowering {
namespace {

constexpr int64_t kBlock = 1024;

Lowered lowered(const std::string& value) {
  auto lowered = lower(mapped_kernel(value, kBlock), kSimulatedGpu, ~uint64_t{0});
  REQUIRE(lowered.ok());
  REQUIRE(!ptx_of(lowered->text).empty());
  return *std::move(lowered);
}

std::vector<float> run(const Lowered& lowered, const std::vector<float>& x, const std::vector<float>& z) {
  auto program = parse_ptx(ptx_of(lowered.text));
  REQUIRE_MESSAGE(program.ok(), program.status().message());
  std::vector<float> y(x.size());
  PtxLaunch launch;
  launch.threads = static_cast<uint32_t>(lowered.threads);
  launch.budget = int64_t{1} << 40;
  for (const std::vector<float>* tensor : {&x, &z, static_cast<const std::vector<float>*>(&y)})
    launch.memory.push_back({const_cast<float*>(tensor->data()), tensor->size() * sizeof(float)});
  launch.params = mapped_params(lowered.slots, x, z, y, kBlock);
  const Status status = run_ptx(*program, launch);
  REQUIRE_MESSAGE(status.ok(), status.message());
  return y;
}

TEST_CASE("functions as PTX keep their bounds over all magnitudes") {
  const std::vector<float> x = floats_to_try(81'131, kBlock);
  for (const FunctionBound& function : function_bounds())
    check_function(function, x, run(lowered(fmt::format("{}(x[i])", function.name)), x, x));
}

TEST_CASE("what is raised by 1 keeps its bound as PTX") {
  const std::vector<float> x = floats_to_try(81'131, kBlock);
  const auto check = [&](const std::string& text, double k, auto&& exact) {
    const std::vector<float> y = run(lowered(text), x, x);
    double worst = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      const double want = exact(static_cast<double>(x[i]));
      if (std::isnan(want) || std::isnan(y[i]))
        REQUIRE(std::isnan(want) == std::isnan(y[i]));
      else
        worst = std::max(worst, std::abs(y[i] - want) / k);
    }
    CAPTURE(text);
    CHECK(worst <= 0x1p-21);
    MESSAGE(fmt::format("{}: 2^{:.2f}", text, std::log2(worst)));
  };
  check("1 + erf(x[i])", 1, [](double v) { return std::erfc(-v); });
  check("0.5 * (1 + erf(0.75 * x[i]))", 0.5, [](double v) { return 0.5 * std::erfc(-0.75 * v); });
  check("0.75 * erf(-x[i]) - 0.75", 0.75, [](double v) { return -0.75 * std::erfc(-v); });
  check("1 - tanh(x[i])", 1, [](double v) { return 1 - std::tanh(v); });
  check("0.5 * tanh(x[i]) + 0.5", 0.5, [](double v) { return 0.5 + 0.5 * std::tanh(v); });
}

TEST_CASE("the tanh of a logarithm keeps its bound as PTX") {
  const std::vector<float> x = floats_to_try(81'131, kBlock);
  const std::vector<float> y = run(lowered("tanh(log(x[i]))"), x, x);
  double worst = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double v = x[i];
    if (std::isnan(v) || v < 0) {
      REQUIRE(std::isnan(y[i]));
      continue;
    }
    const double want = v > 0x1p60 ? 1 : (v - 1) * (v + 1) / (v * v + 1);
    const double unit = std::ldexp(1.0, std::max(std::ilogb(want), -126) - 23);
    worst = std::max(worst, std::abs(y[i] - want) / (want == 0 ? 0x1p-149 : unit));
  }
  CHECK(worst <= 4);
  MESSAGE(fmt::format("{:.2f} ulp", worst));
}

TEST_CASE("quotients as PTX are rounded to nearest") {
  std::vector<float> x, by;
  hard_quotients(1 << 23, 1 << 24, 8167, &x, &by);
  const size_t hard = x.size();
  CHECK(hard > 10'000);
  const float ends[] = {0.0f,
                        -0.0f,
                        INFINITY,
                        -INFINITY,
                        NAN,
                        1,
                        -3,
                        0x1p-149f,
                        -0x1.8p-140f,
                        0x1p-126f,
                        0x1.fffffep127f,
                        -0x1.8p127f,
                        0x1.fffffep126f,
                        0x1p-101f,
                        0x1.4p100f,
                        0x1.fffffep0f};
  for (const float a : ends)
    for (const float b : ends) x.push_back(a), by.push_back(b);
  uint64_t state = 1;
  while (x.size() % kBlock || x.size() < 40 * kBlock)
    for (std::vector<float>* drawn : {&x, &by})
      drawn->push_back(std::bit_cast<float>(
          static_cast<uint32_t>((state = state * 6364136223846793005u + 1442695040888963407u) >> 32)));
  const Lowered quotients = lowered("x[i] / z[i]");
  check_quotients(x, by, run(quotients, x, by));
  // What else rcp.approx may return, but for a divisor all of whose bits are ones.
  for (size_t i = 0; i < x.size(); ++i)
    if (i >= hard || (std::bit_cast<uint32_t>(by[i]) & 0x7fffff) == 0x7fffff) x[i] = by[i] = 1;
  for (const int neighbour : {-1, 1}) {
    Lowered changed = quotients;
    std::string& other = changed.text;
    const std::string name = "rcp.approx.ftz.f32 ";
    for (size_t at = other.find(name); at != std::string::npos; at = other.find(name, at + 1)) {
      const size_t end = other.find('\n', at);
      const std::string result = other.substr(at + name.size(), other.find(',', at) - at - name.size());
      other.insert(end + 1, fmt::format("fma.rn.f32 {0}, {0}, 0f{1:08X}, {0};\n", result,
                                        std::bit_cast<uint32_t>(static_cast<float>(neighbour) * 0x1p-24f)));
    }
    CHECK(other != quotients.text);
    check_quotients(x, by, run(changed, x, by));
  }
}

}  // namespace
}  // namespace kachel::lowering
