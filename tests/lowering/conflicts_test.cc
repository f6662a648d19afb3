// The loops of products load their matrices, and copies fill their tiles, without two words of one bank at a time.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include "ir/parse.h"
#include "tests/conformance/examples.h"
#include "tests/lowering/simulated_case.h"

namespace kachel::lowering {
namespace {

struct Shape {
  const char* type;
  bool transpose_a, transpose_b;
  int step;
};

TEST_CASE("products meet no bank twice") {
  for (const Shape& shape : {Shape{"f16", false, true, 64}, Shape{"f16", false, false, 32}, Shape{"bf16", true, false, 64},
                             Shape{"bf16", true, true, 16}, Shape{"f16", false, true, 48}, Shape{"i8", false, true, 64},
                             Shape{"u8", false, true, 32}}) {
    CAPTURE(shape.type);
    CAPTURE(shape.step);
    const bool is_float = shape.type[0] == 'f' || shape.type[0] == 'b';
    const char* sum = is_float ? "f32" : "i32";
    auto matrix = [&](const char* rows, int extent, bool transposed) {
      return transposed ? fmt::format("{}, {}", shape.step, extent) : fmt::format("{}, {}", extent, rows);
    };
    const std::string step = std::to_string(shape.step);
    auto slice = [&](bool transposed) {
      return fmt::format(fmt::runtime(transposed ? "k*{0} +: {0}, :" : ":, k*{0} +: {0}"), step);
    };
    const std::string text = fmt::format(
        "tile 1\nkernel product(A: {0}[{1}], B: {0}[{2}], C: out {3}[64, 64])\n{{\n"
        "  shared a: {0}[{4}], b: {0}[{5}]\n  fragment c: {3}[64, 64] = 0\n"
        "  pipelined k < ceildiv(K, {6}), 3 {{\n    a = A[{7}]\n    b = B[{8}]\n    c += a{9} @ b{10}\n  }}\n"
        "  C = c\n}}\n",
        shape.type, shape.transpose_a ? "K, 64" : "64, K", shape.transpose_b ? "64, K" : "K, 64", sum,
        matrix(step.c_str(), 64, shape.transpose_a), matrix(step.c_str(), 64, !shape.transpose_b), step,
        slice(shape.transpose_a), slice(!shape.transpose_b), shape.transpose_a ? "^T" : "", shape.transpose_b ? "^T" : "");
    auto module = ir::load(text, "product");
    REQUIRE_MESSAGE(module.ok(), module.status().message() << module.status().log());
    conformance::Random random(3);
    conformance::Wishes wishes;
    wishes.values = {{"K", 2 * shape.step + 16}};
    wishes.aligned = {"A", "B"};
    auto test = conformance::random_case(module->kernels[0], 24, random, wishes);
    REQUIRE(test.has_value());
    test->threads = 0;
    test->architecture = 89;
    test->shared_limit = 0;
    test->fact_mask = ~uint64_t{0};
    auto prepared = conformance::Prepared::make(*test);
    REQUIRE(prepared.ok());
    auto kernel = lower_case(**prepared);
    REQUIRE(kernel.ok());
    Simulation simulation;
    const conformance::Report report = simulate_case(**prepared, *kernel, ThreadOrder::kForward, &simulation);
    CHECK_MESSAGE(report.passed(), report.describe());
    CHECK(simulation.matrix_loads > 0);
    CHECK(simulation.matrix_conflicts == 0);
    CHECK(simulation.vector_conflicts == 0);
  }
}

}  // namespace
}  // namespace kachel::lowering
