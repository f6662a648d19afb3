// Tiles of which products use matrices (split_slices.cc).
#include "tests/lowering/lowered_text.h"

namespace kachel::lowering {
namespace {

std::string notes(const std::string& products, const std::string& store) {
  return lowered({"tile 1\nkernel k(X: f16[M, 3, 64], W: f16[3, 32, 64], Y: out f32[3, M, 32], Z: out f32[M, 32])\n"
                  "grid i < ceildiv(M, 64)\n{\n  shared x: f16[64, 3, 64], w: f16[3, 32, 64]\n"
                  "  fragment c: f32[3, 64, 32] = 0, z: f32[64, 32] = 0\n  x = X[i*64 +: 64, :, :]\n  w = W\n  " +
                  products + "\n  " + store + "\n}\n"})
      .notes;
}
const std::string kEach = "for h < 3 { c[h, :, :] += x[:, h, :] @ w[h, :, :]^T }";
const std::string kStore = "Y[:, i*64 +: 64, :] = c";

TEST_CASE("products of matrices take tensor cores, one after the other") {
  const std::string text = notes(kEach, kStore);
  CAPTURE(text);
  for (const char* one : {"0", "1", "2"}) {
    CHECK(has(text, std::string("gemm c_") + one + ": mma.m16n8k16"));
    CHECK(has(text, std::string("tile x_") + one + ": f16 in memory of the block"));
  }
  CHECK(!has(text, "fma"));
  // Named by numbers; what is computed along the axis follows.
  CHECK(has(
      notes("c[2, :, :] += x[:, 0, :] @ w[1, :, :]^T\n  parallel h < 3, r < 64, n < 32 { c[h, r, n] *= h }", kStore),
      "gemm c_2: mma.m16n8k16"));
}

TEST_CASE("what is added up over the matrices, or takes another one, keeps them together") {
  const std::string sums = notes(kEach,
                                 "parallel r < 64, n < 32 { z[r, n] = sum[h < 3](c[h, r, n]) }\n"
                                 "  Z[i*64 +: 64, :] = z");
  CHECK(has(sums, "gemm c: fma (a slice of c is used)"));
  CHECK(has(notes(kEach, "parallel h < 3, r < 64, n < 32 { c[h, r, n] -= c[0, r, n] }\n  " + kStore), "gemm c: fma"));
  // An element as a place is that of its matrix.
  CHECK(has(notes(kEach, kStore + "\n  Z[i*64 + i64(w[1, 0, 0]) +: 64, :] = z"), "gemm c_1: mma"));
  CHECK(has(notes("for h < 3 { c[h, :, :] += x[:, 2 - h, :] @ w[h, :, :]^T }", kStore), "gemm c_0: mma"));
}

TEST_CASE("rows of a fragment that regions name by numbers are fragments") {
  const auto rows = [](const std::string& regions) {
    return lowered({"tile 1\nkernel k(X: f32[M, 4, 256], Y: out f32[M, 256])\ngrid i < M\n{\n"
                    "  fragment x: f32[4, 256], y: f32[256] = 0\n  x = X[i, :, :]\n  " +
                    regions + "\n  Y[i, :] = y\n}\n"})
        .notes;
  };
  const std::string named =
      rows("parallel c < 4, d < 256 { x[c, d] *= 2 }  parallel d < 256 { y[d] = x[1, d] + x[3, d] }");
  CAPTURE(named);
  CHECK(has(named, "tile x_1: f32 in registers"));
  CHECK(!has(named, "tile x_0"));  // nobody reads it
  // Every row takes in the first one as it was.
  CHECK(
      has(rows("parallel c < 4, d < 256 { x[c, d] += x[0, d] }  parallel d < 256 { y[d] = x[1, d] }"), "tile x: f32"));
  CHECK(has(rows("parallel d < 256 { y[d] = x[1, d] + sum[c < 4](x[c, d]) }"), "tile x: f32"));
}

}  // namespace
}  // namespace kachel::lowering
