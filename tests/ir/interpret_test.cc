// What the interpreter takes a program to mean, statement by statement.
#include <algorithm>

#include "ir/print.h"
#include "tests/ir/interpret_values.h"

namespace kachel::ir {
namespace {

TEST_CASE("a region reads what was before it, and its own iteration's assignments") {
  CHECK(integers(run_region("i32", "parallel i < 8 { x[i] = x[7 - i] }")) == Integers{7, 6, 5, 4, 3, 2, 1, 0});
  CHECK(integers(run_region("i32", "parallel i < 7 { x[i] = x[i + 1] }")) == Integers{1, 2, 3, 4, 5, 6, 7, 7});
  // Textually the same element: the new value. Another text: the old one, even where it is the same element.
  CHECK(integers(run_region("i32", "parallel i < 8 { x[i] = x[i] + 10  x[i] = x[i] * 2 }")) ==
        Integers{20, 22, 24, 26, 28, 30, 32, 34});
  CHECK(integers(run_region("i32", "parallel i < 8 { x[i] = x[i] + 10  x[i] = x[7 - (7 - i)] * 2 }")) ==
        Integers{0, 2, 4, 6, 8, 10, 12, 14});
  // A let is evaluated at its place.
  CHECK(integers(run_region("i32", "parallel i < 8 { let old = x[i]  x[i] = 100  x[i] = x[i] + old }")) ==
        Integers{100, 101, 102, 103, 104, 105, 106, 107});
  // Under a condition: a selection.
  CHECK(integers(run_region("i32", "parallel i < 8 { if i < 4 { x[i] = 50 }  x[i] = x[i] + 1 }")) ==
        Integers{51, 51, 51, 51, 5, 6, 7, 8});
  CHECK(integers(run_region("i32", "parallel i < 8 { if i < 4 { x[i] = 50 } else { x[i] += 1  x[i] *= 2 } }")) ==
        Integers{50, 50, 50, 50, 10, 12, 14, 16});
  // A reduction sees the memory from before, for elements that are not the iteration's own text.
  CHECK(integers(run_region("i32", "parallel i < 8 { x[i] = sum[k < 8](x[k]) + x[i] }")) ==
        Integers{28, 29, 30, 31, 32, 33, 34, 35});
  // The forwarded value is the converted one.
  CHECK(integers(run_region("u8", "parallel i < 8 { x[i] = x[i] + 255  x[i] = x[i] * 2 }")) ==
        Integers{254, 0, 2, 4, 6, 8, 10, 12});
  CHECK(integers(run_region("i32", "parallel i < 8 { x[i] -= 1  x[i] /= 2 }")) == Integers{0, 0, 0, 1, 1, 2, 2, 3});
}

TEST_CASE("a reduction that varies with some of the region's variables") {
  const char* text = R"(tile 1
kernel k(X: i32[4, 6], Y: out i32[4, 6])
grid b < 1
{
  fragment x: i32[4, 6]
  x = X
  parallel i < 4, j < 6 {
    let row = sum[k < 6](x[i, k]), column = max[k < 4](x[k, j]), all = min[k < 4, l < 6](x[k, l])
    let nested = sum[k < 6](x[i, k] * max[l < 6](x[i, l]))
    x[i, j] = row + 1000 * column + 100000 * all + 1000000 * nested
  }
  Y = x
}
)";
  auto actual = integers(run_kernel(text, {iota(DType::I32, {4, 6}, 1), TestTensor(DType::I32, {4, 6})}));
  for (int64_t i = 0; i < 4; ++i)
    for (int64_t j = 0; j < 6; ++j) {
      int64_t row = 0;
      for (int64_t k = 0; k < 6; ++k) row += 6 * i + k + 1;
      int64_t expected = row + 1000 * (19 + j) + 100000 + 1000000 * (row * (6 * i + 6));
      CHECK(actual[static_cast<size_t>(6 * i + j)] == wrap_integer(DType::I32, expected));
    }
}

TEST_CASE("a prefix reduction is over what stands before an iteration, and itself if that is said") {
  CHECK(integers(run_region("i32", "parallel j < 8 { x[j] = sum[k <= j](x[k]) }")) ==
        Integers{0, 1, 3, 6, 10, 15, 21, 28});
  CHECK(integers(run_region("i32", "parallel j < 8 { x[j] = sum[k < j](x[k]) * 10 + j }")) ==
        Integers{0, 1, 12, 33, 64, 105, 156, 217});
  CHECK(integers(run_region("i32", "parallel j < 8 { x[7 - j] = max[k <= j](x[k] % 3) }")) ==
        Integers{2, 2, 2, 2, 2, 2, 1, 0});
  // Of nothing: what every number is beyond.
  CHECK(integers(run_region("i32", "parallel j < 8 { x[j] = max[k < j](x[k]) }")) ==
        Integers{INT32_MIN, 0, 1, 2, 3, 4, 5, 6});
  CHECK(integers(run_region("u8", "parallel j < 8 { x[j] = min[k < j](u32(x[k]) + 1) }")) ==
        Integers{255, 1, 1, 1, 1, 1, 1, 1});
  CHECK(integers(run_region("u32", "parallel j < 8 { x[j] = min[k < j](x[k]) >> 31 }")) ==
        Integers{1, 0, 0, 0, 0, 0, 0, 0});
  // Each iteration reads what was before the region, and its own element's new value only by the same text.
  CHECK(integers(run_region("i32", "parallel j < 8 { x[j] = x[j] + 1  x[j] = x[j] * 100 + sum[k <= j](x[k]) }")) ==
        Integers{100, 201, 303, 406, 510, 615, 721, 828});
}

TEST_CASE("numbers are preferred to NaN in a prefix, and what there is before all elements is a number") {
  const auto numbers = [](const char* value) {
    return integers(
        run_region("i32", std::string("fragment f: f32[8]\n  parallel j < 8 { f[j] = j < 2 ? nan : f32(x[j]) }\n"
                                      "  parallel j < 8 { f[j] = ") +
                              value + " }\n  parallel j < 8 { x[j] = f[j] == f[j] ? 1 : 0 }"));
  };
  CHECK(numbers("max[k <= j](f[k])") == Integers{0, 0, 1, 1, 1, 1, 1, 1});
  CHECK(numbers("max[k < j](f[k])") == Integers{1, 1, 1, 1, 1, 1, 1, 1});
  CHECK(numbers("sum[k < j](f[k])") == Integers{1, 0, 0, 0, 0, 0, 0, 0});
}

TEST_CASE("a prefix reduction that follows some of the region's variables, with a reduction in it") {
  const char* text = R"(tile 1
kernel k(X: i32[3, 5, 4], Y: out i32[3, 5, 4])
grid b < 1
{
  fragment x: i32[3, 5, 4]
  x = X
  parallel i < 3, j < 5, l < 4 {
    let rows = sum[k <= j](max[m < 4](x[i, k, m])), all = min[k < l](x[0, 0, k])
    if j > 0 { x[i, j, l] = rows * 10 + (l > 0 ? all : 0) }
  }
  Y = x
}
)";
  auto actual = integers(run_kernel(text, {iota(DType::I32, {3, 5, 4}, 1), TestTensor(DType::I32, {3, 5, 4})}));
  for (int64_t i = 0; i < 3; ++i) {
    int64_t rows = 0;
    for (int64_t j = 0; j < 5; ++j) {
      rows += 20 * i + 4 * j + 4;
      for (int64_t l = 0; l < 4; ++l) {
        const int64_t own = 20 * i + 4 * j + l + 1;
        CHECK(actual[static_cast<size_t>(own - 1)] == (j > 0 ? rows * 10 + (l > 0 ? 1 : 0) : own));
      }
    }
  }
}

