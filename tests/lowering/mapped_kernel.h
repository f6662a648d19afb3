// A kernel that computes a value of each element: what the tests of functions run on a device.
#pragma once
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <bit>
#include <string>
#include <vector>

#include "ir/instantiate.h"
#include "ir/parse.h"
#include "lowering/lower.h"

namespace kachel::lowering {

// Y[i] = value, an expression of x[i] and z[i], in blocks of so many elements.
inline ir::Kernel mapped_kernel(const std::string& value, int64_t block) {
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
                                     block, value),
                         "test");
  REQUIRE(module.ok());
  auto concrete = ir::instantiate(module->kernels[0], {});
  REQUIRE(concrete.ok());
  return *std::move(concrete);
}

// REQUIRES: x, z and y of one size, a multiple of `block`.
inline std::vector<int64_t> mapped_params(const std::vector<Slot>& slots, const std::vector<float>& x,
                                          const std::vector<float>& z, const std::vector<float>& y, int64_t block) {
  const float* tensors[] = {x.data(), z.data(), y.data()};
  const auto n = static_cast<int64_t>(x.size());
  std::vector<int64_t> params;
  for (const Slot& slot : slots)
    params.push_back(slot.kind == Slot::Kind::kPointer  ? std::bit_cast<int64_t>(tensors[slot.index])
                     : slot.kind == Slot::Kind::kStride ? 1
                     : slot.kind == Slot::Kind::kDim    ? n
                                                        : n / block);
  return params;
}

}  // namespace kachel::lowering
