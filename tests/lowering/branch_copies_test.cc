// Copies under conditions in pipelined loops (branch_copies.cc).
#include "tests/lowering/lowered_text.h"

namespace kachel::lowering {
namespace {

constexpr Target kHopper{.kind = Target::Kind::kCuda, .architecture = 90, .shared_limit = 227 * 1024};

Lowered product(const std::string& body, const Target& target = kHopper) {
  return lowered(
      {"tile 1\nkernel product(A: f16[M, K], B: f16[N, K], C: f16[N, K], there: u8[K], Y: out f32[M, N])\n"
       "grid i < ceildiv(M, 128), j < ceildiv(N, 64)\n{\n"
       "  shared a: f16[128, 64], b: f16[64, 64], c: f16[64, 64]\n  fragment acc: f32[128, 64] = 0\n"
       "  pipelined k < ceildiv(K, 64), 3 {\n" +
           body + "\n  }\n  Y[i*128 +: 128, j*64 +: 64] = acc\n}\n",
       {},
       target});
}

const std::string kLeft = "a = A[i*128 +: 128, k*64 +: 64]\n", kRight = "b = B[j*64 +: 64, k*64 +: 64]\n",
                  kOther = "b = C[j*64 +: 64, k*64 +: 64]\n", kSum = "acc += a @ b^T\n";

std::string ahead_of(const Lowered& result) {
  const size_t producer = result.loop_ir.find("producer, for tile");
  return producer == std::string::npos ? "" : result.loop_ir.substr(producer);
}

TEST_CASE("one of two tensors is copied ahead, by the copy engine and by the threads that read") {
  const std::string either = kLeft + "if j < 3 { " + kRight + "} else { " + kOther + "}\n" + kSum;
  const Lowered result = product(either);
  CAPTURE(result.notes);
  CAPTURE(result.loop_ir);
  CHECK(has(result.notes, "pipeline k: depth 3, the copy engine into {a, b}"));
  const std::string ahead = ahead_of(result);
  CHECK(has(ahead, "phase_expect 24576 full"));  // whichever it is
  CHECK(has(ahead, "bulk_copy 1 b"));
  CHECK(has(ahead, "bulk_copy 2 b"));
  CHECK(!has(result.loop_ir.substr(0, result.loop_ir.size() - ahead.size()), "bulk_copy"));

  const Target ampere{.kind = Target::Kind::kCuda, .architecture = 80, .shared_limit = 160 * 1024};
  CHECK(has(product(either, ampere).notes, "asynchronous copies into {a, b}"));
}

TEST_CASE("what is skipped is not copied, and its stage expects no bytes") {
  const Lowered result =
      product("let w = there[k]\nif w > 1 {\nlet at = k*64\n" + kLeft + "b = B[j*64 +: 64, at +: 64]\n" + kSum + "}\n");
  CAPTURE(result.notes);
  CAPTURE(result.loop_ir);
  CHECK(has(result.notes, "pipeline k: depth 3, the copy engine into {a, b}"));
  const std::string ahead = ahead_of(result);
  CHECK(has(ahead, "phase_expect 24576 full"));
  CHECK(has(ahead, "phase_expect full"));
}

TEST_CASE("stages are expected without bytes where a condition is settled") {
  // What lies outside of a tensor is 0.
  const std::string body = kLeft + kRight + kSum + "}\n";
  const std::string all = ahead_of(product("if there[-1] < 3 {\n" + body));
  CHECK(has(all, "phase_expect 24576 full"));
  CHECK(!has(all, "if "));
  const std::string none = ahead_of(product("if there[-1] > 3 {\n" + body));
  CAPTURE(none);
  CHECK(has(none, "phase_wait empty"));
  CHECK(has(none, "phase_expect full"));
  CHECK(!has(none, "bulk_copy"));
}

TEST_CASE("copies behind the work of a branch are made ahead, too") {
  const Lowered result =
      product("if there[k] != 0 {\n" + kLeft + kRight + kSum + "c = C[j*64 +: 64, k*64 +: 64]\nacc += a @ c^T\n}\n");
  CHECK(has(result.notes, "the copy engine into {a, b, c}"));
}

TEST_CASE("tiles that outlive their branch are copied where they stand") {
  auto why = [](const std::string& body) {
    const std::string notes = product(body).notes;
    CAPTURE(notes);
    CHECK(has(notes, "into {a}"));
    return notes;
  };
  CHECK(has(why(kLeft + "if k % 2 == 0 { " + kRight + "}\n" + kSum),
            "b is not copied ahead: it is read where its condition does not hold"));
  CHECK(has(why(kLeft + "if k % 2 == 0 { " + kRight + "}\nif k % 2 == 0 { acc = 0 } else { " + kSum + "}\n"),
            "b is not copied ahead: it is read where its condition does not hold"));
}

TEST_CASE("a condition that a tile decides, and copies of which a tile decides the place, stay in their iteration") {
  const Lowered result = product(kLeft + "if a[0, 0] > 0 { " + kRight + "} else { " + kOther + "}\n" + kSum);
  CHECK(has(result.notes, "into {a}"));
  CHECK(has(result.notes, "b is not copied ahead: its condition is known in its iteration only"));
  const Lowered placed = product(kLeft + "if k < 2 { let at = i64(a[0, 0])\nb = B[at +: 64, k*64 +: 64] } else { " +
                                 kOther + "}\n" + kSum);
  CHECK(has(placed.notes, "into {a}"));
}

}  // namespace
}  // namespace kachel::lowering
