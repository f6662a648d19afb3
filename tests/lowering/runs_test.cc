// Loops whose products begin new sums in every iteration: which of them take two sets of registers in turn, and that
// others are none the worse for it.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include "tests/lowering/lowered_text.h"
#include "tests/lowering/settled_case.h"

namespace kachel::lowering {
namespace {

// `work` on s, which is new in every iteration; `before` it within the loop, `behind` the loop.
std::string text_of(const std::string& work, const std::string& behind = "", const std::string& before = "") {
  return fmt::format(R"(tile 1
kernel fresh(A: f16[M, K], B: f16[N, K], C: out f32[M, N], D: out f32[M, N])
grid i < ceildiv(M, 64), j < ceildiv(N, 64)
{{
  shared a: f16[64, 64], b: f16[64, 64]
  fragment c: f32[64, 64] = 0, s: f32[64, 64]{}
  pipelined k in 1 .. ceildiv(K, 64), 3 {{
    a = A[i*64 +: 64, k*64 +: 64]
    b = B[j*64 +: 64, k*64 +: 64]
    s = a @ b^T
    {}
    {}
  }}
  C[i*64 +: 64, j*64 +: 64] = c
  {}
}}
)",
                     behind.empty() ? "" : " = 0", before, work, behind);
}

const char* const kAdd = "parallel x < 64, y < 64 { c[x, y] += max(s[x, y], k) }";

bool alternates(const std::string& text) {
  Request request{text};
  request.target.architecture = 90;
  return has(lowered(request).loop_ir, "s_other");
}

void check_results(const std::string& text) {
  for (const int64_t k : {0, 64, 128, 192, 256, 328}) {
    CAPTURE(k);
    conformance::Wishes wishes;
    wishes.values = {{"M", 64}, {"N", 40}, {"K", k}};
    wishes.aligned = {"A", "B"};
    wishes.cluster = 1;
    const conformance::Case test = settled_case(text, 90, wishes, 7);
    const auto [prepared, kernel] = lowered(test);
    for (ThreadOrder order : {ThreadOrder::kForward, ThreadOrder::kShuffled}) {
      const conformance::Report report = simulate_case(*prepared, kernel, order);
      CHECK_MESSAGE(report.passed(), report.describe());
    }
  }
}

TEST_CASE("work on new sums runs beside the next iteration's products") {
  CHECK(alternates(text_of(kAdd)));
  check_results(text_of(kAdd));
}

TEST_CASE("sums that something else wants stay where they are") {
  const std::string wanted = text_of(kAdd, "D[i*64 +: 64, j*64 +: 64] = s");
  CHECK(!alternates(wanted));
  check_results(wanted);
}

TEST_CASE("what work reads of a stage is read before the stage is released") {
  const std::string read = text_of("parallel x < 64, y < 64 { c[x, y] += w * max(s[x, y], k) }", "", "let w = a[3, 5]");
  CHECK(!alternates(read));
  check_results(read);
}

TEST_CASE("names are not written out where that is much") {
  std::string lets = "let x0 = k\n";
  for (int i = 1; i < 40; ++i) lets += fmt::format("    let x{0} = max(x{1} * 3, x{1} + {0})\n", i, i - 1);
  const std::string chain = text_of("parallel x < 64, y < 64 { c[x, y] += s[x, y] * x39 }", "", lets);
  CHECK(!alternates(chain));
  Request request{chain};
  request.target.architecture = 90;
  CHECK(lowered(request).text.size() < 200'000);
}

}  // namespace
}  // namespace kachel::lowering
