// What the interpreter takes a program to mean, statement by statement.
#include <algorithm>

#include "ir/parallel.h"
#include "ir/print.h"
#include "tests/ir/run_kernel.h"

namespace kachel::ir {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

std::vector<double> values(const std::vector<Expected>& expected) {
  std::vector<double> result;
  for (const Expected& e : expected) {
    CHECK(e.written);
    CHECK_FALSE(e.undecided);
    CHECK(e.bound == 0);
    result.push_back(e.value);
  }
  return result;
}
std::vector<int64_t> integers(const std::vector<Expected>& expected) {
  std::vector<int64_t> result;
  for (const Expected& e : expected) {
    CHECK(e.written);
    CHECK_FALSE(e.undecided);
    result.push_back(e.bits);
  }
  return result;
}
// One character an element: '.' not written, 'u' undecided, '=' decided.
std::string state(const std::vector<Expected>& expected) {
  std::string result;
  for (const Expected& e : expected) result += !e.written ? '.' : e.undecided ? 'u' : '=';
  return result;
}
using Doubles = std::vector<double>;
using Integers = std::vector<int64_t>;

TestTensor iota(DType type, std::vector<int64_t> shape, double first = 0) {
  TestTensor tensor(type, std::move(shape));
  for (int64_t at = 0; at < tensor.size(); ++at) tensor.set(at, first + static_cast<double>(at));
  return tensor;
}

// A kernel over X: in i32 or f32 [N] and Y: out of the same type [N], with x a tile of 8 loaded from X, stored to Y.
std::string region(const std::string& type, const std::string& body) {
  return "tile 1\nkernel k(X: " + type + "[N], Y: out " + type + "[N])\ngrid b < 1\n{\n  fragment x: " + type +
         "[8], y: " + type + "[8] = 0\n  x = X[0 +: 8]\n  " + body + "\n  Y[0 +: 8] = x\n}\n";
}
std::vector<Expected> run_region(const std::string& type, const std::string& body) {
  DType dtype = *dtype_from_name(type);
  return run_kernel(region(type, body), {iota(dtype, {8}), TestTensor(dtype, {8})});
}

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

TEST_CASE("loads outside give the padding or 0, stores outside are dropped") {
  const char* text = R"(tile 1
kernel k(X: i32[M, N], Y: out i32[3, 4], Z: out i32[3, 4], W: out i32[M, N])
grid b < 1
{
  fragment t: i32[3, 4]
  t = X[1 +: 3, -1 +: 4] pad 9
  Y = t
  parallel i < 3, j < 4 { t[i, j] = X[i - 1, j] + t[i, j + 1] }
  Z = t
  W[1 +: 3, 2 +: 4] = t
}
)";
  auto outputs = interpreted(concrete_kernel(text), {iota(DType::I32, {3, 3}, 1), TestTensor(DType::I32, {3, 4}),
                                                     TestTensor(DType::I32, {3, 4}), TestTensor(DType::I32, {3, 3})});
  CHECK(integers(outputs[1]) == Integers{9, 4, 5, 6, 9, 7, 8, 9, 9, 9, 9, 9});
  CHECK(integers(outputs[2]) == Integers{4, 5, 6, 0, 1 + 7, 2 + 8, 3 + 9, 0, 4 + 9, 5 + 9, 6 + 9, 0});
  CHECK(state(outputs[3]) == ".....=..=");
  CHECK(outputs[3][5].bits == 4);
  CHECK(outputs[3][8].bits == 8);
}

TEST_CASE("an index axis outside, and indices near the ends of the integers") {
  const char* text = R"(tile 1
kernel k(X: i32[4, 4], Y: out i32[4], Z: inout i32[4, 4], at: i64)
grid b < 1
{
  fragment t: i32[4]
  t = X[at, :] pad 5
  Y = t
  Z[at, :] = t
  parallel i < 4 { Z[at + i, i] = 1 }
}
)";
  for (int64_t at : {int64_t{4}, int64_t{-1}, INT64_MAX, INT64_MIN}) {
    auto outputs = interpreted(concrete_kernel(text), {iota(DType::I32, {4, 4}), TestTensor(DType::I32, {4}),
                                                       iota(DType::I32, {4, 4}), integer_argument(at)});
    CHECK(integers(outputs[1]) == Integers(4, 5));
    // Row -1 + i is inside for i > 0; the others wrap around to nowhere.
    CHECK(state(outputs[2]) == (at == -1 ? ".=....=....=...." : "................"));
  }
}

