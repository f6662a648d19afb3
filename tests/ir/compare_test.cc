#include <limits>

#include "tests/ir/run_kernel.h"

namespace kachel::ir {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
const double kNan = std::numeric_limits<double>::quiet_NaN();

Expected number(double value, double bound = 0) {
  Expected e;
  e.value = value;
  e.bound = bound;
  e.written = true;
  return e;
}
Expected integer(int64_t value) {
  Expected e;
  e.bits = value;
  e.written = true;
  return e;
}
Expected unknown() {
  Expected e;
  e.written = e.undecided = true;
  return e;
}

TEST_CASE("floats lie within the bound, NaN and infinities are themselves") {
  TestTensor actual(DType::F32, {2, 3}), before(DType::F32, {2, 3});
  actual.list({1, 2.5, kNan, kInf, 7, 8});
  std::vector<Expected> good = {number(1), number(2, 0.5), number(kNan), number(kInf), unknown(), number(8, 1e-3)};
  Mismatch result = compare(good, actual.host(), before.host());
  CHECK(result.count == 0);
  CHECK(result.undecided == 1);
  CHECK(result.first.empty());

  std::vector<Expected> bad = good;
  bad[1] = number(2, 0.4);
  bad[2] = number(3, 100);  // a NaN where a number is due
  bad[5] = number(kNan);
  result = compare(bad, actual.host(), before.host());
  CHECK(result.count == 3);
  CHECK(result.first == "[0, 1] is 2.5, expected 2 within 0.4");
  CHECK(
      compare({number(1), number(2.5), number(kNan), number(-kInf), unknown(), number(8)}, actual.host(), before.host())
          .count == 1);
  actual.set(3, 1e38);
  CHECK(compare(good, actual.host(), before.host()).first == "[1, 0] is 9.99999968e+37, expected inf within 0");
}

TEST_CASE("elements that are not written keep their bytes") {
  TestTensor actual(DType::F32, {3}), before(DType::F32, {3});
  before.list({1, kNan, 3});
  actual.list({1, kNan, 3});
  std::vector<Expected> expected(3);
  CHECK(compare(expected, actual.host(), before.host()).count == 0);
  actual.set(2, 4);
  Mismatch result = compare(expected, actual.host(), before.host());
  CHECK(result.count == 1);
  CHECK(result.first == "[2] is 4, but the kernel does not write it; it was 3");
  actual.list({1, kNan, 3});
  actual.set(0, -0.0);
  before.set(0, 0.0);
  CHECK(compare(expected, actual.host(), before.host()).count == 1);  // equal, but not the same bytes
}

TEST_CASE("integers, bools, nibbles and layouts") {
  TestTensor actual(DType::I64, {2, 2}, {1, 2}), before(DType::I64, {2, 2}, {1, 2});
  actual.list({1, 2, 3, 4});
  CHECK(compare({integer(1), integer(2), integer(3), integer(4)}, actual.host(), before.host()).count == 0);
  Mismatch result = compare({integer(1), integer(3), integer(2), integer(4)}, actual.host(), before.host());
  CHECK(result.count == 2);
  CHECK(result.first == "[0, 1] is 2, expected 3");

  TestTensor wide(DType::U64, {1});
  wide.set_integer(0, -1);
  CHECK(compare({integer(5)}, wide.host(), wide.host()).first == "[0] is 18446744073709551615, expected 5");

  TestTensor nibbles(DType::I4, {2, 3}), old(DType::I4, {2, 3});
  nibbles.list({-1, 2, 3, -4, 5, -6});
  std::vector<Expected> expected = {integer(-1), integer(2), integer(3), integer(-4), integer(5), integer(-6)};
  CHECK(compare(expected, nibbles.host(), old.host()).count == 0);
  expected[4] = Expected();
  CHECK(compare(expected, nibbles.host(), old.host()).first ==
        "[1, 1] is 5, but the kernel does not write it; it was 0");

  TestTensor flags(DType::Bool, {2});
  flags.list({1, 0});
  CHECK(compare({integer(1), integer(0)}, flags.host(), flags.host()).count == 0);
  static_cast<unsigned char*>(flags.host().data)[0] = 255;  // true, but not as it is stored
  CHECK(compare({integer(1), integer(0)}, flags.host(), flags.host()).count == 1);
}

TEST_CASE("bounds in ulp of the type") {
  CHECK(ulps(DType::F16, 1.5, 0x1p-10) == 1);
  CHECK(ulps(DType::F16, 0.75, 0x1p-10) == 2);
  CHECK(ulps(DType::BF16, 1, 0x1p-7) == 1);
  CHECK(ulps(DType::F32, 1, 0) == 0);
  CHECK(ulps(DType::F16, 0, 0x1p-24) == 1);
  TestTensor t(DType::F16, {3});
  t.list({1, 1, 1});
  Mismatch result = compare({number(1, 0x1p-10), number(1, 0x1p-9), number(1, 0x1p-5)}, t.host(), t.host());
  CHECK(result.median_bound_ulps == 2);
}

}  // namespace
}  // namespace kachel::ir
