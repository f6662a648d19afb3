// What is made of tensors whose last axis but one has stride 1, read off the printed stages.
#include <doctest/doctest.h>

#include <algorithm>

#include "tests/lowering/lowered_text.h"

namespace kachel::lowering {
namespace {

// `facts`: which tensors are transposed; the others have 16-byte rows.
Lowered seen(const std::string& text, const std::vector<std::string>& transposed, int architecture = 90) {
  auto module = ir::load(text);
  REQUIRE_MESSAGE(module.ok(), module.status().message());
  const ir::Kernel& kernel = module->kernels[0];
  Request request{text};
  request.target.architecture = architecture;
  request.facts = 0;
  const std::vector<Fact> facts = facts_of(kernel);
  for (size_t i = 0; i < facts.size(); ++i) {
    bool turned = false;
    if (facts[i].param >= 0)
      for (const std::string& name : transposed)
        turned |= kernel.params[static_cast<size_t>(facts[i].param)].name() == name;
    if (facts[i].param < 0 || turned == (facts[i].kind == Fact::Kind::kTransposed)) request.facts |= uint64_t{1} << i;
  }
  return lowered(request);
}

std::string product(const char* type, const char* load_a = "a = A[i*64 +: 64, k*64 +: 64]") {
  return std::string("tile 1\nkernel product(A: ") + type + "[M, K], B: " + type + R"([K, N], C: out f32[M, N])
grid i < ceildiv(M, 64), j < ceildiv(N, 128)
{
  shared a: )" +
         type + "[64, 64], b: " + type + R"([64, 128]
  fragment c: f32[64, 128] = 0
  pipelined k < ceildiv(K, 64), 3 {
    )" + load_a +
         R"(
    b = B[k*64 +: 64, j*128 +: 128]
    c += a @ b
  }
  C[i*64 +: 64, j*128 +: 128] = c
}
)";
}

TEST_CASE("operands of products are read along their columns, transposed") {
  for (const std::vector<std::string>& names :
       {std::vector<std::string>{"A"}, std::vector<std::string>{"B"}, std::vector<std::string>{"A", "B"}}) {
    const Lowered got = seen(product("f16"), names);
    CAPTURE(got.notes);
    CHECK(has(got.notes, "pipeline k: depth 3, the copy engine into {a, b}"));
    CHECK(has(got.notes, "gemm c: wgmma"));
    REQUIRE(got.maps.size() == 2);
    for (const TensorMap& map : got.maps) {
      const bool turned = std::find(names.begin(), names.end(), map.param == 0 ? "A" : "B") != names.end();
      CHECK(map.transposed == turned);
      CHECK(map.box == std::vector<int32_t>{turned && map.param == 1 ? 128 : 64, 64});
    }
    // The stride that the kernel takes is that of the argument's axis which is not 1. The copy engine needs none.
    const Lowered threads = seen(product("f16"), names, 80);
    for (const Slot& slot : threads.slots) {
      if (slot.kind != Slot::Kind::kStride || slot.index > 1) continue;
      const bool turned = std::find(names.begin(), names.end(), slot.index == 0 ? "A" : "B") != names.end();
      CHECK(slot.axis == (turned ? 1 : 0));
    }
  }
  // Columns of B are rows of the operand, which is what 8-bit types need.
  CHECK(has(seen(product("f8e4m3"), {"B"}).notes, "gemm c: wgmma"));
  CHECK_FALSE(has(seen(product("f8e4m3"), {}).notes, "gemm c: wgmma"));
  CHECK(has(seen(product("f16"), {"A", "B"}, 80).notes, "pipeline k: depth 3, asynchronous copies into {a, b}"));
}

TEST_CASE("a tensor that something else becomes of stays as it is") {
  // Rows by `within`.
  const Lowered bounded = seen(product("f16", "a = A[i*64 +: 64, k*64 +: 64] within 3 +: M - 3"), {"A", "B"});
  CHECK(has(bounded.notes, "the copy engine into {b} (a is not copied ahead"));
  for (const TensorMap& map : bounded.maps) CHECK(map.param == 1);
  // A fragment.
  const Lowered copied = seen(R"(tile 1
kernel copied(A: f32[M, N], C: out f32[M, N])
grid i < ceildiv(M, 64), j < ceildiv(N, 64)
{
  fragment a: f32[64, 64]
  a = A[i*64 +: 64, j*64 +: 64]
  C[i*64 +: 64, j*64 +: 64] = a
}
)",
                              {"A"});
  int strides = 0;
  for (const Slot& slot : copied.slots) strides += slot.kind == Slot::Kind::kStride && slot.index == 0;
  CHECK(strides == 2);
}

TEST_CASE("tiles that no transposed tensor fills stay as they are") {
  const std::string text = R"(tile 1
kernel twice(A: f16[M, K], B: f16[K, N], C: out f32[M, N])
grid i < ceildiv(M, 64), j < ceildiv(N, 128)
{
  shared a: f16[64, 32], twice: f16[64, 32], b: f16[32, 128]
  fragment c: f32[64, 128] = 0
  for k < ceildiv(K, 32) {
    a = A[i*64 +: 64, k*32 +: 32]
    b = B[k*32 +: 32, j*128 +: 128]
    parallel m < 64, n < 32 { twice[m, n] = a[m, n] * 2 }
    c += twice @ b
  }
  C[i*64 +: 64, j*128 +: 128] = c
}
)";
  const Lowered got = seen(text, {"A"}, 80);
  CAPTURE(got.notes);
  CHECK(has(got.notes, "tile a: f16 in memory of the block, layout [32, 64]"));
  CHECK(has(got.notes, "tile twice: f16 in memory of the block, layout [64, 32]"));
  CHECK(has(got.notes, "tile b: f16 in memory of the block, layout [32, 128]"));
}

TEST_CASE("regions read transposed tiles and tensors with exchanged indices") {
  const Lowered got = seen(R"(tile 1
kernel scaled(A: f32[M, N], G: f32[M, N], C: out f32[M, N])
grid i < ceildiv(M, 64), j < ceildiv(N, 32)
{
  shared a: f32[64, 32]
  a = A[i*64 +: 64, j*32 +: 32]
  parallel m < 64, n < 32 { C[i*64 + m, j*32 + n] = a[m, n] * G[i*64 + m, j*32 + n] }
}
)",
                           {"A", "G"});
  CAPTURE(got.loop_ir);
  int strides = 0;
  for (const Slot& slot : got.slots) strides += slot.kind == Slot::Kind::kStride && slot.index < 2;
  CHECK(strides == 2);  // one each: the other is 1
}

}  // namespace
}  // namespace kachel::lowering
