// Products of a row and of its prefixes: what they are, and how far another order of their factors may be off.
#include "ir/parse.h"
#include "tests/ir/interpret_values.h"

namespace kachel::ir {
namespace {

Expected product(const Doubles& elements, const std::string& value = "x[j]") {
  const auto n = static_cast<int64_t>(elements.size());
  TestTensor x(DType::F32, {n});
  for (int64_t at = 0; at < n; ++at) x.set(at, elements[static_cast<size_t>(at)]);
  const std::string count = std::to_string(n);
  const std::string text = "tile 1\nkernel k(X: f32[N], Y: out f32[1])\n{\n  fragment x: f32[" + count +
                           "], y: f32[1]\n  x = X[0 +: " + count + "]\n  parallel i < 1 { y[i] = prod[j < " + count +
                           "](" + value + ") }\n  Y = y\n}\n";
  return run_kernel(text, {x, TestTensor(DType::F32, {1})})[0];
}

TEST_CASE("products, of integers that wrap, and of prefixes, of nothing 1") {
  CHECK(product({2, -3, 0.5}).value == -3);
  CHECK(integers(run_region("i32", "parallel i < 8 { x[i] = prod[j < 8](x[j] + 4) }"))[0] ==
        4ll * 5 * 6 * 7 * 8 * 9 * 10 * 11);
  CHECK(integers(run_region("i32", "parallel i < 8 { x[i] = prod[j < 8](65536 + x[j]) }"))[0] == 330301440);
  CHECK(integers(run_region("i32", "parallel i < 8 { x[i] = prod[k < i](x[k] + 1) }")) ==
        Integers{1, 1, 2, 6, 24, 120, 720, 5040});
  CHECK(values(run_region("f32", "parallel i < 8 { x[i] = prod[k <= i](1) }")) == Doubles{1, 1, 1, 1, 1, 1, 1, 1});
}

TEST_CASE("a product is off by a rounding for each multiplication, in whichever order") {
  const Doubles factors(100, 1.1);
  const Expected found = product(factors);
  float forwards = 1;
  for (double factor : factors) forwards *= static_cast<float>(factor);
  CHECK_FALSE(found.undecided);
  CHECK(std::abs(forwards - found.value) <= found.bound);
  CHECK(found.bound < 1e-5 * found.value);
  CHECK(found.bound > 50 * 0x1p-24 * found.value);
}

TEST_CASE("partial products that f32 does not hold, infinities and NaN") {
  CHECK(product({1e30, 1e30, 1e-30, 1e-30}).undecided);
  CHECK(product({1e20, 1e20}).undecided);
  const Expected small = product({1e-30, 1e-30, 1e10});
  CHECK_FALSE(small.undecided);
  CHECK(small.bound >= 1e-38 * 1e10 / 2);
  CHECK(product({2, 0, -3}).value == 0);
  CHECK(product({2, kInf, -3}).value == -kInf);
  CHECK(std::isnan(product({0, kInf, -3}).value));
  CHECK(product({1e-30, kInf, 1e-30}).undecided);  // 0 in another order, whose product with the infinity is NaN
  CHECK(std::isnan(product({2, std::numeric_limits<double>::quiet_NaN()}).value));
}

TEST_CASE("what a program has named `prod` is that") {
  const auto module = load(
      "tile 1\nkernel k(X: f32[N], Y: out f32[N])\n{\n  fragment prod: f32[8]\n  prod = X[0 +: 8]\n"
      "  parallel i < 8 { prod[i] = 2 * prod[i] }\n  Y[0 +: 8] = prod\n}\n");
  CHECK(module.ok());
}

}  // namespace
}  // namespace kachel::ir