TEST_CASE("an infinity in a sum whose other terms may overflow to the opposite one leaves it undecided") {
  const auto sum = [](const char* others) {
    return state(run_region("f32", std::string("parallel i < 8 { x[i] = i == 0 ? inf : ") + others +
                                       " }\n  parallel i < 1 { y[i] = sum[j < 8](x[j]) }\n  x = y"))[0];
  };
  CHECK(sum("-3e38") == 'u');  // in lanes of their own
  CHECK(sum("-3e37") == '=');
}

TEST_CASE("two iterations that write one element leave it undecided") {
  CHECK(state(run_region("i32", "parallel i < 8 { x[i / 2] = 1 }")) == "uuuu====");
  CHECK(state(run_region("i32", "parallel i < 8 { if i % 2 == 0 { x[i / 2] = 1 } }")) == "========");
  CHECK(state(run_region("i32", "parallel i < 3 { x[i] = 1  x[i + 1] = 2 }")) == "=uu=====");
}

TEST_CASE("blocks that meet in an element leave it undecided") {
  const char* text = R"(tile 1
kernel k(Y: out i32[8], Z: inout i32[8])
grid b < 2
{
  fragment y: i32[5] = 7, z: i32[4]
  parallel i < 5 { y[i] = b + 1 }
  Y[b*3 +: 5] = y
  z = Z[b*4 +: 4]
  parallel i < 4 { z[i] += 1 }
  Z[4 - b*4 +: 4] = z
}
)";
  auto outputs = interpreted(concrete_kernel(text), {TestTensor(DType::I32, {8}), iota(DType::I32, {8})});
  CHECK(state(outputs[0]) == "===uu===");
  // Each block reads what the other writes.
  CHECK(state(outputs[1]) == "uuuuuuuu");
  const char* apart = R"(tile 1
