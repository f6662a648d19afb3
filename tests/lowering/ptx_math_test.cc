// The functions of f32 that PTX has no instruction for, in a machine whose approximations are rounded to nearest, as
// far as nothing else is said.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <cstring>

#include "ir/instantiate.h"
#include "ir/parse.h"
#include "tests/lowering/function_bounds.h"
#include "tests/lowering/ptx_machine.h"
#include "tests/lowering/simulated_case.h"

namespace kachel::lowering {
namespace {

constexpr int64_t kBlock = 1024;

std::string text_of(const std::string& value, std::vector<Slot>* slots) {
  auto module = ir::load(fmt::format(R"(tile 1
kernel f(X: f32[N], Z: f32[N], Y: out f32[N])
grid b < ceildiv(N, {0})
{{
  fragment x: f32[{0}], z: f32[{0}]
  x = X[b*{0} +: {0}]
  z = Z[b*{0} +: {0}]
  parallel i < {0} {{ x[i] = {1} }}
  Y[b*{0} +: {0}] = x
}}
)",
                                     kBlock, value),
                         "test");
  REQUIRE(module.ok());
  auto concrete = ir::instantiate(module->kernels[0], {});
  REQUIRE(concrete.ok());
  auto lowered = lower(*concrete, kSimulatedGpu, ~uint64_t{0});
  REQUIRE(lowered.ok());
  *slots = lowered->slots;
  REQUIRE(!ptx_of(lowered->text).empty());
  return lowered->text;
}

std::vector<float> run(const std::string& text, const std::vector<Slot>& slots, const std::vector<float>& x,
                       const std::vector<float>& z) {
  auto program = parse_ptx(ptx_of(text));
  REQUIRE_MESSAGE(program.ok(), program.status().message());
  std::vector<float> y(x.size());
  const void* tensors[] = {x.data(), z.data(), y.data()};
  PtxLaunch launch;
  launch.threads = 128;
  launch.blocks = 1;
  launch.budget = int64_t{1} << 40;
  for (const void* tensor : tensors) launch.memory.push_back({const_cast<void*>(tensor), x.size() * sizeof(float)});
  const auto n = static_cast<int64_t>(x.size());
  for (const Slot& slot : slots)
    launch.params.push_back(slot.kind == Slot::Kind::kPointer  ? std::bit_cast<int64_t>(tensors[slot.index])
                            : slot.kind == Slot::Kind::kStride ? 1
                            : slot.kind == Slot::Kind::kDim    ? n
                                                               : n / kBlock);
  const Status status = run_ptx(*program, launch);
  REQUIRE_MESSAGE(status.ok(), status.message());
  return y;
}

TEST_CASE("functions as PTX keep their bounds over all magnitudes") {
  const std::vector<float> x = floats_to_try(81'131, kBlock);
  std::vector<Slot> slots;
  for (const FunctionBound& function : function_bounds()) {
    const std::string text = text_of(fmt::format("{}(x[i])", function.name), &slots);
    check_function(function, x, run(text, slots, x, x));
  }
}

TEST_CASE("quotients as PTX are rounded to nearest") {
  std::vector<float> x, by;
  hard_quotients(8166, &x, &by);
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
  std::vector<Slot> slots;
  const std::string text = text_of("x[i] / z[i]", &slots);
  check_quotients(x, by, run(text, slots, x, by));
  // What else rcp.approx may return, but for a divisor all of whose bits are ones.
  for (size_t i = 0; i < x.size(); ++i)
    if (i >= hard || (std::bit_cast<uint32_t>(by[i]) & 0x7fffff) == 0x7fffff) x[i] = by[i] = 1;
  for (const int neighbour : {-1, 1}) {
    std::string other = text;
    const std::string name = "rcp.approx.ftz.f32 ";
    for (size_t at = other.find(name); at != std::string::npos; at = other.find(name, at + 1)) {
      const size_t end = other.find('\n', at);
      const std::string result = other.substr(at + name.size(), other.find(',', at) - at - name.size());
      other.insert(end + 1, fmt::format("fma.rn.f32 {0}, {0}, 0f{1:08X}, {0};\n", result,
                                        std::bit_cast<uint32_t>(static_cast<float>(neighbour) * 0x1p-24f)));
    }
    CHECK(other != text);
    check_quotients(x, by, run(other, slots, x, by));
  }
}

}  // namespace
}  // namespace kachel::lowering
