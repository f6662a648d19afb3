// Results that the copy engine stores: boxes in shared memory are written again only once they have been read.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include "tests/lowering/settled_case.h"

namespace kachel::lowering {
namespace {

// Products of 128 rows and `columns` columns, stored 16 x 16, 32 or 64 at a time, the widest that divides them. So deep
// that one block has a multiprocessor: there is room for boxes.
std::string product_text(int columns) {
  return fmt::format(R"(tile 1
kernel product(A: f16[M, K], B: f16[{0}, K], C: out f16[M, {0}])
grid i < ceildiv(M, 128)
{{
  shared a: f16[128, 64], b: f16[{0}, 64]
  fragment c: f32[128, {0}] = 0
  pipelined k < ceildiv(K, 64), 6 {{
    a = A[i*128 +: 128, k*64 +: 64]
    b = B[:, k*64 +: 64]
    c += a @ b^T
  }}
  C[i*128 +: 128, :] = c
}}
)",
                     columns);
}

TEST_CASE("a block's next tile waits for the boxes of the one before, however many there are") {
  for (int columns : {32, 48, 80, 96, 112, 128, 160}) {
    CAPTURE(columns);
    conformance::Wishes wishes;
    wishes.values = {{"K", 64}, {"M", 128 * 3}};
    wishes.aligned = {"A", "B", "C"};
    conformance::Case test = settled_case(product_text(columns), 90, wishes, 5);
    test.teams = 1;
    test.cluster = 1;
    test.most_blocks = 1;
    const auto [prepared, kernel] = lowered(test);
    const std::string loops = print(kernel);
    CAPTURE(loops);
    CHECK(loops.find("bulk_store ") != loops.npos);
    for (ThreadOrder order : {ThreadOrder::kForward, ThreadOrder::kReversed, ThreadOrder::kShuffled}) {
      const conformance::Report report = simulate_case(*prepared, kernel, order);
      CHECK_MESSAGE(report.passed(), report.describe());
    }
  }
}

}  // namespace
}  // namespace kachel::lowering