kernel k(Z: inout i32[8])
grid b < 2
{
  fragment z: i32[4]
  z = Z[b*4 +: 4]
  parallel i < 4 { z[i] += 1 }
  Z[b*4 +: 4] = z
}
)";
  CHECK(integers(run_kernel(apart, {iota(DType::I32, {8})})) == Integers{1, 2, 3, 4, 5, 6, 7, 8});
}

TEST_CASE("memory that nothing has written is undecided") {
  const char* text = R"(tile 1
kernel k(X: f32[4], Y: out f32[8], Z: out f32[8])
grid b < 1
{
  fragment t: f32[8]
  t[0 +: 4] = X
  Y[0 +: 6] = t[0 +: 6]
  parallel i < 8 { t[i] = i < 4 ? t[i] : 1 }
  Z = t
}
)";
  auto outputs = interpreted(concrete_kernel(text),
                             {iota(DType::F32, {4}), TestTensor(DType::F32, {8}), TestTensor(DType::F32, {8})});
  CHECK(state(outputs[1]) == "====uu..");
  CHECK(values(outputs[2]) == Doubles{0, 1, 2, 3, 1, 1, 1, 1});
}

TEST_CASE("what hangs on a comparison within the error is undecided or covers both") {
  // exp(x) - exp(x) is 0 within an error: its sign is not known.
  const std::string sign = "parallel i < 8 { let d = exp(x[i]) - exp(x[i] * 1.0000001)  ";
  auto both = run_region("f32", sign + "x[i] = d > 0 ? 3 : 5 }");
  CHECK(both[0].value == 4);
  CHECK(both[0].bound >= 1);
  CHECK(both[0].bound < 1.001);
  CHECK(state(run_region("f32", sign + "if d > 0 { x[i] = 3 } }"))[0] == '=');
  auto guarded = run_region("f32", sign + "if d > 0 { x[i] = 4 } }");
  CHECK(guarded[0].value == 2);  // 0 or 4
  CHECK(guarded[0].bound >= 2);
  auto read_back = run_region("f32", sign + "if d > 0 { x[i] = 4 }  x[i] = x[i] * 2 }");
  CHECK(read_back[0].value == doctest::Approx(4));
  CHECK(read_back[0].bound >= 4);
  // As an index, as an integer and as control flow nothing remains known.
  CHECK(state(run_region("f32", sign + "y[i] = x[i32(d * 1e9)]  x[i] = y[i] }"))[0] == 'u');
  CHECK(state(run_region("f32", "let d = exp(x[0]) - 1  if d > 0 { x[0 +: 4] = 1 } else { y = 0 }")) == "uuuuuuuu");
  CHECK(state(run_region("f32", "let n = i32(exp(x[0]) * 4)  for k < n { y = 1 }")) == "========");
  CHECK(state(run_region("f32", "let n = i32(exp(x[0]) * 4)  for k < n { x = 1 }")) == "uuuuuuuu");
  CHECK(state(run_region("f32", sign + "if i < 1 { x[i32(d * 1e9) + 1] = 3 } }")) == "uuuuuuuu");
  // A decided operand settles a logical operation.
  CHECK(values(run_region("f32", sign + "x[i] = d > 0 && i < 0 ? 3 : 5 }"))[0] == 5);
  CHECK(values(run_region("f32", sign + "x[i] = d > 0 || i >= 0 ? 3 : 5 }"))[0] == 3);
  // Far apart: decided.
  CHECK(values(run_region("f32", "parallel i < 8 { x[i] = exp(x[i]) > 0.5 ? 1 : 0 }")) == Doubles(8, 1));
}

