// What a producer does itself, beside the copy engine: rows named by an index, and what regions read in every iteration.
#include "tests/lowering/lowered_text.h"

namespace kachel::lowering {
namespace {

constexpr Target kHopper{.kind = Target::Kind::kCuda, .architecture = 90, .shared_limit = 227 * 1024};

// C = A W^T, where `left` and `right` copy the tiles and `work` stands in front of the product with `operand`.
Request product(const std::string& left, const std::string& right, const std::string& work = "", const std::string& operand = "x") {
  return {R"(tile 1
kernel product(X: f16[R, K], W: f16[N, K], rows: i32[M], gain: f16[K], pairs: f16[K, 2], C: out f16[M, N])
tune stages = 4 | 1
grid i < ceildiv(M, 128), j < ceildiv(N, 128)
{
  shared x: f16[128, 64], w: f16[128, 64]
  fragment a: f16[128, 64], c: f32[128, 128] = 0
  pipelined k < ceildiv(K, 64), stages {
    )" + left + "\n    " + right + "\n    " + work + "\n    c += " + operand + R"( @ w^T
  }
  C[i*128 +: 128, j*128 +: 128] = c
}
)",
          {},
          kHopper};
}

const std::string kRows = "x = X[i*128 +: 128, k*64 +: 64]", kGathered = "x = X[rows[i*128 +: 128], k*64 +: 64]",
                  kColumns = "w = W[j*128 +: 128, k*64 +: 64]", kNamed = "w = W[rows[j*128 +: 128], k*64 +: 64]";

TEST_CASE("rows that an index names are copied by the producer's threads, beside the copy engine") {
  const Lowered result = lowered(product(kGathered, kColumns));
  CAPTURE(result.notes);
  CAPTURE(result.loop_ir);
  CHECK(has(result.notes, "pipeline k: depth 4, the copy engine into {x, w} (in part by the producer's threads: rows of X are named by an index)"));
  CHECK(has(result.notes, "role producer: threads 256..384"));
  // The engine's bytes and the first thread's arrival, then one of each thread that copies.
  CHECK(has(result.loop_ir, "phases full: 4 of 129 arrivals"));
  const size_t producer = result.loop_ir.find("producer, for tile");
  REQUIRE(producer != std::string::npos);
  const std::string ahead = result.loop_ir.substr(producer), body = result.loop_ir.substr(0, producer);
  CHECK(has(ahead, "phase_expect 16384 full"));
  CHECK(has(ahead, "threads e < 128"));
  CHECK(ahead.find("bulk_copy w") < ahead.find("copy_async x"));
  CHECK(ahead.find("copy_async x") < ahead.find("phase_copied full"));
  CHECK(!has(body, "copy_async"));
  CHECK(body.find("proxy_fence") < body.find("group_mma"));
  CHECK(!has(lowered(product(kRows, kColumns)).loop_ir, "phase_copied"));

  const Lowered neither = lowered(product(kGathered, kNamed));
  CHECK(has(neither.notes, "asynchronous copies into {x, w} (without the copy engine: rows of X are named by an index)"));
}

TEST_CASE("what a region reads in every iteration is a tile of the stages") {
  const std::string scale = "parallel r < 128, d < 64 { a[r, d] = f32(x[r, d]) * gain[k*64 + d] }";
  const Lowered result = lowered(product(kRows, kColumns, scale, "a"));
  CAPTURE(result.notes);
  CAPTURE(result.loop_ir);
  CHECK(has(result.notes, "the copy engine into {gain_tile, x, w} (in part by the producer's threads: gain_tile does not lie in slabs)"));
  CHECK(has(result.loop_ir, "gain_tile["));
  CHECK(has(result.loop_ir, "copy_async gain_tile"));

  Request ampere = product(kRows, kColumns, scale, "a");
  ampere.target.architecture = 80;
  CHECK(has(lowered(ampere).notes, "asynchronous copies into {gain_tile, x, w}"));
  Request one_stage = product(kRows, kColumns, scale, "a");
  one_stage.tunables = {{"stages", 1}};
  CHECK(!has(lowered(one_stage).notes, "gain_tile"));
  // Not what is the same in every iteration, lies apart, is too narrow for cp.async or is read under a condition.
  for (const char* other : {"gain[d]", "pairs[k*64 + d, 0]", "gain[k*64 + d + 1]", "(k < 3 ? gain[k*64 + d] : 1)"})
    CHECK(!has(lowered(product(kRows, kColumns, std::string("parallel r < 128, d < 64 { a[r, d] = f32(x[r, d]) * ") + other + " }", "a")).notes,
               "_tile"));
}

}  // namespace
}  // namespace kachel::lowering
