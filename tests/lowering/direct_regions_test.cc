// Regions that touch tensors themselves: which accesses are wide, what goes by way of tiles, and what is loaded early.
#include "tests/lowering/lowered_text.h"

namespace kachel::lowering {
namespace {

constexpr Target kNinety = {.kind = Target::Kind::kCuda, .architecture = 90, .shared_limit = 227 * 1024};

std::string text_of(const std::string& kernel, const Target& target = kNinety, uint64_t facts = ~uint64_t{0}) {
  const Lowered lowered = lowering::lowered({"tile 1\n" + kernel, {}, target, facts});
  return lowered.notes + lowered.loop_ir;
}
// A region of 4 x 256 elements a block, with what it does.
std::string region(const std::string& body, const std::string& y = "out bf16") {
  return "kernel k(X: bf16[M, N], B: f32[N], at: i32[M], Y: " + y +
         "[M, N])\ngrid m < ceildiv(M, 4), n < ceildiv(N, 256)\n{\n  parallel i < 4, j < 256 {\n"
         "    let r = m*4 + i, c = n*256 + j\n    " +
         body + "\n  }\n}\n";
}

TEST_CASE("neighbours are read and written as one access, rounded two at a time") {
  const std::string text = text_of(region("Y[r, c] = X[r, c] * B[c]"));
  CAPTURE(text);
  CHECK(has(text, " +: 8] if "));
  CHECK(has(text, "convert_pair rounded[6 +: 2], made[6 +: 2]"));
  CHECK(has(text, "copy_vector Y["));
  CHECK(!has(text, "bf16("));
}

TEST_CASE("a store's own bounds part no vector, other conditions of columns do") {
  CHECK(has(text_of(region("if r < M && c < N { Y[r, c] = X[r, c] }")), "copy_vector Y["));
  CHECK(has(text_of(region("if at[r] > 0 { Y[r, c] = X[r, c] }")), "copy_vector Y["));
  CHECK(!has(text_of(region("if c < N - 1 { Y[r, c] = X[r, c] }")), "copy_vector Y["));
}

TEST_CASE("rows that begin anywhere go element by element, those of several iterations under way together") {
  const std::string text = text_of(region("Y[r, c] = X[r, c] * 2"), kNinety, 3);
  CAPTURE(text);
  CHECK(!has(text, "copy_vector"));
  CHECK(has(text, "early[i_r * 2 + j_r] = "));
  CHECK(text.find("early[i_r * 2 + j_r] = ") < text.find("Y["));
}

TEST_CASE("what a region reads of the tensor that it writes is read where it is written") {
  const std::string text = text_of(region("Y[r, c] = Y[r, c] + X[r, c]", "inout bf16"));
  CAPTURE(text);
  CHECK(has(text, "copy_vector Y["));
  CHECK(!has(text, "early[0 +: 8], Y["));
  // Of another row: all is read before anything is written.
  CHECK(has(text_of(region("Y[r, c] = Y[r + 1 - i % 2 * 2, c] + X[r, c]", "inout bf16")), "pending["));
}

TEST_CASE("vectors of additions, where there is such an instruction") {
  const std::string add = region("atomic Y[at[r], c] += X[r, c]", "inout f32");
  CHECK(has(text_of(add), "add_vector Y["));
  CHECK(has(text_of(add), " +: 4], made[0 +: 4]"));
  Target older = kNinety;
  older.architecture = 80;
  CHECK(!has(text_of(add, older), "add_vector"));
  CHECK(!has(text_of(region("atomic max Y[at[r], c] = X[r, c]", "inout f32")), "add_vector"));
  const std::string tile =
      "kernel k(X: bf16[M, N], S: inout bf16[8, N])\ngrid m < ceildiv(M, 8), n < ceildiv(N, 128)\n{\n"
      "  fragment x: f32[8, 128]\n  x = X[m*8 +: 8, n*128 +: 128]\n  atomic S[:, n*128 +: 128] += x\n}\n";
  CHECK(has(text_of(tile), "add_vector S["));
}

TEST_CASE("a long region stays a loop") {
  const auto text = [](int rows) {
    return text_of("kernel k(X: bf16[M, 2048], Y: out bf16[M, 2048])\ngrid m < ceildiv(M, " + std::to_string(rows) +
                   ")\n{\n  parallel i < " + std::to_string(rows) + ", j < 2048 { Y[m*" + std::to_string(rows) +
                   " + i, j] = X[m*" + std::to_string(rows) + " + i, j] }\n}\n");
  };
  CHECK(!has(text(4), "for i_r in 0 .. 4 {"));
  CHECK(has(text(64), "for i_r in 0 .. 64 {"));
}

TEST_CASE("sums of products that leave by a region are stored as a tile is") {
  const auto text = [](const std::string& body) {
    return text_of(
        "kernel k(A: f16[M, K], B: f16[N, K], D: f32[N], C: out f16[M, N])\n"
        "grid m < ceildiv(M, 128), n < ceildiv(N, 128)\n{\n"
        "  shared a: f16[128, 64], b: f16[128, 64]\n  fragment acc: f32[128, 128] = 0\n"
        "  pipelined k < ceildiv(K, 64), 4 {\n    a = A[m*128 +: 128, k*64 +: 64]\n"
        "    b = B[n*128 +: 128, k*64 +: 64]\n    acc += a @ b^T\n  }\n  parallel i < 128, j < 128 {\n"
        "    let r = m*128 + i, c = n*128 + j\n    " +
        body + "\n  }\n}\n");
  };
  CHECK(
      has(text("if r < M && c < N { C[r, c] = max(acc[i, j] + D[c], 0) }"), "by the copy engine, 2 boxes of 16 x 64"));
  CHECK(!has(text("if r < c { C[r, c] = acc[i, j] }"), "by the copy engine, 2 boxes"));
}

TEST_CASE("what lies along rows of one tensor and columns of another goes by way of shared memory") {
  const std::string text = text_of(
      "kernel k(X: bf16[M, N], Y: out bf16[N, M])\ngrid m < ceildiv(M, 64), n < ceildiv(N, 64)\n{\n"
      "  parallel i < 64, j < 64 { Y[n*64 + j, m*64 + i] = X[m*64 + i, n*64 + j] }\n}\n");
  CAPTURE(text);
  CHECK(has(text, "tile X_tile: bf16 in memory of the block"));
  CHECK(has(text, "tile Y_tile: bf16 in registers"));
  CHECK(has(text, "copy_vector Y["));
}

TEST_CASE("a reduction of a tensor loads neighbours together") {
  const std::string text = text_of(
      "kernel k(X: bf16[M, 2048], Y: out f32[M])\ngrid m < M\n{\n  fragment y: f32[1]\n"
      "  parallel i < 1 { y[i] = sum[k < 2048](X[m + i, k]) }\n  Y[m +: 1] = y\n}\n");
  CAPTURE(text);
  CHECK(has(text, " +: 8]"));
}

TEST_CASE("a region that does nothing is nothing") {
  const std::string text = text_of(
      "kernel k(X: f32[64], Y: out f32[64])\ngrid g < 1\n{\n  fragment x: f32[64]\n  x = X\n"
      "  parallel i < 64 { if 1 > 2 { x[i] = 3 } }\n  parallel i < 64 { let y = x[i] }\n  Y = x\n}\n");
  CAPTURE(text);
  CHECK(has(text, "Y["));
  CHECK(!has(text, "= 3"));
}

TEST_CASE("terms of sums that are long and many stay a loop, the sums are written out") {
  const auto text = [](const char* term) {
    return text_of(
        "kernel k(X: f32[M, 64], Y: out f32[M, 64])\ngrid m < ceildiv(M, 128)\n{\n  fragment y: f32[128, 64]\n"
        "  parallel i < 128, j < 64 { y[i, j] = sum[c < 8](" +
        std::string(term) + ") }\n  Y[m*128 +: 128, :] = y\n}\n");
  };
  const std::string
      few = text("X[m*128 + i, j] * c"),
      many = text(
          "erf(X[m*128 + i, j] * c) * erf(X[m*128 + i, j] - c) * tanh(X[m*128 + i, j] + c) / (X[m*128 + i, j] + c)");
  CAPTURE(many);
  CHECK(has(few, "for c_r in 0 .. 8 unroll"));
  CHECK(has(many, "for c_r in 0 .. 8 {"));
  CHECK(has(many, "unroll {"));
}

}  // namespace
}  // namespace kachel::lowering
