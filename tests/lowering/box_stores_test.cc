// Results that the copy engine stores: boxes in shared memory are written again only once they have been read.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include "ir/parse.h"
#include "tests/conformance/examples.h"
#include "tests/lowering/simulated_case.h"

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
    auto module = ir::load(product_text(columns), "product");
    REQUIRE_MESSAGE(module.ok(), module.status().message() << module.status().log());
    conformance::Random random(5);
    conformance::Wishes wishes;
    wishes.values = {{"K", 64}, {"M", 128 * 3}};
    wishes.aligned = {"A", "B", "C"};
    auto test = conformance::random_case(module->kernels[0], 24, random, wishes);
    REQUIRE(test.has_value());
    test->threads = 0;
    test->teams = 1;
    test->cluster = 1;
    test->architecture = 90;
    test->shared_limit = 0;
    test->most_blocks = 1;
    test->fact_mask = ~uint64_t{0};
    auto prepared = conformance::Prepared::make(*test);
    REQUIRE(prepared.ok());
    auto kernel = lower_case(**prepared);
    REQUIRE(kernel.ok());
    const std::string loops = print(*kernel);
    CAPTURE(loops);
    CHECK(loops.find("bulk_store ") != loops.npos);
    for (ThreadOrder order : {ThreadOrder::kForward, ThreadOrder::kReversed, ThreadOrder::kShuffled}) {
      const conformance::Report report = simulate_case(**prepared, *kernel, order);
      CHECK_MESSAGE(report.passed(), report.describe());
    }
  }
}

}  // namespace
}  // namespace kachel::lowering
