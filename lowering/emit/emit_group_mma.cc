// wgmma as CUDA C++: one function for each form that a kernel uses.
//
// Products that follow one another into the same registers are one function too, a *run*: the instructions are the
// same, but the sums, up to 128 registers, pass through the compiler once instead of once for each of them. An
// attention takes a fifth less time to compile for it. Source: PTX ISA, "wgmma.mma_async", "Matrix Descriptor Format".
#include <fmt/format.h>

#include <optional>

#include "ir/poly.h"
#include "lowering/emit/emit.h"

namespace kachel::lowering {
namespace {

using ir::DType;

std::string form_name(const LoopIntrinsic& mma) {
  return fmt::format("kachel_group_mma_{}_{}_n{}{}{}{}", ir::name(mma.type), ir::name(mma.type_b), mma.immediate,
                     mma.view_a.swizzle ? "" : "_registers", mma.view_a.transpose ? "_a_down" : "",
                     mma.view_b.transpose ? "_b_down" : "");
}

std::string function_name(const GroupRun& run) {
  std::string name = form_name(*run.first);
  if (run.products.size() > 1) name += fmt::format("_x{}", run.products.size());
  for (size_t i = 1; i < run.products.size(); ++i) name += fmt::format("_{}_{}", run.products[i].a, run.products[i].b);
  return name;
}

// How far the operand lies behind that of the first product: registers, or 16 bytes of shared memory.
std::optional<int64_t> distance(const LoopIntrinsic& first, const LoopIntrinsic& mma, size_t operand, bool registers) {
  const auto &from = first.operands[operand], &to = mma.operands[operand];
  if (from.buffer != to.buffer) return {};
  ir::PolyContext polys;
  const ir::Poly apart = polys.add(polys.of(to.index), polys.of(from.index), -1);
  if (!apart.is_constant() || apart.constant_term() < 0) return {};
  const int64_t bits = apart.constant_term() * ir::bits(to.buffer->type.dtype);
  const int64_t unit = registers ? 32 : 128;
  if (bits % unit != 0) return {};
  return bits / unit;
}

const LoopIntrinsic* group_mma_at(const LoopBlock& body, size_t at) {
  const auto* node = at < body.size() ? std::get_if<LoopIntrinsic>(&body[at].node) : nullptr;
  return node && node->kind == LoopIntrinsic::Kind::kGroupMma ? node : nullptr;
}

}  // namespace

const char* tensor_core_type(DType type) {
  switch (type) {
    case DType::F16:
      return "f16";
    case DType::BF16:
      return "bf16";
    case DType::F32:
      return "tf32";
    case DType::F8E4M3:
      return "e4m3";
    case DType::F8E5M2:
      return "e5m2";
    case DType::I8:
      return "s8";
    default:
      return "u8";
  }
}

uint64_t matrix_descriptor(const LoopIntrinsic::MatrixView& view) {
  const uint64_t mode = view.swizzle == 128 ? 1 : view.swizzle == 64 ? 2 : 3;
  return static_cast<uint64_t>(view.slab / 16) << 16 | static_cast<uint64_t>(view.stride / 16) << 32 | mode << 62;
}

std::string group_instruction(const LoopIntrinsic& mma) {
  return fmt::format("wgmma.mma_async.sync.aligned.m64n{}k{}.{}.{}.{}", mma.immediate, 256 / ir::bits(mma.type),
                     ir::is_float(mma.type) ? "f32" : "s32", tensor_core_type(mma.type), tensor_core_type(mma.type_b));
}

std::string group_flags(const LoopIntrinsic& mma) {
  std::string flags = ir::is_float(mma.type) ? ", 1, 1" : "";
  if (ir::bits(mma.type) != 16) return flags;
  if (mma.view_a.swizzle) flags += mma.view_a.transpose ? ", 1" : ", 0";
  return flags + (mma.view_b.transpose ? ", 1" : ", 0");
}

GroupRun group_run(const LoopBlock& body, size_t at) {
  GroupRun run;
  run.first = group_mma_at(body, at);
  if (!run.first) return run;
  run.products.push_back({0, 0});
  const LoopIntrinsic& first = *run.first;
  while (const LoopIntrinsic* next = group_mma_at(body, at + run.products.size())) {
    const auto sums = distance(first, *next, 0, true);
    const auto a = distance(first, *next, 1, !first.view_a.swizzle), b = distance(first, *next, 2, false);
    const bool alike = next->accumulate && form_name(*next) == form_name(first) &&
                       matrix_descriptor(next->view_a) == matrix_descriptor(first.view_a) &&
                       matrix_descriptor(next->view_b) == matrix_descriptor(first.view_b);
    if (!alike || sums != 0 || !a || !b) break;
    run.products.push_back({*a, *b});
  }
  return run;
}

std::string group_run_call(const GroupRun& run, const std::string& c, const std::string& a, const std::string& b) {
  const LoopIntrinsic& mma = *run.first;
  const std::string left = mma.view_a.swizzle
                               ? fmt::format("kachel_matrix({}, {:#x}ull)", a, matrix_descriptor(mma.view_a))
                               : fmt::format("(const u32*)({})", a);
  return fmt::format("{}({}, {}, kachel_matrix({}, {:#x}ull), {});", function_name(run), c, left, b,
                     matrix_descriptor(mma.view_b), mma.accumulate ? 1 : 0);
}

std::string group_run_function(const GroupRun& run) {
  const LoopIntrinsic& mma = *run.first;
  const bool integers = !ir::is_float(mma.type), registers = !mma.view_a.swizzle;
  const auto sums = static_cast<size_t>(mma.immediate / 2), products = run.products.size();
  const size_t lefts = registers ? 4 * products : 1, right = sums + lefts, accumulate = right + 1;
  std::string numbers, results, inputs;
  for (size_t i = 0; i < sums; ++i) {
    numbers += fmt::format("{}%{}", i ? ", " : "", i);
    results += fmt::format("{}\"+{}\"(c[{}])", i ? ", " : "", integers ? "r" : "f", i);
  }
  const std::string flags = group_flags(mma), instruction = group_instruction(mma);
  std::string text = fmt::format("setp.ne.b32 p, %{}, 0; ", accumulate);
  for (size_t i = 0; i < products; ++i) {
    const GroupRun::Product& product = run.products[i];
    std::string left = "a";
    if (registers) {
      left = fmt::format("{{%{}, %{}, %{}, %{}}}", sums + 4 * i, sums + 4 * i + 1, sums + 4 * i + 2, sums + 4 * i + 3);
      for (int64_t r = 0; r < 4; ++r) inputs += fmt::format("\"r\"(a[{}]), ", product.a + r);
    } else {
      text += fmt::format("add.s64 a, %{}, {}; ", sums, product.a);
    }
    text += fmt::format("add.s64 b, %{}, {}; ", right, product.b);
    text += fmt::format("{} {{{}}}, {}, b, p{}; ", instruction, numbers, left, flags);
    if (i == 0 && products > 1) text += "setp.eq.b32 p, 0, 0; ";
  }
  if (!registers) inputs = "\"l\"(a), ";
  return fmt::format(
      "KACHEL_DEVICE void {}({}* c, {} a, u64 b, int accumulate) {{\n"
      "  asm volatile(\"{{ .reg .pred p; .reg .b64 a, b; {}}}\"\n    : {}\n    : {}\"l\"(b), \"r\"(accumulate));\n}}\n",
      function_name(run), integers ? "int" : "float", registers ? "const u32*" : "u64", text, results, inputs);
}

}  // namespace kachel::lowering