TEST_CASE("within bounds the first tile axis, for reads and writes") {
  const char* text = R"(tile 1
kernel k(X: i32[6, 2], offsets: i32[3], Y: out i32[6, 2])
grid e < 2
{
  fragment t: i32[4, 2]
  let first = offsets[e], len = offsets[e + 1] - first
  t = X[first +: 4, :] within first +: len pad -1
  Y[first +: 4, :] within first +: len = t
}
)";
  TestTensor offsets(DType::I32, {3});
  offsets.list({0, 2, 5});
  auto y = run_kernel(text, {iota(DType::I32, {6, 2}), offsets, TestTensor(DType::I32, {6, 2})});
  CHECK(state(y) == "==========..");
  for (size_t i = 0; i < 10; ++i) CHECK(y[i].bits == static_cast<int64_t>(i));
  offsets.list({2, 0, 5});  // a negative length: nothing
  y = run_kernel(text, {iota(DType::I32, {6, 2}), offsets, TestTensor(DType::I32, {6, 2})});
  CHECK(state(y) == "========....");
}

TEST_CASE("gathered axes") {
  const char* text = R"(tile 1
kernel k(X: i32[5, 2], index: i32[2, 4], Y: out i32[4, 2], Z: out i32[5, 2])
grid b < 1
{
  fragment t: i32[4, 2], rows: i64[4]
  t = X[index[1, 0 +: 4], :] pad -7
  Y = t
  rows = index[0, :]
  Z[rows, :] = t
}
)";
  TestTensor index(DType::I32, {2, 4});
  index.list({0, 3, 3, 99, 4, -1, 0, 5});
  auto outputs = interpreted(concrete_kernel(text), {iota(DType::I32, {5, 2}), index, TestTensor(DType::I32, {4, 2}),
                                                     TestTensor(DType::I32, {5, 2})});
  CHECK(integers(outputs[2]) == Integers{8, 9, -7, -7, 0, 1, -7, -7});
  CHECK(state(outputs[3]) == "==....uu..");  // row 3 is selected twice
}

TEST_CASE("atomics: integers exact, floats in any order") {
  const char* text = R"(tile 1
kernel k(X: f32[N], S: inout f32[2], I: inout i32[4], H: inout f16[1])
grid b < ceildiv(N, 16)
{
  fragment x: f32[16]
  x = X[b*16 +: 16]
  parallel i < 16 {
    atomic S[i % 2] += x[i]
    atomic I[0] += 1
    atomic max I[1] = i32(b*16 + i)
    atomic min I[2] = i32(x[i] * 100)
    atomic H[0] += x[i]
    atomic I[i + 3] += 5
  }
}
)";
  TestTensor X(DType::F32, {64});
  X.random(3);
  auto outputs = interpreted(concrete_kernel(text), {X, TestTensor(DType::F32, {2}).fill(1),
                                                     TestTensor(DType::I32, {4}).fill(7), TestTensor(DType::F16, {1})});
  double sum[2] = {1, 1}, half = 0, least = 7;
  for (int64_t i = 0; i < 64; ++i) {
    sum[i % 2] += X.get(i);
    half += X.get(i);
    least = std::min(least, std::trunc(round_float(DType::F32, X.get(i) * 100)));
  }
  for (int i = 0; i < 2; ++i) {
    CHECK(std::abs(outputs[1][static_cast<size_t>(i)].value - sum[i]) <= outputs[1][static_cast<size_t>(i)].bound);
    CHECK(outputs[1][static_cast<size_t>(i)].bound < 1e-4);
  }
  CHECK(integers(outputs[2]) == Integers{7 + 64, 63, static_cast<int64_t>(least), 7 + 20});
  CHECK(std::abs(outputs[3][0].value - half) <= outputs[3][0].bound);
  CHECK(outputs[3][0].bound < 2);
  // Every order of adding in f16 stays within.
  std::mt19937 engine(1);
  std::vector<double> terms = X.values();
  for (int round = 0; round < 200; ++round) {
    std::shuffle(terms.begin(), terms.end(), engine);
    double total = 0;
    for (double term : terms) total = round_float(DType::F16, total + round_float(DType::F16, term));
    CHECK(std::abs(total - outputs[3][0].value) <= outputs[3][0].bound);
  }
}

