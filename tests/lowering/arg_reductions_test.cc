// Where the largest elements stand (arg_reductions.cc), and reductions that are made once (hoist_reductions.cc).
#include "tests/lowering/lowered_text.h"

namespace kachel::lowering {
namespace {

int exchanges(const std::string& text) {
  int found = 0;
  for (size_t at = text.find("shuffle_xor"); at != text.npos; at = text.find("shuffle_xor", at + 1)) ++found;
  return found;
}

std::string kernel(const std::string& body) {
  return "tile 1\nkernel k(X: f32[R, N], Y: out f32[R, 8])\ntune threads = 128\ngrid r < R\n{\n"
         "  fragment x: f32[4, 512], y: f32[4, 8] = 0, m: f32[4]\n  x = X[r*4 +: 4, 0 +: 512]\n" +
         body + "\n  Y[r*4 +: 4, :] = y\n}\n";
}
std::string loops(const std::string& body) {
  return lowered({kernel(body)}).loop_ir;
}

TEST_CASE("a maximum and a minimum of numbers, in the registers that hold the row") {
  const std::string text = loops("parallel i < 4 { y[i, 0] = argmax[j < 512](x[i, j]) }");
  CAPTURE(text);
  CHECK(exchanges(text) == 2 * 5);
  CHECK(!has(text, "operand: f32"));
  CHECK(!has(text, "shared x"));
  CHECK(has(text, "registers first: i32["));
}

TEST_CASE("what is compared is computed once") {
  const std::string text = loops("parallel i < 4 { y[i, 0] = argmax[j < 512](x[i, j] * x[i, j] + 1) }");
  CAPTURE(text);
  CHECK(exchanges(text) == 2 * 5);
  CHECK(has(text, "registers operand: f32[16]"));
}

TEST_CASE("of a few elements of a tensor an iteration finds the place itself") {
  const std::string few = loops("parallel i < 4 { y[i, 0] = argmax[a < 3, b < 2](X[r + a, i + b]) }");
  CAPTURE(few);
  CHECK(exchanges(few) == 0);
  CHECK(!has(few, "registers operand"));
  CHECK(has(few, "let e5: f32 = "));
  CHECK(has(few, "e0 == most ? 0 : e1 == most ? 1 : "));
  // Not of many, of a tile's, which lie with other threads, and where the numbers of another reduction count.
  CHECK(!has(loops("parallel i < 4 { y[i, 0] = argmax[a < 33](X[r, i + a]) }"), "let e0"));
  CHECK(!has(loops("parallel i < 4 { y[i, 0] = argmax[a < 3](x[i, a]) }"), "let e0"));
  CHECK(!has(loops("parallel i < 4 { y[i, 0] = sum[c < 4](f32(argmax[a < 3](X[r + c, i + a]))) }"), "let e0"));
}

TEST_CASE("so is what is read at a place that floats decide") {
  CHECK(has(loops("parallel i < 4 { y[i, 0] = argmax[j < 512](X[i32(x[i, j] * 3), j]) }"), "operand: f32["));
  CHECK(!has(loops("parallel i < 4 { y[i, 0] = argmax[j < 512](x[i, 511 - j]) }"), "operand: f32["));
}

TEST_CASE("a maximum that is asked for as well is made once") {
  CHECK(exchanges(loops("parallel i < 4 {\n y[i, 0] = argmax[j < 512](x[i, j])\n y[i, 1] = max[k < 512](x[i, k]) }")) ==
        2 * 5);
  CHECK(exchanges(loops("parallel i < 4 { m[i] = max[k < 512](x[i, k]) }\n"
                        "parallel n < 4 { y[n, 0] = m[n] + max[l < 512](x[n, l]) }")) == 5);
}

TEST_CASE("a reduction is made again where another one is meant, or what it reads has been written") {
  CHECK(exchanges(loops("parallel i < 4 { y[i, 0] = max[k < 512](x[i, k]) + min[k < 512](x[i, k]) }")) == 2 * 5);
  CHECK(exchanges(loops("parallel i < 4 { m[i] = max[k < 512](x[i, k]) }\n"
                        "parallel i < 4, j < 512 { x[i, j] = x[i, j] - m[i] }\n"
                        "parallel i < 4 { y[i, 0] = max[k < 512](x[i, k]) }")) == 2 * 5);
  // In a loop, the first iteration reads what stands before it, the others do not.
  CHECK(exchanges(loops("parallel i < 4 { m[i] = max[k < 512](x[i, k]) }\n"
                        "for n < R { parallel i < 4 { y[i, 0] = y[i, 0] + max[k < 512](x[i, k]) }\n"
                        "  parallel i < 4, j < 512 { x[i, j] = x[i, j] - m[i] } }")) == 2 * 5);
  // What a branch has made need not have been made behind it.
  CHECK(exchanges(loops("if r > 1 { parallel i < 4 { m[i] = max[k < 512](x[i, k]) } }\n"
                        "parallel i < 4 { y[i, 0] = max[k < 512](x[i, k]) }")) == 2 * 5);
}

TEST_CASE("more values than tiles may hold are refused") {
  auto module = ir::load(
      "tile 1\nkernel k(X: f32[N], Y: out i32[N])\n{\n  fragment y: i32[65536]\n"
      "  parallel i < 65536 { y[i] = argmax[j < 65536](X[j] + i) }\n  Y[0 +: 65536] = y\n}\n");
  REQUIRE_MESSAGE(module.ok(), module.status().message());
  ir::Bindings bindings;
  bindings.dims["N"] = 65536;
  const auto concrete = ir::instantiate(module->kernels[0], bindings);
  REQUIRE_MESSAGE(concrete.ok(), concrete.status().message());
  for (const Target::Kind kind : {Target::Kind::kCuda, Target::Kind::kCpu}) {
    const auto result = lower(*concrete, {.kind = kind, .architecture = 90, .shared_limit = 227 * 1024}, 0);
    REQUIRE(!result.ok());
    CHECK(has(result.status().message(), "more than 2^28 values"));
  }
}

}  // namespace
}  // namespace kachel::lowering
