// Judging results against the interpreter, and launches that it refuses.
#include <algorithm>

#include "ir/print.h"
#include "tests/ir/interpret_values.h"

namespace kachel::ir {
namespace {

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

}  // namespace
}  // namespace kachel::ir
