// The loops of products load their matrices, and copies fill their tiles, without two words of one bank at a time.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include "tests/lowering/settled_case.h"

namespace kachel::lowering {
namespace {

struct Shape {
  const char* type;
  bool transpose_a, transpose_b;
  int step;
  int rows = 64, columns = 64, architecture = 89;
  const char* staged = nullptr;  // the type of a tile that C goes through
};

std::string product_text(const Shape& shape) {
  const bool is_float = shape.type[0] == 'f' || shape.type[0] == 'b';
  auto tile = [&](int extent, bool k_down) {
    return k_down ? fmt::format("{}, {}", shape.step, extent) : fmt::format("{}, {}", extent, shape.step);
  };
  auto tensor = [](int extent, bool k_down) {
    return k_down ? fmt::format("K, {}", extent) : fmt::format("{}, K", extent);
  };
  auto slice = [&](bool k_down) {
    return fmt::format(fmt::runtime(k_down ? "k*{0} +: {0}, :" : ":, k*{0} +: {0}"), shape.step);
  };
  const int m = shape.rows, n = shape.columns;
  const bool a_down = shape.transpose_a, b_down = !shape.transpose_b;
  return fmt::format(
      "tile 1\nkernel product(A: {0}[{1}], B: {0}[{2}], C: out {15}[{11}, {12}])\n{{\n"
      "  shared a: {0}[{4}], b: {0}[{5}]{14}\n  fragment c: {3}[{11}, {12}] = 0\n"
      "  pipelined k < ceildiv(K, {6}), 3 {{\n    a = A[{7}]\n    b = B[{8}]\n    c += a{9} @ b{10}\n  }}\n"
      "{13}\n}}\n",
      shape.type, tensor(m, a_down), tensor(n, b_down), is_float ? "f32" : "i32", tile(m, a_down), tile(n, b_down),
      shape.step, slice(a_down), slice(b_down), a_down ? "^T" : "", b_down ? "" : "^T", m, n,
      shape.staged ? "  o = c\n  C = o" : "  C = c",
      shape.staged ? fmt::format(", o: {}[{}, {}]", shape.staged, m, n) : "",
      shape.staged ? shape.staged
      : is_float   ? "f32"
                   : "i32");
}

// The counts of a product that gives the right numbers; `loops`: its loop IR.
Simulation simulated(const Shape& shape, std::string* loops) {
  conformance::Wishes wishes;
  wishes.values = {{"K", 2 * shape.step + 16}};
  wishes.aligned = {"A", "B"};
  const conformance::Case test = settled_case(product_text(shape), shape.architecture, wishes, 3);
  const auto [prepared, kernel] = lowered(test);
  *loops = print(kernel);
  Simulation simulation;
  const conformance::Report report = simulate_case(*prepared, kernel, ThreadOrder::kForward, &simulation);
  CHECK_MESSAGE(report.passed(), report.describe());
  return simulation;
}

TEST_CASE("products meet no bank twice") {
  for (const Shape& shape :
       {Shape{"f16", false, true, 64}, Shape{"f16", false, false, 32}, Shape{"bf16", true, false, 64},
        Shape{"bf16", true, true, 16}, Shape{"f16", false, true, 48}, Shape{"i8", false, true, 64},
        Shape{"u8", false, true, 32}}) {
    CAPTURE(shape.type);
    CAPTURE(shape.step);
    std::string loops;
    const Simulation simulation = simulated(shape, &loops);
    CHECK(simulation.matrix_loads > 0);
    CHECK(simulation.matrix_conflicts == 0);
    CHECK(simulation.vector_conflicts == 0);
  }
}

// Rows of 160, 96 and 32 bytes, and columns that end within a slab.
TEST_CASE("wgmma multiplies what fills its last slab in part") {
  for (Shape shape : {Shape{"f16", false, true, 80}, Shape{"bf16", false, true, 48, 128, 40},
                      Shape{"f16", false, false, 64, 64, 80}, Shape{"bf16", false, false, 32, 128, 96},
                      Shape{"f16", true, false, 16, 64, 24}, Shape{"bf16", false, false, 80, 64, 16},
                      Shape{"i8", false, true, 96}, Shape{"f8e4m3", false, true, 160, 64, 72}}) {
    shape.architecture = 90;
    CAPTURE(shape.type);
    CAPTURE(shape.step);
    CAPTURE(shape.columns);
    std::string loops;
    simulated(shape, &loops);
    CAPTURE(loops);
    CHECK(loops.find("group_mma") != loops.npos);
    CHECK(loops.find("bulk_copy") != loops.npos);
  }
}

TEST_CASE("sums stored as matrices meet no bank twice") {
  for (Shape shape : {Shape{"f16", false, true, 64, 64, 128}, Shape{"bf16", false, true, 32, 32, 64},
                      Shape{"f16", false, true, 32, 128, 96}, Shape{"f16", false, true, 32, 16, 64}}) {
    shape.architecture = 90;
    shape.staged = shape.type;
    CAPTURE(shape.rows);
    CAPTURE(shape.columns);
    std::string loops;
    const Simulation simulation = simulated(shape, &loops);
    CAPTURE(loops);
    CHECK(simulation.matrix_stores > 0);
    CHECK(simulation.matrix_conflicts == 0);
  }
}

TEST_CASE("products in blocks of registers meet no bank twice") {
  for (int architecture : {89, 90})
    for (Shape shape : {Shape{"f32", false, true, 32, 128, 128}, Shape{"f32", false, false, 16, 128, 64},
                        Shape{"f32", true, false, 32, 64, 128}, Shape{"f32", true, true, 8, 64, 64},
                        Shape{"f32", false, true, 20, 64, 96}, Shape{"f32", false, true, 32, 64, 256},
                        Shape{"f16", false, true, 40, 72, 60}, Shape{"f16", false, false, 40, 72, 120},
                        Shape{"i8", false, true, 48, 72, 64}, Shape{"u8", false, true, 48, 40, 40}}) {
      shape.architecture = architecture;
      CAPTURE(shape.type);
      CAPTURE(architecture);
      CAPTURE(shape.step);
      CAPTURE(shape.rows);
      std::string loops;
      const Simulation simulation = simulated(shape, &loops);
      CHECK(loops.find("copy_vector a_part") != loops.npos);
      CHECK(loops.find("copy_vector b_part") != loops.npos);
      CHECK(simulation.vector_conflicts == 0);
    }
}

}  // namespace
}  // namespace kachel::lowering
