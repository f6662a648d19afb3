// Where the largest and the smallest elements stand.
#include "ir/parse.h"
#include "ir/print.h"
#include "tests/ir/interpret_values.h"

namespace kachel::ir {
namespace {

// `value` over the elements of X, which are floats.
Expected found(const Doubles& elements, const std::string& value) {
  const auto n = static_cast<int64_t>(elements.size());
  TestTensor x(DType::F32, {n});
  for (int64_t at = 0; at < n; ++at) x.set(at, elements[static_cast<size_t>(at)]);
  const std::string count = std::to_string(n);
  const std::string text = "tile 1\nkernel k(X: f32[N], Y: out i64[1])\n{\n  fragment x: f32[" + count +
                           "], y: i64[1]\n  x = X[0 +: " + count + "]\n  parallel i < 1 { y[i] = " + value +
                           " }\n  Y = y\n}\n";
  return run_kernel(text, {x, TestTensor(DType::I64, {1})})[0];
}
int64_t place(const Doubles& elements, const std::string& value) {
  const Expected expected = found(elements, value);
  CHECK(expected.written);
  CHECK_FALSE(expected.undecided);
  return expected.bits;
}

TEST_CASE("the first of the largest or smallest elements") {
  CHECK(place({1, 5, 2, 5}, "argmax[j < 4](x[j])") == 1);
  CHECK(place({3, 1, 2, 1}, "argmin[j < 4](x[j])") == 1);
  CHECK(place({-1, -5, -5}, "argmax[j < 3](abs(x[j]))") == 1);
  CHECK(place({0, -0.0, 0}, "argmax[j < 3](x[j])") == 0);
  CHECK(place({-kInf, -kInf}, "argmax[j < 2](x[j])") == 0);
  CHECK(place({7, 7, 7}, "argmin[j < 3](1)") == 0);
}

TEST_CASE("numbers are preferred to NaN; of NaN alone, the first") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  CHECK(place({nan, -2, nan, -1}, "argmax[j < 4](x[j])") == 3);
  CHECK(place({nan, -kInf}, "argmax[j < 2](x[j])") == 1);
  CHECK(place({nan, nan}, "argmin[j < 2](x[j])") == 0);
}

TEST_CASE("several indices are numbered with the last one fastest; reductions nest") {
  CHECK(place({0, 1, 2, 9, 4, 5}, "argmax[a < 2, b < 3](x[3*a + b])") == 3);
  CHECK(place({0, 1, 2, 9, 4, 5}, "argmax[b < 3, a < 2](x[3*a + b])") == 1);
  CHECK(place({4, 1, 2, 3}, "argmax[j < 4](x[argmin[k < 4](x[k])] == j ? 1 : 0)") == 1);
  CHECK(place({1, 2, 9, 4}, "argmax[a < 2](sum[b < 2](x[2*a + b]))") == 1);
  CHECK(place({1, 2, 9, 4}, "sum[a < 2](10 * a + argmax[b < 2](x[2*a + b]))") == 1 + 10 + 0);
}

TEST_CASE("integers, and what is compared by its sign") {
  CHECK(integers(run_region("i32", "parallel i < 8 { x[i] = argmax[j < 8](x[j] % 4) }")) ==
        Integers{3, 3, 3, 3, 3, 3, 3, 3});
  CHECK(integers(run_region("i32", "parallel i < 8 { x[i] = argmin[j < 8](u32(x[j] - i)) }")) ==
        Integers{0, 1, 2, 3, 4, 5, 6, 7});
}

TEST_CASE("undecided where another element may be as large within its error") {
  CHECK(found({1, 1.0000001}, "argmax[j < 2](exp(x[j]))").undecided);
  CHECK_FALSE(found({1, 1.1}, "argmax[j < 2](exp(x[j]))").undecided);
  // Close to each other, and far from the largest.
  CHECK(place({1, 1.0000001, 9}, "argmax[j < 3](exp(x[j]))") == 2);
  CHECK(found({1, 1}, "argmax[j < 2](x[j] / 3)").undecided);
  CHECK(place({1, 1}, "argmax[j < 2](x[j] / 2)") == 0);
}

TEST_CASE("printed as they were") {
  const std::string text =
      "tile 1\n\nkernel k(X: f32[N], Y: out i32[1])\n{\n  fragment x: f32[8]\n  fragment y: i32[1]\n"
      "  x = X[0 +: 8]\n  parallel i < 1 {\n    y[i] = argmax[j < 8](x[j]) + argmin[a < 2, b < 4](x[a * 4 + b])\n  }\n"
      "  Y = y\n}\n";
  const auto module = load(text);
  REQUIRE_MESSAGE(module.ok(), module.status().message());
  const std::string printed = print(*module);
  CHECK(printed.find("argmax[j < 8](x[j]) + argmin[a < 2, b < 4](x[a * 4 + b])") != printed.npos);
  const auto again = load(printed);
  REQUIRE(again.ok());
  CHECK(print(*again) == printed);
}

}  // namespace
}  // namespace kachel::ir