TEST_CASE("tile atomics; reading what others add to is undecided") {
  const char* text = R"(tile 1
kernel k(C: inout i32[4], Y: out i32[2, 4])
grid b < 2
{
  fragment t: i32[4] = 3
  atomic C[0 +: 4] += t
  t = C
  Y[b, :] = t
}
)";
  auto outputs = interpreted(concrete_kernel(text), {iota(DType::I32, {4}), TestTensor(DType::I32, {2, 4})});
  CHECK(integers(outputs[0]) == Integers{6, 7, 8, 9});
  CHECK(state(outputs[1]) == "uuuuuuuu");
}

TEST_CASE("four-bit tiles and tensors") {
  const char* text = R"(tile 1
kernel k(X: i4[3, 5], Y: out u4[3, 5], Z: out i32[3, 5])
grid b < 1
{
  shared q: i4[3, 5], u: u4[3, 5]
  fragment z: i32[3, 5]
  q = X
  parallel i < 3, j < 5 { z[i, j] = q[i, j] * 2  u[i, j] = q[i, j] + 20 }
  Y = u
  Z = z
}
)";
  TestTensor X(DType::I4, {3, 5});
  X.random(1, -8, 8);
  auto outputs = interpreted(concrete_kernel(text), {X, TestTensor(DType::U4, {3, 5}), TestTensor(DType::I32, {3, 5})});
  auto y = integers(outputs[1]), z = integers(outputs[2]);
  for (size_t i = 0; i < 15; ++i) {
    auto x = static_cast<int64_t>(X.get(static_cast<int64_t>(i)));
    CHECK(z[i] == 2 * x);
    CHECK(y[i] == ((x + 20) & 15));
  }
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

TEST_CASE("a right result passes and a slightly wrong one is noticed") {
  const char* text = R"(tile 1
kernel k(A: f16[16, K], B: f16[16, K], C: out f16[16, 16])
grid g < 1
{
  shared a: f16[16, 32], b: f16[16, 32]
  fragment c: f32[16, 16] = 0
  for k < ceildiv(K, 32) {
    a = A[:, k*32 +: 32]
    b = B[:, k*32 +: 32]
    c += a @ b^T
  }
  parallel i < 16, j < 16 { c[i, j] = tanh(c[i, j] * 0.25) }
  C = c
}
)";
  const int64_t K = 500;
  TestTensor A(DType::F16, {16, K}), B(DType::F16, {16, K}), C(DType::F16, {16, 16}), before = C;
  A.random(1);
  B.random(2);
  auto expected = run_kernel(text, {A, B, C});
  const auto mistakes = [&](auto&& term) {
    TestTensor out = C;
    for (int64_t i = 0; i < 16; ++i)
      for (int64_t j = 0; j < 16; ++j) {
        float sum = 0;
        for (int64_t k = 0; k < K; ++k) sum += static_cast<float>(term(i, j, k));
        out.set(i * 16 + j, std::tanh(sum * 0.25f));
      }
    Mismatch result = compare(expected, out.host(), before.host());
    CHECK(result.undecided == 0);
    CHECK(result.median_bound_ulps < 4);
    return result.count;
  };
  const auto right = [&](int64_t i, int64_t j, int64_t k) { return A.get(i * K + k) * B.get(j * K + k); };
  CHECK(mistakes(right) == 0);
  CHECK(mistakes([&](int64_t i, int64_t j, int64_t k) { return k + 1 == K ? 0 : right(i, j, k); }) > 128);
  CHECK(mistakes([&](int64_t i, int64_t j, int64_t k) { return right(i, j ^ (k == 77), k); }) > 128);
  CHECK(mistakes([&](int64_t i, int64_t j, int64_t k) { return round_float(DType::F16, right(i, j, k)); }) > 16);
}

