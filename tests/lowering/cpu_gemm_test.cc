// The CPU's products: how they are laid out and blocked, what loop IR they become, and that they are right for odd
// tiles at every vector width, against the interpreter.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include "ir/parse.h"
#include "lowering/machine/cpu_machine.h"
#include "lowering/pipeline.h"
#include "tests/conformance/examples.h"
#include "tests/conformance/prepared.h"
#include "tests/lowering/cpu_device.h"

namespace kachel::lowering {
namespace {

std::string program(const std::string& a, const std::string& b, const std::string& product,
                    const std::string& more = "") {
  // a: "M, K" or "K, M"; b: "K, N" or "N, K".
  auto slice = [](const std::string& axes) {
    std::string text;
    for (char axis : axes)
      text += axis == 'M'   ? "y*BM +: BM"
              : axis == 'N' ? "x*BN +: BN"
              : axis == 'K' ? "k*BK +: BK"
                            : std::string(1, axis);
    return text;
  };
  auto tile = [](const std::string& axes) {
    std::string text;
    for (char axis : axes) text += std::string(axis >= 'A' ? "B" : "") + axis;
    return text;
  };
  return fmt::format(R"(tile 1
kernel product<T: f32 | f16 | bf16 | f8e4m3>(A: T[{0}], B: T[{1}], C: out f32[M, N])
tune BM = 1 | 13 | 16 | 50, BN = 1 | 5 | 16 | 37 | 64, BK = 1 | 4 | 19 | 32
grid y < ceildiv(M, BM), x < ceildiv(N, BN)
{{
  shared a: T[{2}], b: T[{3}]
  fragment c: f32[BM, BN] = 0
  for k < ceildiv(K, BK) {{
    a = A[{4}]
    b = B[{5}]
    {6}
    {7}
  }}
  parallel i < BM, j < BN {{ c[i, j] = c[i, j] + 1 }}
  C[y*BM +: BM, x*BN +: BN] = c
}}
)",
                     a, b, tile(a), tile(b), slice(a), slice(b), product, more);
}

ir::Module load(const std::string& text) {
  auto module = ir::load(text, "test");
  REQUIRE_MESSAGE(module.ok(), module.status().message());
  return std::move(*module);
}

Lowering lower_fixed(const std::string& text, int64_t bm, int64_t bn, int64_t bk, int vector_bits) {
  ir::Module module = load(text);
  ir::Bindings bindings;
  bindings.types["T"] = ir::DType::F16;
  bindings.tunables = {{"BM", bm}, {"BN", bn}, {"BK", bk}};
  auto concrete = ir::instantiate(module.kernels[0], bindings);
  REQUIRE(concrete.ok());
  Target target;
  target.kind = Target::Kind::kCpu;
  target.shared_limit = 64 << 20;
  target.vector_bits = vector_bits;
  auto lowering = lower_to_loops(*concrete, target, ~uint64_t{0});
  REQUIRE_MESSAGE(lowering.ok(), lowering.status().message());
  return std::move(*lowering);
}

const Placement& placement_of(const Lowering& lowering, const std::string& name) {
  for (const auto& [buffer, placement] : lowering.placements.tiles)
    if (buffer->name == name) return placement;
  FAIL("no tile " << name);
  return lowering.placements.tiles.begin()->second;
}

TEST_CASE("register blocks fill the registers and leave no narrow rest") {
  const CpuMachine wide{16, 32}, narrow{8, 16}, least{4, 16};
  auto check = [](const RegisterBlock& block, int64_t rows, int64_t vectors) {
    CHECK(block.rows == rows);
    CHECK(block.vectors == vectors);
  };
  check(register_block(wide, 512, 512), 6, 4);
  check(register_block(narrow, 512, 512), 6, 2);
  check(register_block(least, 512, 512), 6, 2);
  check(register_block(wide, 64, 80), 8, 3);  // five vectors: three and two, not four and one
  check(register_block(wide, 7, 512), 4, 4);  // seven rows: four and three
  check(register_block(wide, 1, 1), 1, 1);
  for (int64_t rows : {1, 3, 16, 17, 100})
    for (int64_t columns : {1, 15, 16, 17, 100}) {
      RegisterBlock block = register_block(wide, rows, columns);
      CHECK(block.rows * block.vectors + block.vectors + 1 < wide.registers);
    }
}

TEST_CASE("an operand B lies in panels where nothing else uses it, else in rows") {
  const std::string plain = program("M, K", "K, N", "c += a @ b");
  Lowering lowering = lower_fixed(plain, 16, 64, 32, 512);
  CHECK(placement_of(lowering, "b").panel_width == 64);
  CHECK(placement_of(lowering, "b").panel_axis == 1);
  CHECK(placement_of(lowering, "b").storage == ir::DType::F32);
  CHECK(placement_of(lowering, "a").panel_width == 0);
  CHECK(placement_of(lowering, "a").storage == ir::DType::F32);
  CHECK(placement_of(lower_fixed(program("M, K", "N, K", "c += a @ b^T"), 16, 64, 32, 512), "b").panel_axis == 0);
  const std::string read = program("M, K", "K, N", "c += a @ b", "parallel i < BM, j < BN { c[i, j] += b[0, j] }");
  CHECK(placement_of(lower_fixed(read, 16, 64, 32, 512), "b").panel_width == 0);
}

TEST_CASE("a product becomes micro-kernels, the rest of rows and columns with smaller ones") {
  const std::string text = print(lower_fixed(program("M, K", "K, N", "c += a @ b"), 13, 37, 19, 512).loops);
  CAPTURE(text);
  // 13 rows in blocks of 7 and 6, 37 columns in one panel of three vectors.
  CHECK(text.find("micro c[0: 7 by 48, 48 by 1] += a[0: 7 by 32, 19 by 1] * b[0: 19 by 48, 48 by 1], "
                  "16 lanes") != text.npos);
  CHECK(text.find("micro c[336: 6 by 48, 48 by 1] += a[224: 6 by 32, 19 by 1] * b[0: 19 by 48, 48 by 1], 16 lanes") !=
        text.npos);
}

TEST_CASE("products of odd tiles are right at every vector width") {
  const auto cpu = compiling_cpu();
  if (!cpu) return;
  const std::string programs[] = {
      program("M, K", "K, N", "c += a @ b"),
      program("M, K", "N, K", "c += a @ b^T"),
      program("K, M", "K, N", "c += a^T @ b"),
      program("K, M", "N, K", "c = a^T @ b^T"),
      program("M, K", "K, N", "c += a @ b", "parallel i < BM, j < BN { c[i, j] += b[0, j] }"),
      program("M, K", "N, K", "c += a @ b^T", "parallel i < BM, j < BN { c[i, j] += b[j, 0] + a[i, 0] }"),
  };
  std::vector<std::string> texts(std::begin(programs), std::end(programs));
  for (const char* types : {"i8 | u8 | i16 | i4", "u8 | i8 | u4 | i16"})
    for (size_t i : {0, 1, 2, 3, 4}) {
      std::string text = programs[i];
      auto replace = [&](const std::string& from, const std::string& to) {
        for (size_t at; (at = text.find(from)) != text.npos;) text.replace(at, from.size(), to);
      };
      replace("f32 | f16 | bf16 | f8e4m3", types);
      replace("f32", "i32");
      texts.push_back(text);
    }
  conformance::Random random(11);
  size_t run = 0;
  for (const std::string& text : texts) {
    ir::Module module = load(text);
    for (int attempt = 0, made = 0; attempt < 200 && made < 1; ++attempt) {
      auto test = conformance::random_case(module.kernels[0], 90, random);
      if (!test) continue;
      ++made;
      auto prepared = conformance::Prepared::make(*test);
      REQUIRE_MESSAGE(prepared.ok(), prepared.status().message());
      const Target host = conformance::target_of(cpu->properties(), *test);
      for (int variant = 0; variant < 4; ++variant) {
        Target target = host;
        target.vector_bits = variant == 3 ? host.vector_bits : std::min(host.vector_bits, 128 << variant);
        // Fused where the host can, else in two steps; the narrow ones as if it could not.
        if (variant < 3 && host.dot16 == Target::Dot16::kFused) target.dot16 = Target::Dot16::kMultiplyAdd;
        const int bits = target.vector_bits;
        auto lowered = lower((*prepared)->kernel(), target, (*prepared)->facts());
        REQUIRE_MESSAGE(lowered.ok(), lowered.status().message());
        conformance::Report report = conformance::run_lowered(*cpu, **prepared, *lowered);
        CAPTURE(text);
        CAPTURE(bits);
        CAPTURE(conformance::describe(*test));
        CHECK_MESSAGE(report.passed(), report.describe());
        ++run;
      }
    }
  }
  CHECK(run == texts.size() * 4);
}

}  // namespace
}  // namespace kachel::lowering