TEST_CASE("gemm: accumulate or not, slices, integers, special values") {
  const char* text = R"(tile 1
kernel k(A: f32[2, 2, 3], B: f32[3, 4], C: out f32[2, 4], D: out f32[2, 4])
grid b < 1
{
  shared a: f32[2, 2, 3], w: f32[3, 4]
  fragment c: f32[2, 4] = 1, d: f32[2, 4] = nan
  a = A
  w = B
  c += a[1, :, :] @ w
  d = a[1, :, :] @ w
  C = c
  D = d
}
)";
  TestTensor A = iota(DType::F32, {2, 2, 3}), B = iota(DType::F32, {3, 4}, 1);
  Kernel kernel = concrete_kernel(text);
  const TestTensor out(DType::F32, {2, 4});
  auto outputs = interpreted(kernel, {A, B, out, out});
  for (size_t i = 0; i < 8; ++i) {
    double sum = 0;
    for (int64_t k = 0; k < 3; ++k)
      sum += A.get(6 + static_cast<int64_t>(i / 4) * 3 + k) * B.get(k * 4 + static_cast<int64_t>(i % 4));
    CHECK(outputs[2][i].value == 1 + sum);
    CHECK(outputs[3][i].value == sum);
    CHECK(outputs[3][i].bound > 0);
    CHECK(outputs[3][i].bound < 1e-3);
  }
  A.set(6, kInf);  // row 0
  B.set(4, 0);     // meets a[1, 0, 1] only
  outputs = interpreted(kernel, {A, B, out, out});
  CHECK(outputs[2][0].value == kInf);
  CHECK(outputs[2][0].bound == 0);
  CHECK(std::isfinite(outputs[2][4].value));
  B.set(0, 0);  // inf * 0
  outputs = interpreted(kernel, {A, B, out, out});
  CHECK(std::isnan(outputs[2][0].value));
  CHECK(outputs[2][1].value == kInf);
  A.set(7, -kInf);
  outputs = interpreted(kernel, {A, B, out, out});
  CHECK(std::isnan(outputs[2][1].value));
  A.set(6, 3e38);
  A.set(7, 3e38);
  outputs = interpreted(kernel, {A, B, out, out});
  CHECK(outputs[2][1].undecided);
  CHECK_FALSE(outputs[2][4].undecided);
}

TEST_CASE("scalars, constants and every integer operation reach the kernel") {
  const char* text = R"(tile 1
kernel k(Y: out i32[12], Z: out i64[4], a: i32, b: i64, u: u32, w: u64, c: bool, f: f32)
grid g < 1
{
  fragment y: i32[12] = 0, z: i64[4] = 0
  parallel i < 1 {
    y[0] = a / 3   y[1] = a % 3   y[2] = a << 3   y[3] = a >> 1
    y[4] = popcount(a)   y[5] = a & 12 | 3 ^ 1   y[6] = ~a   y[7] = c ? 1 : 0
    y[8] = i32(f * 4)   y[9] = i32(u >> 31)   y[10] = clamp(a, -3, 3)   y[11] = abs(a)
    z[0] = ceildiv(b, 7)   z[1] = i64(w / 2)   z[2] = min(b, a)   z[3] = i64(f < 1) + u
  }
  Y = y
  Z = z
}
)";
  auto outputs = interpreted(concrete_kernel(text),
                             {TestTensor(DType::I32, {12}), TestTensor(DType::I64, {4}), integer_argument(-7),
                              integer_argument(int64_t{1} << 40), integer_argument(0xFFFFFFFF), integer_argument(-2),
                              integer_argument(1), f32_argument(2.3)});
  CHECK(integers(outputs[0]) == Integers{-2, -1, -56, -4, 30, (-7 & 12) | (3 ^ 1), 6, 1, 9, 1, -3, 7});
  CHECK(integers(outputs[1]) == Integers{157073089683, INT64_MAX, -7, 0xFFFFFFFF});
}

