// Which tensors a kernel counts through as if their last two axes were one.
#include "ir/one_axis.h"

#include <doctest/doctest.h>

#include "ir/parse.h"

namespace kachel::ir {
namespace {

// Whether a kernel counts the last two axes of Y so, which it stores to as Y[n, ..] or reads for Z[n, m].
bool counts(const std::string& body, const std::string& outside = "") {
  const bool stores = body.find("Z[") == std::string::npos;
  const std::string tensors = stores ? "Y: out f32[N, H, W]" : "Y: f32[N, H, W], Z: out f32[N, P]";
  const auto module = load("tile 1\nkernel k(I: i32[P], " + tensors + ", S: i64)\ngrid n < N\n{\n  " + outside +
                           "\n  let V = W, T = H\n  parallel m < P {\n    " + body + "\n  }\n}\n");
  REQUIRE_MESSAGE(module.ok(), module.status().message());
  const Kernel& kernel = module->kernels[0];
  CHECK(OneAxis(kernel).counts(*kernel.params[1].tensor) == kernel.params[1].one_axis);
  CHECK(!kernel.params[2].one_axis);
  return kernel.params[1].one_axis;
}

}  // namespace

TEST_CASE("quotients and remainders of one number by the last extent are one axis") {
  CHECK(counts("Y[n, m / W, m % W] = 1"));
  CHECK(counts("let y = m / W, x = m % W\n Y[n, y, x] = 1"));
  CHECK(counts("let q = m + 3 * S\n Z[n, m] = Y[n, q / V, (m + 3 * S) % W]"));
  CHECK(counts("Z[n, m] = Y[n, m / W, m % W] + Y[n, (m + 1) / W, (m + 1) % W]"));
  CHECK(counts("Z[n, m] = m > 3 ? Y[m / (H * W), m / W % H, m % W] : 0"));
  CHECK(counts("Z[n, m] = Y[m / (H * W), m / V % T, m % W]"));
}

TEST_CASE("any other use makes two axes of them") {
  CHECK(!counts("Z[n, m] = Y[n, m / W, m % H]"));
  CHECK(!counts("Z[n, m] = Y[n, m / H, m % W]"));
  CHECK(!counts("Z[n, m] = Y[n, m / W, (m + 1) % W]"));
  CHECK(!counts("Z[n, m] = Y[n, m / W % W, m % W]"));
  CHECK(!counts("Z[n, m] = Y[n, m / W - 1, m % W]"));
  CHECK(!counts("Z[n, m] = Y[n, m / W, m % W] + Y[n, 0, m % W]"));
  CHECK(!counts("Z[n, m] = Y[n, I[m] / W, I[m] % W]"));  // what is loaded may be of such a tensor
  CHECK(!counts("Z[n, m] = 0"));
  CHECK(!counts("Z[n, m] = Y[n, m / W, m % W]", "let first = Y[n, 0 / W, 0 % W]"));
  CHECK(!counts("Z[n, m] = Y[n, m / W, m % W]", "fragment f: f32[8, 8]\n  f = Y[n, 0 +: 8, 0 +: 8]"));
}

TEST_CASE("names that use each other many times are looked into for a while") {
  std::string lets = "let a0 = m + S";
  for (int i = 1; i < 40; ++i)
    lets += "\n    let a" + std::to_string(i) + " = a" + std::to_string(i - 1) + " + a" + std::to_string(i - 1);
  CHECK(counts(lets + "\n    Z[n, m] = Y[n, a39 / W, a39 % W]"));
  CHECK(!counts(lets + "\n    Z[n, m] = Y[n, (a38 + a38) / W, (a38 + a37 + a37) % W]"));
}

}  // namespace kachel::ir
