// Tiles that several loops fill (loop_tiles.cc).
#include "tests/lowering/lowered_text.h"

namespace kachel::lowering {
namespace {

std::string notes(const std::string& first, const std::string& second, const std::string& behind = "") {
  const std::string loop = "    b = B[0 +: 64, k*64 +: 64]\n    c += a @ b^T\n  }\n";
  return lowered({"tile 1\nkernel k(A: f16[M, K], B: f16[N, K], C: out f16[M, 64])\ngrid i < ceildiv(M, 64)\n{\n"
                  "  shared a: f16[64, 64], b: f16[64, 64]\n  fragment c: f32[64, 64] = 0, d: f32[64, 64]\n"
                  "  pipelined k < M, 2 {\n    " +
                  first + "\n" + loop + "  pipelined k in M + 3 .. N, 2 {\n    " + second + "\n" + loop + behind +
                  "  C[i*64 +: 64, :] = c\n}\n"})
      .notes;
}
const std::string kFill = "a = A[i*64 +: 64, k*64 +: 64]";

int ahead(const std::string& text) {
  int found = 0;
  for (size_t at = text.find("asynchronous copies into {a, b}"); at != text.npos;
       at = text.find("asynchronous copies into {a, b}", at + 1))
    ++found;
  return found;
}

TEST_CASE("each loop loads its own tiles ahead") {
  CHECK(ahead(notes(kFill, kFill)) == 2);
}

TEST_CASE("tiles stay one where a loop reads what it has not filled, or something else does") {
  CHECK(ahead(notes(kFill, "parallel r < 64, s < 64 { a[r, s] = a[r, s] * 2 }")) == 0);
  CHECK(ahead(notes(kFill, "a[0 +: 32, :] = A[i*64 +: 32, k*64 +: 64]")) == 0);
  CHECK(ahead(notes(kFill, "a = A[i*64 + i64(a[0, 0]) +: 64, k*64 +: 64]")) == 0);
  CHECK(ahead(notes(kFill, kFill, "  d = a\n  parallel r < 64, s < 64 { c[r, s] += d[r, s] }\n")) == 0);
}

}  // namespace
}  // namespace kachel::lowering
