// Prefix reductions by the layout of their region (lower_scan.cc, hoist_scans).
#include "tests/lowering/lowered_text.h"

namespace kachel::lowering {
namespace {

// `value` for each element of rows of `columns`, `rows` of them in a block of 128 threads.
std::string scanned(int rows, int columns, const std::string& value) {
  const std::string shape = std::to_string(rows) + ", " + std::to_string(columns);
  return lowered({"tile 1\nkernel k(X: bf16[R, N], Y: out bf16[R, N])\ntune threads = 128\ngrid r < R\n{\n"
                  "  fragment x: f32[" +
                  shape + "], y: f32[" + shape + "]\n  x = X[r*" + std::to_string(rows) +
                  " +: " + std::to_string(rows) + ", 0 +: " + std::to_string(columns) + "]\n  parallel i < " +
                  std::to_string(rows) + ", j < " + std::to_string(columns) + " { y[i, j] = " + value + " }\n  Y[r*" +
                  std::to_string(rows) + " +: " + std::to_string(rows) + ", 0 +: " + std::to_string(columns) +
                  "] = y\n}\n"})
      .loop_ir;
}

TEST_CASE("a thread adds up a piece of a row, lanes and warps what pieces come to") {
  const std::string text = scanned(1, 2048, "sum[k <= j](x[i, k])");
  CAPTURE(text);
  CHECK(has(text, "scanned: f32[16]"));
  CHECK(count(text, "shuffle_xor") == 2 * 5);  // for pieces of 16 bytes, as X is read
  CHECK(has(text, "partial: f32[8]"));
  CHECK(!has(text, "shared x"));
  CHECK(!has(text, "shared scanned"));
}

TEST_CASE("what no tensor is read into is held in longer pieces") {
  const std::string text = lowered({"tile 1\nkernel k(X: f32[N], Y: out f32[N])\ntune threads = 128\n{\n"
                                    "  shared s: f32[2048]\n  fragment y: f32[2048]\n  s = X[0 +: 2048]\n"
                                    "  parallel j < 2048 { y[j] = sum[k <= j](s[(k + 7) % 2048] * 2) }\n"
                                    "  parallel j < 2048 { s[j] = y[j] }\n  Y[0 +: 2048] = s\n}\n"})
                               .loop_ir;
  CAPTURE(text);
  CHECK(count(text, "shuffle_xor") == 5);
}

TEST_CASE("rows that a warp holds need no memory of the block") {
  const std::string text = scanned(4, 512, "sum[k <= j](x[i, k])");
  CAPTURE(text);
  CHECK(count(text, "shuffle_xor") == 2 * 5);
  CHECK(has(text, "shared 0 bytes"));
  CHECK(!has(text, "barrier"));
}

TEST_CASE("what two prefixes of one row have in common is computed for each, and their operands in registers") {
  const std::string text = scanned(4, 512, "max[k < j](x[i, k] * 2) - min[k <= j](x[i, k])");
  CAPTURE(text);
  CHECK(count(text, "shuffle_xor") == 2 * 10);
  CHECK(has(text, "shared 0 bytes"));
  CHECK(has(text, "max(scan, -inf)"));  // of nothing
}

TEST_CASE("down the columns a thread holds rows beside each other, and columns as they are read") {
  const std::string text = lowered({"tile 1\nkernel k(X: f32[N, D], Y: out f32[N, D])\ntune threads = 128\n"
                                    "grid n < ceildiv(N, 64)\n{\n  fragment x: f32[64, 128]\n"
                                    "  x = X[n*64 +: 64, 0 +: 128]\n"
                                    "  parallel i < 64, j < 128 { x[i, j] = sum[k <= i](x[k, j]) }\n"
                                    "  Y[n*64 +: 64, 0 +: 128] = x\n}\n"})
                               .loop_ir;
  CAPTURE(text);
  CHECK(!has(text, "shuffle_xor"));
  CHECK(has(text, "+: 4], X["));
  CHECK(has(text, "partial: f32[1024]"));  // of eight warps and 128 columns
}

TEST_CASE("the digits of an axis that is no power of two are a thread's own, or go through memory") {
  const std::string text = scanned(1, 1000, "sum[k <= j](x[i, k])");
  CAPTURE(text);
  CHECK(has(text, "partial"));
  CHECK(!has(text, "shared x"));
}

}  // namespace
}  // namespace kachel::lowering
