// Tiles that pipelined loops copy and change in place (renamed_copies.cc).
#include "tests/lowering/lowered_text.h"

namespace kachel::lowering {
namespace {

std::string notes(const std::string& work, const std::string& copy = "a = A[i*64 +: 64, k*64 +: 64]",
                  const std::string& loop = "pipelined k < ceildiv(K, 64), 3", const std::string& more = "") {
  return lowered({"tile 1\nkernel k(A: f16[M, K], B: f16[N, K], S: f32[K], C: out f16[M, 64])\n"
                  "grid i < ceildiv(M, 64)\n{\n  shared a: f16[64, 64], b: f16[64, 64]" +
                  more + "\n  fragment c: f32[64, 64] = 0, d: f16[64, 64]\n  " + loop + " {\n    " + copy +
                  "\n    b = B[0 +: 64, k*64 +: 64]\n    " + work +
                  "\n    c += a @ b^T\n  }\n  C[i*64 +: 64, :] = c\n}\n"})
      .notes;
}
bool renamed(const std::string& notes) {
  return has(notes, "tile a_copy");
}

TEST_CASE("what is changed in place is copied ahead") {
  for (const char* change :
       {"parallel r < 64, s < 64 { a[r, s] *= S[k*64 + s] }", "parallel s < 64, r < 64 { a[r, s] = a[r, s ^ 1] }",
        "parallel r < 64, s < 64 { if k*64 + s >= K { a[r, s] = 1 } }",
        "parallel r < 64, s < 64 { let x = a[r, s] * 2 a[r, s] = x * x }",
        "parallel r < 64, s < 64 { d[r, s] = a[r, s] + 1 }  a = d",
        "parallel r < 64, s < 32 { let x = a[r, s], y = a[r, s + 32] a[r, s + 32] = x + y a[r, s] = x - y }",
        "parallel r < 64, s < 32 { let x = a[r, 2*s], y = a[r, 2*s + 1] a[r, 2*s + 1] = x + y a[r, 2*s] = x - y }"}) {
    CAPTURE(change);
    CHECK(renamed(notes(change)));
  }
  CHECK(
      has(notes("parallel r < 64, s < 64 { a[r, s] *= S[k*64 + s] }"), "asynchronous copies into {S_tile, a_copy, b}"));
}

TEST_CASE("tiles stay one where the change leaves something, reads it again, or nothing is copied ahead") {
  for (const char* change :
       {"parallel r < 32, s < 64 { a[r, s] *= 2 }", "parallel r < 64, s < 32 { a[r, s + 32] = a[r, s] }",
        "parallel r < 64, s < 64 { a[r, s] *= 2 d[r, s] = a[r, s ^ 1] }", "a[0 +: 32, :] = B[0 +: 32, k*64 +: 64]",
        "parallel r < 64, s < 32 { let x = a[r, s] a[r, s] = x * 2 a[r, s + 32] = a[r, s + 31] }",
        "parallel r < 64, s < 32 { let x = a[r, s] a[r, s] = x * 2 a[r, s + 31] = x }",
        "parallel r < 64, s < 16 { let x = a[r, s] a[r, s] = x * 2 a[r, s + 32] = x }",
        "parallel r < 64, s < 32 { let x = a[r, 2*s] a[r, 2*s + 1] = x a[r, 2*s + 2] = x * 2 }",
        "if k > 2 { parallel r < 64, s < 64 { a[r, s] *= 2 } }", "parallel r < 64, s < 64 { d[r, s] = a[r, s] }"}) {
    CAPTURE(change);
    CHECK(!renamed(notes(change)));
  }
  const std::string scaled = "parallel r < 64, s < 64 { a[r, s] *= S[k*64 + s] }";
  CHECK(!renamed(notes(scaled, "a[0 +: 32, :] = A[i*64 +: 32, k*64 +: 64]")));
  CHECK(!renamed(notes(scaled, "a = A[i*64 +: 64, k*64 +: 64]", "for k < ceildiv(K, 64)")));
  CHECK(!renamed(notes(scaled, "a = A[i*64 +: 64, k*64 +: 64]", "pipelined k < ceildiv(K, 64), 1")));
  // Shared memory has no room for both.
  CHECK(!renamed(
      notes(scaled, "a = A[i*64 +: 64, k*64 +: 64]", "pipelined k < ceildiv(K, 64), 3", ", o: f32[256, 180]")));
}

}  // namespace
}  // namespace kachel::lowering
