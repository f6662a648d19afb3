// Which copies two blocks make for each other, and what they have to tell each other then.
#include <doctest/doctest.h>

#include "tests/lowering/lowered_text.h"

namespace kachel::lowering {
namespace {

Lowered product(const std::string& end, int cluster = 2) {
  Request request{R"(tile 1
kernel product(A: f16[M, K], B: f16[N, K], C: out f16[M, N])
grid i < ceildiv(M, 128), j < ceildiv(N, 256)
{
  shared a: f16[128, 64], b: f16[256, 64]
  fragment c: f32[128, 256] = 0
  pipelined k < )" +
                  end + R"(, 4 {
    a = A[i*128 +: 128, k*64 +: 64]
    b = B[j*256 +: 256, k*64 +: 64]
    c += a @ b^T
  }
  C[i*128 +: 128, j*256 +: 256] = c
}
)"};
  request.target.architecture = 90;
  request.target.cluster = cluster;
  return lowered(request);
}

TEST_CASE("two blocks copy halves of what both read, and tell both when it is released") {
  const Lowered pair = product("ceildiv(K, 64)");
  CAPTURE(pair.loop_ir);
  CHECK(pair.cluster == 2);
  CHECK(has(pair.notes, "cluster: 2 blocks"));
  CHECK(has(pair.loop_ir, "bulk_copy multicast 2 b[into * 16384 + rank * 128 * 64 +: 8192]"));
  CHECK(has(pair.loop_ir, "bulk_copy multicast a[into * 8192 + rank * 64 * 64 +: 4096]"));
  // Whole boxes where the tiles do not meet, and for whom there is no neighbour.
  CHECK(has(pair.loop_ir, "let neighbour: bool = other_tile < tiles"));
  CHECK(has(pair.loop_ir, "if neighbour && alike {"));
  CHECK(has(pair.loop_ir, "b[into * 16384 +: 16384]"));
  CHECK(has(pair.loop_ir, "phase_arrive empty[before +: 1] if neighbour"));
  // Which it is, is decided before the loop over stages: once for each way of copying both.
  const std::string producer = pair.loop_ir.substr(pair.loop_ir.find("producer, for tile"));
  size_t loops = 0, ifs_within = 0;
  for (size_t at = producer.find("for k_ahead"); at != producer.npos; at = producer.find("for k_ahead", at + 1)) {
    ++loops;
    const std::string body = producer.substr(at, producer.find("phase_expect", at + 1) - at);
    ifs_within += has(body, "if neighbour");
  }
  CHECK(loops == 4);
  CHECK(ifs_within == 0);
  CHECK(has(pair.loop_ir, "phases empty: 4 of 16 arrivals"));
  CHECK(has(pair.loop_ir, "phases full: 4 of 1 arrivals"));
  CHECK(has(pair.text, "__cluster_dims__(2, 1, 1)"));
  // Neither begins before both have barriers, nor ends before the other.
  const size_t first = pair.text.find("  kachel_cluster_barrier();"),
               last = pair.text.rfind("  kachel_cluster_barrier();");
  CHECK(first < pair.text.find("kachel_bulk_multicast(a_"));
  CHECK(last > pair.text.rfind("kachel_phase_wait("));
}

TEST_CASE("there is no cluster where it is not asked for, or blocks walk unequally many stages") {
  CHECK(product("ceildiv(K, 64)", 1).cluster == 1);
  const Lowered unequal = product("ceildiv(K, 64) - i % 2");
  CHECK(unequal.cluster == 1);
  CHECK(!has(unequal.loop_ir, "neighbour"));
  Request request{
      "tile 1\nkernel copy(A: f32[M], B: out f32[M])\ngrid i < ceildiv(M, 64)\n{\n  fragment a: f32[64]\n"
      "  a = A[i*64 +: 64]\n  B[i*64 +: 64] = a\n}\n"};
  request.target.architecture = 90;
  request.target.cluster = 2;
  CHECK(lowered(request).cluster == 1);
}

TEST_CASE("an operand that one axis alone decides is shared along the other") {
  const std::string text = product("ceildiv(K, 64)").text;
  CAPTURE(text);
  // By place in the grid: `a` where i is the same, `b` where j is.
  size_t at = 0;
  for (const char* next : {"bool alike_ = (i_ ==", "bool alike_2 = (j_ ==", "if ((neighbour_ && alike_))",
                           "kachel_bulk_multicast(a_", "if ((neighbour_ && alike_2))", "kachel_bulk_multicast(b_"}) {
    CAPTURE(next);
    at = text.find(next, at);
    REQUIRE(at != std::string::npos);
  }
}

}  // namespace
}  // namespace kachel::lowering