std::string launch_failure(const std::vector<Argument>& args) {
  static const Kernel kernel = concrete_kernel(R"(tile 1
kernel k(A: f32[M, K], B: f16[K, 4], Q: u4[M, L], C: inout f32[M, M + 1], s: f32)
where M % 2 == 0, s > 0
grid b < M { }
)");
  auto result = interpret(kernel, args);
  if (result.ok()) return "";
  CHECK(result.status().code() == Code::kInvalid);
  return result.status().message();
}

TEST_CASE("launch checks") {
  const TestTensor a(DType::F32, {4, 6}), b(DType::F16, {6, 4}), q(DType::U4, {4, 6}), c(DType::F32, {4, 5});
  const Argument s = f32_argument(1);
  CHECK(launch_failure({a, b, q, c, s}) == "");
  CHECK(launch_failure({a, b, q, c}) == "`k` takes 5 arguments, not 4");
  CHECK(launch_failure({b, b, q, c, s}) == "`A` is f16, the kernel was specialised for f32");
  CHECK(launch_failure({TestTensor(DType::F32, {4, 6, 1}), b, q, c, s}) ==
        "`A` has 3 axes and 3 strides, the kernel declares 2 axes");
  CHECK(launch_failure({a, TestTensor(DType::F16, {5, 4}), q, c, s}) ==
        "axis 0 of `B` has 5 elements, but `K` is 6, expected 6");
  CHECK(launch_failure({a, TestTensor(DType::F16, {6, 3}), q, c, s}) == "axis 1 of `B` has 3 elements, expected 4");
  CHECK(launch_failure({a, b, q, TestTensor(DType::F32, {4, 4}), s}) == "axis 1 of `C` has 4 elements, expected 5");
  const TestTensor a3(DType::F32, {3, 6}), q3(DType::U4, {3, 6}), c3(DType::F32, {3, 4});
  CHECK(launch_failure({a3, b, q3, c3, s}) == "`where` condition 1 of `k` does not hold");
  CHECK(launch_failure({a, b, q, c, f32_argument(-1)}) == "`where` condition 2 of `k` does not hold");
  HostTensor bad = a.host();
  bad.shape[0] = -4;
  CHECK(launch_failure({{bad, {}}, b, q, c, s}) == "`A` has a negative extent");
  bad = a.host();
  bad.data = nullptr;
  CHECK(launch_failure({{bad, {}}, b, q, c, s}) == "`A` has elements but no memory");
  bad = q.host();
  bad.strides = {7, 1};
  CHECK(launch_failure({a, b, {bad, {}}, c, s}) ==
        "`Q` is u4, so its last axis must have stride 1 and the others even strides; axis 0 has 7");
  bad.strides = {6, 2};
  CHECK(launch_failure({a, b, {bad, {}}, c, s}) ==
        "`Q` is u4, so its last axis must have stride 1 and the others even strides; axis 1 has 2");
  bad = c.host();
  bad.strides = {0, 1};
  CHECK(launch_failure({a, b, q, {bad, {}}, s}) == "`C` is written, but its axis 0 has stride 0");
  ParseResult generic = parse("tile 1\nkernel k<T: f16 | f32>(A: T[M], C: out T[M])\ngrid b < 1 { }\n");
  auto result = interpret(generic.module.kernels.at(0), {a, c});
  CHECK(result.status().message() == "`k` is not concrete; instantiate it first");
}

TEST_CASE("the step limit ends what would not") {
  Kernel kernel = concrete_kernel(R"(tile 1
kernel k(X: f32[4], C: out f32[4])
grid b < 1
{
  fragment x: f32[4]
  for k < 1000000000000 { x = X }
  C = x
}
)");
  const TestTensor x(DType::F32, {4});
  auto result = interpret(kernel, {x, x}, 1 << 20);
  REQUIRE_FALSE(result.ok());
  CHECK(result.status().code() == Code::kUnsupported);
}

