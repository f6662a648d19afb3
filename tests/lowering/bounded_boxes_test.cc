// Rows that `within` bounds, by the copy engine (bounded_boxes.cc).
#include "tests/lowering/lowered_text.h"

namespace kachel::lowering {
namespace {

constexpr Target kHopper{.kind = Target::Kind::kCuda, .architecture = 90, .shared_limit = 227 * 1024};

Lowered rows_of(const std::string& source, const std::string& store, const Target& target = kHopper) {
  return lowered(
      {"tile 1\nkernel grouped(X: f16[R, K], W: f16[N, K], first: i32[E], Y: out f16[R, N])\n"
       "grid e < E, m < ceildiv(R, 128), n < ceildiv(N, 128)\n{\n"
       "  shared x: f16[128, 64], w: f16[128, 64]\n  fragment acc: f32[128, 128] = 0\n"
       "  let from = first[e], rows = first[e + 1] - from\n"
       "  pipelined k < ceildiv(K, 64), 3 {\n    x = " +
           source + "\n    w = W[n*128 +: 128, k*64 +: 64]\n    acc += x @ w^T\n  }\n  " + store + " = acc\n}\n",
       {},
       target});
}

const std::string kRows = "X[from + m*128 +: 128, k*64 +: 64]", kBound = " within from +: rows",
                  kStored = "Y[from + m*128 +: 128, n*128 +: 128]";

TEST_CASE("rows that a bound does not cut go in a box, those at an end by the producer's threads") {
  const Lowered result = rows_of(kRows + kBound, kStored + kBound);
  CAPTURE(result.notes);
  CAPTURE(result.loop_ir);
  CHECK(has(result.notes, "the copy engine into {x, w} (in part by the producer's threads"));
  CHECK(has(result.notes, "store Y[i64(from) + m * 128 +: 128, n * 128 +: 128]: by the copy engine"));
  const std::string ahead = result.loop_ir.substr(result.loop_ir.find("producer, for tile"));
  const size_t expected = ahead.find("phase_expect 16384 full"), branch = ahead.find("if i64(from) <= "),
               more = ahead.find("phase_bytes 16384 full"), other = ahead.find("} else {", more),
               copied = ahead.find("copy_async x", other), told = ahead.find("phase_copied full", copied);
  CHECK(expected < branch);
  CHECK(branch < more);
  CHECK(more < ahead.find("bulk_copy 1 x"));
  CHECK(ahead.find("bulk_copy 1 x") < other);
  CHECK(other < copied);
  CHECK(copied < told);
  CHECK(told != std::string::npos);
}

TEST_CASE("what has no box, or need not have one, stays as it is") {
  CHECK(!has(rows_of(kRows, kStored).loop_ir, "phase_bytes"));
  CHECK(!has(rows_of(kRows + " within from +: rows pad 1", kStored).loop_ir, "phase_bytes"));
  const Target ampere{.kind = Target::Kind::kCuda, .architecture = 80, .shared_limit = 160 * 1024};
  CHECK(!has(rows_of(kRows + kBound, kStored + kBound, ampere).loop_ir, "from) <= "));
}

}  // namespace
}  // namespace kachel::lowering
