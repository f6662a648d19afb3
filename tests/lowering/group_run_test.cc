// Products of wgmma that are written as one: which ones, and the text that comes of them.
#include <doctest/doctest.h>

#include "lowering/emit/emit.h"

namespace kachel::lowering {
namespace {

using ir::DType;
using Kind = LoopIntrinsic::Kind;

ir::BufferRef buffer(const char* name, DType type, ir::Scope scope) {
  auto made = std::make_shared<ir::Buffer>();
  made->name = name;
  made->type = {type, nullptr, false};
  made->scope = scope;
  made->shape = {ir::make_int(4096)};
  return made;
}

struct Products {
  ir::BufferRef sums = buffer("sums", DType::F32, ir::Scope::kRegister),
                a = buffer("a", DType::F16, ir::Scope::kShared), b = buffer("b", DType::F16, ir::Scope::kShared),
                r = buffer("r", DType::F16, ir::Scope::kRegister);
  ir::VarRef stage = std::make_shared<ir::Var>(ir::Var{ir::VarKind::kLet, "stage", {DType::I32, nullptr, false}, {}});

  ir::ExprRef at(int64_t offset) const {
    const ir::ExprRef base = ir::make_typed(ir::Op::kMul, {ir::make_var(stage), ir::make_int(8192, DType::I32)});
    return offset ? ir::make_typed(ir::Op::kAdd, {base, ir::make_int(offset, DType::I32)}) : base;
  }
  LoopIntrinsic product(int64_t a_at, int64_t b_at, bool accumulate = true, int64_t sums_at = 0) const {
    LoopIntrinsic mma{Kind::kGroupMma, {}, nullptr};
    mma.type = mma.type_b = DType::F16;
    mma.immediate = 16;
    mma.accumulate = accumulate;
    mma.view_a = mma.view_b = {128, 1024, 8192, false};
    mma.operands = {
        {sums, ir::make_int(sums_at, DType::I32), 8, true}, {a, at(a_at), 1024, false}, {b, at(b_at), 256, false}};
    return mma;
  }
  LoopIntrinsic from_registers(int64_t register_at, int64_t b_at) const {
    LoopIntrinsic mma = product(0, b_at);
    mma.view_a = {};
    mma.operands[1] = {r, ir::make_int(register_at, DType::I32), 8, false};
    return mma;
  }
};

LoopBlock block(std::vector<LoopIntrinsic> nodes) {
  LoopBlock body;
  for (LoopIntrinsic& node : nodes) body.push_back({std::move(node)});
  return body;
}

size_t length(std::vector<LoopIntrinsic> nodes) {
  return group_run(block(std::move(nodes)), 0).products.size();
}

}  // namespace

TEST_CASE("products behind one another into the same registers are a run") {
  const Products p;
  const LoopBlock body = block({p.product(0, 0, false), p.product(16, 16), p.product(32, 1024 * 4)});
  const GroupRun run = group_run(body, 0);
  REQUIRE(run.products.size() == 3);
  CHECK(run.products[1].a == 2);  // 16 elements of 2 bytes
  CHECK(run.products[1].b == 2);
  CHECK(run.products[2].a == 4);
  CHECK(run.products[2].b == 512);
  CHECK(group_run(body, 1).products.size() == 2);
  CHECK(group_run(body, 3).first == nullptr);
}

TEST_CASE("a run ends where its instructions would not be the same") {
  const Products p;
  LoopIntrinsic other_type = p.product(16, 16), other_view = other_type, other_tile = other_type;
  other_type.type = DType::BF16;
  other_view.view_b.stride = 512;
  other_tile.operands[1].buffer = p.b;
  CHECK(length({p.product(0, 0), p.product(16, 16)}) == 2);
  CHECK(length({p.product(0, 0), p.product(16, 16, false)}) == 1);    // begins anew
  CHECK(length({p.product(0, 0), p.product(16, 16, true, 8)}) == 1);  // other sums
  CHECK(length({p.product(16, 0), p.product(0, 16)}) == 1);           // backwards
  CHECK(length({p.product(0, 0), p.product(4, 16)}) == 1);            // within 16 bytes
  CHECK(length({p.product(0, 0), other_type}) == 1);
  CHECK(length({p.product(0, 0), other_view}) == 1);
  CHECK(length({p.product(0, 0), other_tile}) == 1);
  CHECK(length({p.product(0, 0), p.from_registers(0, 16)}) == 1);
  CHECK(length({p.product(0, 0), {Kind::kGroupFence, {}, nullptr}, p.product(16, 16)}) == 1);
}

TEST_CASE("the text of a run has an instruction for each product, and the sums once") {
  const Products p;
  const LoopBlock body = block({p.product(0, 0, false), p.product(16, 32)});
  const GroupRun run = group_run(body, 0);
  CHECK(group_run_call(run, "sums_ + 0", "a_ + x", "b_ + y") ==
        "kachel_group_mma_f16_f16_n16_x2_2_4(sums_ + 0, kachel_matrix(a_ + x, 0x4000004002000000ull), "
        "kachel_matrix(b_ + y, 0x4000004002000000ull), 0);");
  CHECK(
      group_run_function(run) ==
      "KACHEL_DEVICE void kachel_group_mma_f16_f16_n16_x2_2_4(float* c, u64 a, u64 b, int accumulate) {\n"
      "  asm volatile(\"{ .reg .pred p; .reg .b64 a, b; setp.ne.b32 p, %10, 0; add.s64 a, %8, 0; add.s64 b, %9, 0; "
      "wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7}, a, b, p, 1, 1, 0, 0; "
      "setp.eq.b32 p, 0, 0; add.s64 a, %8, 2; add.s64 b, %9, 4; "
      "wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7}, a, b, p, 1, 1, 0, 0; }\"\n"
      "    : \"+f\"(c[0]), \"+f\"(c[1]), \"+f\"(c[2]), \"+f\"(c[3]), \"+f\"(c[4]), \"+f\"(c[5]), \"+f\"(c[6]), "
      "\"+f\"(c[7])\n    : \"l\"(a), \"l\"(b), \"r\"(accumulate));\n}\n");

  const LoopBlock registers = block({p.from_registers(8, 0), p.from_registers(16, 16)});
  const GroupRun two = group_run(registers, 0);
  REQUIRE(two.products.size() == 2);
  CHECK(two.products[1].a == 4);
  const std::string text = group_run_function(two);
  CHECK(text.find("{%8, %9, %10, %11}, b, p, 1, 1, 0;") != text.npos);
  CHECK(text.find("{%12, %13, %14, %15}, b, p, 1, 1, 0;") != text.npos);
  CHECK(text.find("\"r\"(a[3]), \"r\"(a[4]), ") != text.npos);
  CHECK(text.find("setp.ne.b32 p, %17, 0") != text.npos);
}

}  // namespace kachel::lowering
