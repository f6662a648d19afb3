// Which copies the blocks of a cluster make for each other, and what they have to tell each other then.
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
  // The wider tile is shared, along the axis on which it does not depend.
  CHECK(pair.cluster == ClusterShape{2, 1});
  CHECK(has(pair.notes, "cluster: 2 x 1 blocks of the grid"));
  CHECK(has(pair.notes, "copy b: in parts, for the blocks of a cluster along axis 0"));
  CHECK(has(pair.loop_ir, "b[into * 16384 + first * 64 +: 8192]"));
  CHECK(has(pair.loop_ir, "peers 303"));
  CHECK(has(pair.loop_ir, "a[into * 8192 +: 8192]"));
  // A release by a warp group of each of the two blocks; nothing is asked of tiles on the way.
  CHECK(has(pair.loop_ir, "phase_arrive by group empty[before +: 1] peers 303"));
  CHECK(has(pair.loop_ir, "phases empty: 4 of 4 arrivals"));
  CHECK(has(pair.loop_ir, "phases full: 4 of 1 arrivals"));
  CHECK(has(pair.text, "__cluster_dims__(2, 1, 1)"));
  // Neither begins before both have barriers, nor ends before what the other one does to it has been done.
  const size_t first = pair.text.find("barrier.cluster.wait;"), last = pair.text.find("barrier.cluster.wait.acquire;");
  CHECK(has(pair.text, "barrier.cluster.arrive.release;"));
  CHECK(last != pair.text.npos);
  CHECK(first < pair.text.find(".multicast::cluster"));
  CHECK(last > pair.text.rfind("mbarrier.try_wait"));
}

TEST_CASE("of more blocks a rectangle is taken by which each copies least") {
  const Lowered four = product("ceildiv(K, 64)", 4), eight = product("ceildiv(K, 64)", 8);
  // Of a (128 rows) and b (256): 128 / 2 + 256 / 2 = 192 where 128 + 256 / 4 is as much; 128 / 2 + 256 / 4 = 128.
  CHECK(four.cluster == ClusterShape{4, 1});
  CHECK(eight.cluster == ClusterShape{4, 2});
  CAPTURE(eight.loop_ir);
  CHECK(has(eight.loop_ir, "a[into * 8192 + first * 64 +: 4096]"));
  CHECK(has(eight.loop_ir, "peers c0c030300c0c0303"));
  CHECK(has(eight.loop_ir, "b[into * 16384 + first * 64 +: 4096]"));
  CHECK(has(eight.loop_ir, "peers aa55aa55aa55aa55"));
  CHECK(has(eight.loop_ir, "phases empty: 4 of 10 arrivals"));  // two groups of each of five blocks
}

TEST_CASE("what fills a cluster up computes the last tile and stores nothing") {
  const Lowered pair = product("ceildiv(K, 64)");
  CAPTURE(pair.loop_ir);
  CHECK(has(pair.loop_ir, "let real: bool = at < i_extent"));
  CHECK(has(pair.loop_ir, "let i: i64 = min(at, i_extent - 1)"));
  const size_t store = pair.loop_ir.find("bulk_store 2");
  REQUIRE(store != std::string::npos);
  const size_t guard = pair.loop_ir.rfind("if real {", store);
  REQUIRE(guard != std::string::npos);
  CHECK(pair.loop_ir.find('}', guard) > store);
  CHECK(pair.loop_ir.find("phase_arrive", guard) > store);
}

TEST_CASE("stages that threads read are released by warps") {
  // f32 is multiplied by fma, and so is what cannot have its sums in registers; a region reads a beside the product.
  for (const char* body :
       {"c += a @ b^T", "c += a @ b^T\n    parallel r < 64, s < 32 { d[r, s] = d[r, s] + c[s, r / 2] }",
        "parallel r < 64, s < 32 { d[r, s] = d[r, s] + f32(a[r, s]) }\n    c += a @ b^T"}) {
    const std::string type = std::string(body) == "c += a @ b^T" ? "f32" : "f16";
    Request request{
        "tile 1\nkernel product(A: " + type + "[M, K], B: " + type +
        "[N, K], C: out f32[M, N], D: out f32[M, N])\ngrid i < ceildiv(M, 64), j < ceildiv(N, 32)\n{\n  shared a: " +
        type + "[64, 32], b: " + type + "[32, 32]\n  fragment c: f32[64, 32] = 0, d: f32[64, 32] = 0\n" +
        "  pipelined k < ceildiv(K, 32), 3 {\n    a = A[i*64 +: 64, k*32 +: 32]\n    b = B[j*32 +: 32, k*32 +: 32]\n   "
        " " +
        body + "\n  }\n  C[i*64 +: 64, j*32 +: 32] = c\n  D[i*64 +: 64, j*32 +: 32] = d\n}\n"};
    request.target.architecture = 90;
    request.target.threads = 128;
    const Lowered lowering = lowered(request);
    CAPTURE(lowering.loop_ir);
    CHECK(has(lowering.loop_ir, "phase_arrive empty"));
    CHECK(!has(lowering.loop_ir, "by group"));
  }
}

TEST_CASE("there is no cluster where it is not asked for, or its blocks would walk unequally many stages") {
  CHECK(product("ceildiv(K, 64)", 1).cluster.empty());
  // Along j the stages are as many for all, and tiles there share a.
  CHECK(product("ceildiv(K, 64) - i % 2").cluster == ClusterShape{1, 2});
  const Lowered unequal = product("ceildiv(K, 64) - i % 2 - j % 2");
  CHECK(unequal.cluster.empty());
  CHECK(!has(unequal.loop_ir, "real"));
  Request request{
      "tile 1\nkernel copy(A: f32[M], B: out f32[M])\ngrid i < ceildiv(M, 64)\n{\n  fragment a: f32[64]\n"
      "  a = A[i*64 +: 64]\n  B[i*64 +: 64] = a\n}\n"};
  request.target.architecture = 90;
  request.target.cluster = 2;
  CHECK(lowered(request).cluster.empty());
}

}  // namespace
}  // namespace kachel::lowering
