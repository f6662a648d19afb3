// What becomes of tensors whose last two axes are counted as one, read off the notes and the loop IR.
#include <doctest/doctest.h>

#include "tests/lowering/lowered_text.h"

namespace kachel::lowering {
namespace {

// A product over the pixels of images, which it counts through in each or through all of them. `known`: of the facts
// that the axes of X and Y lie as one, those for at least so many bytes.
Lowered pixels(bool of_all, int known) {
  const std::string n = of_all ? "m / (H*W)" : "n", row = of_all ? "m / W % H" : "m / W";
  Request request{"tile 1\nkernel pixels(X: f16[N, C, H, W], F: f16[O, C], Y: out f16[N, O, H, W])\ngrid " +
                  std::string(of_all ? "p < ceildiv(N*H*W, 64)" : "n < N, p < ceildiv(H*W, 64)") + R"(
{
  shared x: f16[64, 64], f: f16[64, 64]
  fragment acc: f32[64, 64] = 0
  pipelined c < ceildiv(C, 64), 2 {
    f = F[0 +: 64, c*64 +: 64]
    parallel i < 64, j < 64 { let m = p*64 + j  x[i, j] = X[)" +
                  n + ", c*64 + i, " + row + R"(, m % W] }
    acc += f @ x
  }
  parallel i < 64, j < 64 { let m = p*64 + j  Y[)" +
                  n + ", i, " + row + ", m % W] = acc[i, j] }\n}\n"};
  request.target.architecture = 90;
  const auto module = ir::load(request.text);
  REQUIRE_MESSAGE(module.ok(), module.status().message());
  const std::vector<Fact> facts = facts_of(module->kernels[0]);
  for (size_t i = 0; i < facts.size(); ++i) {
    const bool speaks_of_them = facts[i].kind == Fact::Kind::kOneAxis;
    const bool narrow = facts[i].kind == Fact::Kind::kVector && facts[i].param != 1;  // of rows of an image
    if ((speaks_of_them && facts[i].bytes > known) || narrow) request.facts &= ~(uint64_t{1} << i);
  }
  return lowered(request);
}

}  // namespace

TEST_CASE("pixels of an image are rows that the copy engine moves") {
  const Lowered rows = pixels(false, 16);
  CAPTURE(rows.notes);
  CHECK(has(rows.notes, "the copy engine into {f, x}\n"));
  CHECK(has(rows.notes, "store Y[n, 0 +: 64, 0, p * 64 +: 64]"));
  CHECK(rows.maps.back().as_one);
  CHECK(!has(rows.loop_ir, "u32(i32(W))"));
}

TEST_CASE("rows that boxes cannot move have places without quotients") {
  const Lowered rows = pixels(false, 1);
  CAPTURE(rows.loop_ir);
  CHECK(!has(rows.loop_ir, "u32(i32(W))"));
  CHECK(has(pixels(false, 0).loop_ir, "u32(i32(W))"));
}

TEST_CASE("pixels of all images have two quotients in place of four") {
  const Lowered rows = pixels(true, 16);
  CAPTURE(rows.loop_ir);
  CHECK(!has(rows.loop_ir, "u32(i32(W))"));
  CHECK(has(pixels(true, 0).loop_ir, "u32(i32(H))"));
}

}  // namespace kachel::lowering
