// Which boxes leave the L2 first, and what decides that when the grid is known.
#include <doctest/doctest.h>

#include "tests/lowering/lowered_text.h"

namespace kachel::lowering {
namespace {

constexpr const char* kPlain = "1152921504606846976";  // 0x1000000000000000
constexpr const char* kFirst = "1364590687093260288";  // 0x12f0000000000000
constexpr const char* kLast = "1508705875169116160";   // 0x14f0000000000000

struct Product {
  std::string a = "f16[M, K]", b = "f16[N, K]", c = "f16[M, N]", grid, before, batch_a, batch_b, batch_c;
  std::string from = "0", to = "ceildiv(K, 64)";
};

Lowered product(const Product& is) {
  Request request{"tile 1\nkernel product(A: " + is.a + ", B: " + is.b + ", C: inout " + is.c + ")\n" + "grid " +
                  is.grid + "j < ceildiv(N, 128), i < ceildiv(M, 64)\n{\n" + R"(
  shared a: f16[64, 64], b: f16[128, 64]
  fragment c: f32[64, 128] = 0
)" + is.before + "  pipelined k in " +
                  is.from + " .. " + is.to + R"(, 4 {
    a = A[)" + is.batch_a +
                  R"(i*64 +: 64, k*64 +: 64]
    b = B[)" + is.batch_b +
                  R"(j*128 +: 128, k*64 +: 64]
    c += a @ b^T
  }
  C[)" + is.batch_c +
                  R"(i*64 +: 64, j*128 +: 128] = c
}
)"};
  request.target.architecture = 90;
  return lowered(request);
}

TEST_CASE("an operand that few tiles read leaves the L2 first, when the grid says that there are few") {
  const Lowered plain = product({});
  CAPTURE(plain.notes);
  CAPTURE(plain.loop_ir);
  CHECK(has(plain.notes, "copy a: the first to leave the L2 where few tiles along axis 0 read it"));
  CHECK(has(plain.notes, "copy b: the first to leave the L2 where few tiles along axis 1 read it"));
  CHECK(has(plain.loop_ir, "let stream: bool = j_extent <= 2"));
  CHECK(has(plain.loop_ir, "let stream: bool = i_extent <= 2"));
  CHECK(has(plain.loop_ir, "let others: i64 = stream || stream ? " + std::string(kLast) + " : " + kPlain));
  CHECK(has(plain.loop_ir, "let policy: i64 = stream ? " + std::string(kFirst) + " : others"));
  CHECK(has(plain.loop_ir, "kept by policy"));
  CHECK(has(plain.text, ".L2::cache_hint"));
}

TEST_CASE("tiles that read elsewhere are no readers, whichever way a place is written") {
  const Product shared_weights{
      .a = "f16[Z, M, K]", .c = "f16[Z, M, N]", .grid = "z < Z, ", .batch_a = "z, ", .batch_c = "z, "};
  const Lowered batched = product(shared_weights);
  CAPTURE(batched.notes);
  CHECK(has(batched.notes, "copy a: the first to leave the L2 where few tiles along axis 1 read it"));
  CHECK(has(batched.notes, "copy b: the first to leave the L2 where few tiles along axis 2, 0 read it"));
  // Two tiles of one batch run beside each other; those of two batches do not, and each would fetch the weights again.
  CHECK(has(batched.loop_ir, "let stream: bool = i_extent <= 2 && z_extent <= 1"));

  Product apart = shared_weights;
  apart.b = "f16[Z, N, K]";
  apart.before = "  let at = z + 1\n";
  apart.batch_b = "at - 1, ";
  CHECK(has(product(apart).notes, "copy b: the first to leave the L2 where few tiles along axis 2 read it"));
  apart.before = "  let at = z / 2\n";  // two batches read the same
  apart.batch_b = "at, ";
  CHECK(has(product(apart).notes, "copy b: the first to leave the L2 where few tiles along axis 2, 0 read it"));
}

TEST_CASE("tiles that a loop's iterations are dealt out to share nothing") {
  const Lowered split = product({.c = "f16[4, M, N]",
                                 .grid = "z < 4, ",
                                 .batch_c = "z, ",
                                 .from = "z*8",
                                 .to = "min((z + 1)*8, ceildiv(K, 64))"});
  CAPTURE(split.notes);
  CHECK(has(split.notes, "copy a: the first to leave the L2 where few tiles along axis 1 read it"));
  CHECK(has(split.notes, "copy b: the first to leave the L2 where few tiles along axis 2 read it"));
}

TEST_CASE("what a tile alone reads is a stream on any grid") {
  Request request{R"(tile 1
kernel rows(Q: f16[M, 64], K: f16[N, 64], S: inout f32[M, 64])
grid i < ceildiv(M, 128)
{
  shared q: f16[128, 64], k: f16[64, 64]
  fragment s: f32[128, 64] = 0
  q = Q[i*128 +: 128, :]
  pipelined n < ceildiv(N, 64), 2 {
    k = K[n*64 +: 64, :]
    s += q @ k^T
  }
  S[i*128 +: 128, :] = s
}
)"};
  request.target.architecture = 90;
  const Lowered result = lowered(request);
  CAPTURE(result.notes);
  CAPTURE(result.loop_ir);
  REQUIRE(has(result.notes, "the copy engine into {q}"));
  CHECK(has(result.notes, "copy q: the first to leave the L2\n"));
  CHECK(has(result.notes, "copy k: the first to leave the L2 where few tiles along axis 0 read it"));
  CHECK(has(result.loop_ir, "kept by " + std::string(kFirst)));
  CHECK(has(result.loop_ir, "? " + std::string(kFirst) + " : " + kLast));
}

TEST_CASE("copies of threads have no policy") {
  Request request{R"(tile 1
kernel rows(A: f16[M, K], B: f16[N, K], C: out f32[M, N])
grid i < ceildiv(M, 64), j < ceildiv(N, 64)
{
  shared a: f16[64, 64], b: f16[64, 64]
  fragment c: f32[64, 64] = 0
  pipelined k < ceildiv(K, 64), 2 { a = A[i*64 +: 64, k*64 +: 64]  b = B[j*64 +: 64, k*64 +: 64]  c += a @ b^T }
  C[i*64 +: 64, j*64 +: 64] = c
}
)"};
  for (const auto& [architecture, facts] : {std::pair<int, uint64_t>(89, ~uint64_t{0}), {90, 1}}) {
    CAPTURE(architecture);
    request.target.architecture = architecture;
    request.facts = facts;
    const Lowered result = lowered(request);
    CHECK(!has(result.notes, "leave the L2"));
    CHECK(!has(result.loop_ir, "policy"));
  }
}

}  // namespace
}  // namespace kachel::lowering
