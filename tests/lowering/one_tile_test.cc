// Blocks that compute one tile each: what they leave out, and what may lie where stages were.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include "tests/lowering/lowered_text.h"
#include "tests/lowering/settled_case.h"

namespace kachel::lowering {
namespace {

std::string product_text(int rows, int columns, int stages) {
  return fmt::format(R"(tile 1
kernel product(A: f16[M, K], B: f16[N, K], C: out f16[M, N])
grid i < ceildiv(M, {0}), j < ceildiv(N, {1})
{{
  shared a: f16[{0}, 64], b: f16[{1}, 64]
  fragment c: f32[{0}, {1}] = 0
  pipelined k < ceildiv(K, 64), {2} {{
    a = A[i*{0} +: {0}, k*64 +: 64]
    b = B[j*{1} +: {1}, k*64 +: 64]
    c += a @ b^T
  }}
  C[i*{0} +: {0}, j*{1} +: {1}] = c
}}
)",
                     rows, columns, stages);
}

Lowered product(int rows, int columns, int stages, bool one_tile) {
  Request request{product_text(rows, columns, stages)};
  request.target.architecture = 90;
  request.target.one_tile = one_tile;
  return lowered(request);
}

TEST_CASE("tiles of which memory says whether there is anything to do are dealt out by the device") {
  const auto resident = [](const std::string& condition) {
    std::string text = product_text(128, 128, 3);
    text.replace(text.find("C: out"), 6, "L: i32[M], C: out");
    text.replace(text.find("  pipelined"), 0, "  let most = L[0]\n  if " + condition + " {\n");
    text.replace(text.rfind('}'), 0, "}\n");
    Request request{text};
    request.target.architecture = 90;
    return lowered(request).resident;
  };
  CHECK_FALSE(resident("i*128 < most"));
  CHECK(resident("i*128 < K"));
}

TEST_CASE("no second team, no loop over tiles, and results are stored from where stages were") {
  const Lowered many = product(64, 128, 8, false), one = product(64, 128, 8, true);
  CAPTURE(one.loop_ir);
  CHECK(has(many.loop_ir, "in each of 2 teams"));
  CHECK(!has(one.loop_ir, "teams"));
  CHECK(has(one.loop_ir, "for tile tile, one a block"));
  CHECK(has(one.notes, "tiles: one a block"));
  CHECK(one.one_tile);
  CHECK_FALSE(one.resident);
  CHECK(many.resident);
  CHECK(one.shared_bytes <= 8 * (64 + 128) * 64 * 2 + 1024);
  CHECK(many.shared_bytes > 8 * (64 + 128) * 64 * 2 + 1024);
  // Nine stages leave no room beside them, but afterwards.
  CHECK(has(product(64, 128, 9, false).notes, "by threads (shared memory has no room for its boxes)"));
  CHECK(has(product(64, 128, 9, true).notes, "by the copy engine, 2 boxes of 16 x 64 a warp"));
}

TEST_CASE("nobody stores to stages that another warp group still reads") {
  for (const auto& [rows, columns, stages] : {std::tuple(64, 128, 9), {128, 64, 2}}) {
    conformance::Wishes wishes;
    wishes.values = {{"M", 72}, {"N", 136}, {"K", 136}};
    wishes.aligned = {"A", "B", "C"};
    wishes.one_tile = 1;
    for (const int cluster : {1, 2}) {
      CAPTURE(rows);
      CAPTURE(cluster);
      wishes.cluster = cluster;
      const conformance::Case test = settled_case(product_text(rows, columns, stages), 90, wishes, 3);
      const auto [prepared, kernel] = lowered(test);
      REQUIRE(kernel.one_tile);
      const std::string loops = print(kernel);
      CAPTURE(loops);
      CHECK(loops.find("bulk_store ") != loops.npos);
      for (ThreadOrder order : {ThreadOrder::kForward, ThreadOrder::kShuffled}) {
        const conformance::Report report = simulate_case(*prepared, kernel, order);
        CHECK_MESSAGE(report.passed(), report.describe());
      }
    }
  }
}

TEST_CASE("tiles in global memory need blocks that go on") {
  Request request{product_text(64, 128, 4)};
  request.target.architecture = 90;
  request.target.one_tile = true;
  request.target.shared_limit = 1024;
  const Lowered small = lowered(request);
  CHECK((small.workspace_bytes == 0 || !small.one_tile));
}

}  // namespace
}  // namespace kachel::lowering
