// Which tiles share memory, and what keeps their lives apart.
#include <doctest/doctest.h>

#include "tests/lowering/lowered_text.h"

namespace kachel::lowering {
namespace {

// A product whose result goes out through a tile of its own, which needs as much as a stage of both operands.
std::string through_a_tile(const std::string& after = "") {
  return R"(tile 1
kernel k(A: f16[M, K], B: f16[N, K], C: out f16[M, N], R: f16[M, N])
tune stages = 3 | 2 | 4
grid i < ceildiv(M, 128), j < ceildiv(N, 128)
{
  shared a: f16[128, 64], b: f16[128, 64], o: f16[128, 128], r: f16[128, 128]
  fragment c: f32[128, 128] = 0
  pipelined k < ceildiv(K, 64), stages {
    a = A[i*128 +: 128, k*64 +: 64]
    b = B[j*128 +: 128, k*64 +: 64]
    c += a @ b^T
  }
  r = R[i*128 +: 128, j*128 +: 128]
  parallel x < 128, y < 128 { c[x, y] += f32(r[x, y]) }
  o = c
  C[i*128 +: 128, j*128 +: 128] = o
)" + after +
         "}\n";
}

Lowered on(int architecture, const std::string& text, int64_t limit = 227 * 1024,
           std::map<std::string, int64_t> tunables = {}) {
  Request request{text, std::move(tunables)};
  request.target.architecture = architecture;
  request.target.shared_limit = limit;
  return lowered(request);
}

TEST_CASE("tiles that are never needed at the same time share memory") {
  const Lowered result = on(80, through_a_tile());
  CAPTURE(result.loop_ir);
  CHECK(result.shared_bytes == 3 * 32 * 1024);
  CHECK(has(result.loop_ir, "shared o: f16[16384] at 0\n"));
  CHECK(has(result.loop_ir, "shared r: f16[16384] at 0\n"));
  CHECK(has(result.loop_ir, "shared a: f16[24576] at 0\n"));
  CHECK(has(result.loop_ir, "shared b: f16[24576] at 49152\n"));
  // Those may not be said to be the only way to their bytes.
  CHECK(has(result.text, "u16* a_ = "));
  CHECK(has(result.text, "u16* __restrict__ b_ = "));
}

TEST_CASE("the depth of a pipeline does not pay for what comes after it") {
  const int64_t limit = 99 * 1024;  // of sm_86
  CHECK(has(on(86, through_a_tile(), limit).notes, "pipeline k: depth 3, asynchronous copies"));
  CHECK(has(on(86, through_a_tile(), limit, {{"stages", 4}}).notes, "pipeline k: depth 3, asynchronous copies"));
}

TEST_CASE("a tile that is used again keeps its memory") {
  const std::string again = "  parallel x < 128, y < 64 { C[i*128 + x, j*128 + y] = a[x, y] }\n";
  const Lowered result = on(80, through_a_tile(again));
  CAPTURE(result.loop_ir);
  CHECK(has(result.loop_ir, "shared a: f16[8192] at 0\n"));
  for (const char* other : {"b: f16[24576]", "o: f16[16384]", "r: f16[16384]"})
    CHECK(has(result.loop_ir, std::string("shared ") + other + " at 16384\n"));
}

TEST_CASE("what the copy engine fills lives throughout, since it runs ahead into the next tile") {
  const Lowered result = on(90, through_a_tile());
  CAPTURE(result.loop_ir);
  CHECK(has(result.notes, "pipeline k: depth 3, the copy engine into {a, b}"));
  CHECK(result.shared_bytes >= 4 * 32 * 1024);
  CHECK(result.shared_bytes < 5 * 32 * 1024);  // `r` and `o` are one
}

}  // namespace
}  // namespace kachel::lowering