// The same region, rebuilt from its normal form.
Kernel normalised(const Kernel& kernel) {
  Kernel copy = kernel;
  std::function<void(Block&)> walk = [&](Block& body) {
    for (Stmt& stmt : body) {
      if (auto* loop = std::get_if<ForStmt>(&stmt.node)) walk(loop->body);
      if (auto* choice = std::get_if<IfStmt>(&stmt.node)) {
        walk(choice->then_body);
        walk(choice->else_body);
      }
      auto* region = std::get_if<ParallelStmt>(&stmt.node);
      if (!region) continue;
      ForwardedRegion forwarded = forward_stores(*region);
      region->body.clear();
      for (const LetStmt& let : forwarded.lets) region->body.push_back({{}, let});
      for (const GuardedStore& store : forwarded.stores) {
        for (const ExprRef& index : store.store.indices)
          visit(index, [](const ExprRef& node) { CHECK(node->kind != ExprKind::kLoad); });
        CHECK((is_const(store.store.value) || store.store.value->kind == ExprKind::kVar));
        if (store.guard)
          region->body.push_back({{}, IfStmt{store.guard, {{{}, store.store}}, {}}});
        else
          region->body.push_back({{}, store.store});
      }
    }
  };
  walk(copy.body);
  return copy;
}

TEST_CASE("forward_stores keeps the meaning of a region") {
  const char* bodies[] = {
      "parallel i < 8 { x[i] = x[7 - i] }",
      "parallel i < 8 { x[i] = x[i] + 10  x[i] = x[i] * 2  y[i] = x[i]  x[i] = y[i] - x[7 - i] }",
      "parallel i < 8 { let old = x[i]  x[i] = 100  x[i] = x[i] + old }",
      "parallel i < 8 { if i < 4 { x[i] = 50 }  x[i] = x[i] + 1 }",
      "parallel i < 8 { if i < 4 { x[i] = 50  if i > 1 { x[i] += 3 } } else { x[i] += 1  x[i] *= 2 }  y[i] = x[i]  "
      "x[i] = y[i] }",
      "parallel i < 8 { x[i] = sum[k < 8](x[k] * x[i]) + x[i]  x[i] = x[i] - max[k < 8](x[k] + x[i]) }",
      "parallel i < 8 { if x[i] % 2 == 0 { x[i] = x[i] + 1 }  if x[i] % 2 == 0 { x[i] = 0 - x[i] } else { x[i] = x[i] "
      "* 3 } }",
      "parallel i < 8 { y[x[i]] = i  y[x[i]] += 5  x[7 - x[i]] = y[x[i]] }",
      "parallel i < 8 { x[i] = 1  if i > 100 { x[i] = 2 }  x[7 - i] = x[i] + 5 }",
  };
  for (std::string type : {"i32", "u8", "f16", "i64"})
    for (const char* body : bodies) {
      if (type == "f16" &&
          (std::string(body).find("x[x") != std::string::npos || std::string(body).find('%') != std::string::npos ||
           std::string(body).find("y[x") != std::string::npos))
        continue;
      CAPTURE(type);
      CAPTURE(body);
      DType dtype = *dtype_from_name(type);
      Kernel kernel = concrete_kernel(region(type, body));
      const TestTensor x = iota(dtype, {8}), y(dtype, {8});
      auto direct = interpreted(kernel, {x, y})[1], rebuilt = interpreted(normalised(kernel), {x, y})[1];
      REQUIRE(direct.size() == rebuilt.size());
      for (size_t i = 0; i < direct.size(); ++i) {
        CHECK(direct[i].undecided == rebuilt[i].undecided);
        CHECK(direct[i].value == rebuilt[i].value);
        CHECK(direct[i].bits == rebuilt[i].bits);
      }
    }
}

TEST_CASE("forward_stores drops overwritten assignments and loads of values nobody reads") {
  Kernel kernel = concrete_kernel(region("i32", "parallel i < 8 { x[i] = 3  if i < 4 { y[i] = 2 }  x[i] = x[i] + 1 }"));
  for (const Stmt& stmt : kernel.body)
    if (const auto* parallel = std::get_if<ParallelStmt>(&stmt.node)) {
      ForwardedRegion forwarded = forward_stores(*parallel);
      REQUIRE(forwarded.stores.size() == 2);
      CHECK(forwarded.stores[0].store.buffer->name == "y");
      CHECK(forwarded.stores[0].guard != nullptr);
      CHECK(is_int(forwarded.stores[1].store.value, 4));
      CHECK(forwarded.stores[1].guard == nullptr);
      for (const LetStmt& let : forwarded.lets)
        visit(let.value, [](const ExprRef& node) { CHECK(node->kind != ExprKind::kLoad); });
    }
}

}  // namespace
}  // namespace kachel::ir
