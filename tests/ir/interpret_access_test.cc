// What the interpreter takes accesses to mean: outside of buffers, gathered, atomic, of 4 bits.
#include <algorithm>

#include "ir/print.h"
#include "tests/ir/interpret_values.h"

namespace kachel::ir {
namespace {

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

TEST_CASE("an infinite sum of blocks is one only where no order of the others makes the other infinity") {
  const char* text = R"(tile 1
kernel k(X: f16[4, 2], S: inout f16[2])
grid b < 4
{
  parallel i < 2 { atomic S[i] += f32(X[b, i]) }
}
)";
  TestTensor X(DType::F16, {4, 2}), S(DType::F16, {2});
  const double inf = std::numeric_limits<double>::infinity();
  for (int64_t at = 0; const double value : {60000.0, 600.0, 60000.0, 600.0, -inf, -inf, 1.0, 1.0}) X.set(at++, value);
  auto outputs = interpreted(concrete_kernel(text), {X, S});
  CHECK(outputs[1][0].undecided);
  CHECK(!outputs[1][1].undecided);
  CHECK(outputs[1][1].value == -inf);
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

}  // namespace
}  // namespace kachel::ir