TEST_CASE("empty grids, empty tensors, no reduction axis") {
  const char* text = R"(tile 1
kernel k(A: f32[M, K], C: out f32[M])
grid b < ceildiv(M, 4)
{
  fragment a: f32[4, 8], c: f32[4] = 0
  for k < ceildiv(K, 8) {
    a = A[b*4 +: 4, k*8 +: 8]
    parallel i < 4 { c[i] += sum[j < 8](a[i, j]) }
  }
  C[b*4 +: 4] = c
}
)";
  Kernel kernel = concrete_kernel(text);
  CHECK(interpreted(kernel, {TestTensor(DType::F32, {0, 8}), TestTensor(DType::F32, {0})})[1].empty());
  CHECK(values(interpreted(kernel, {TestTensor(DType::F32, {5, 0}), TestTensor(DType::F32, {5})})[1]) == Doubles(5, 0));
  HostTensor nothing{nullptr, DType::F32, {5, 0}, {0, 1}};
  CHECK(values(interpreted(kernel, {{nothing, {}}, TestTensor(DType::F32, {5})})[1]) == Doubles(5, 0));
}

TEST_CASE("ranks 1 to 5 with any strides") {
  const char* text = R"(tile 1
kernel k(X: i32[A, B, C, D, E], Y: out i32[A, B, C, D, E])
grid a < A, b < B
{
  fragment t: i32[2, 3, 2]
  t = X[a, b, 0 +: 2, 0 +: 3, 0 +: 2]
  Y[a, b, 0 +: 2, 0 +: 3, 0 +: 2] = t
}
)";
  const std::vector<int64_t> shape = {2, 2, 2, 3, 2};
  // Broadcast, transposed and reversed axes.
  TestTensor X(DType::I32, shape, {0, 50, 1, -10, 5}, 20), Y(DType::I32, shape);
  for (int64_t at = 0; at < X.size(); ++at) X.set(at, static_cast<double>(X.offset(at)));
  Argument argument = X;
  auto y = integers(run_kernel(text, {argument, Y}));
  for (int64_t at = 0; at < X.size(); ++at) CHECK(y[static_cast<size_t>(at)] == X.offset(at));
}

TEST_CASE("one rounding at each store") {
  const char* text = R"(tile 1
kernel k(X: f32[4], Y: out f16[4], Z: out f8e4m3[4], I: out i8[4])
grid b < 1
{
  fragment x: f32[4], h: f16[4]
  x = X
  h = x
  parallel i < 4 { x[i] = h[i] - X[i] }
  Y = h
  Z = h
  I = X[0 +: 4]
}
)";
  // 1 + 2^-11 is a tie in f16; stored as f16 it is 1.
  TestTensor X(DType::F32, {4});
  X.list({1 + 0x1p-11, 1 + 0x1.8p-11, 70000, -300.7});
  auto outputs = interpreted(concrete_kernel(text), {X, TestTensor(DType::F16, {4}), TestTensor(DType::F8E4M3, {4}),
                                                     TestTensor(DType::I8, {4})});
  CHECK(values(outputs[1]) == Doubles{1, 1 + 0x1p-10, kInf, round_float(DType::F16, static_cast<float>(-300.7))});
  CHECK(values(outputs[2]) == Doubles{1, 1, 448, -288});
  CHECK(integers(outputs[3]) == Integers{1, 1, 127, -128});
}

TEST_CASE("a product that an iteration assigns may be fused with what it adds to it") {
  const char* text = R"(tile 1
kernel k(X: f32[500], Y: out f32[500])
grid b < 1
{
  fragment x: f32[500]
  x = X
  parallel i < 500 {
    x[i] *= 13
    x[i] += 1.5
  }
  Y = x
}
)";
  // Where the sum of the rounded product is exact.
  TestTensor X(DType::F32, {500});
  X.random(7, -0.15, -0.06);
  const auto outputs = interpreted(concrete_kernel(text), {X, TestTensor(DType::F32, {500})});
  int64_t apart = 0;
  for (int64_t at = 0; at < X.size(); ++at) {
    const Expected& y = outputs[1][static_cast<size_t>(at)];
    const auto x = static_cast<float>(X.get(at));
    const float product = x * 13, once = std::fma(x, 13.0F, 1.5F), twice = product + 1.5F;
    apart += once != twice;
    CHECK(std::abs(y.value - once) <= y.bound);
    CHECK(std::abs(y.value - twice) <= y.bound);
  }
  CHECK(apart > 0);
}

}  // namespace
}  // namespace kachel::ir
