// Left operands in registers that loops with branches read again and again (docs/assembler.md), and comparisons whose
// sides are parted by the loops that they change with.
#include <doctest/doctest.h>

#include "lowering/loop_ir/loop_build.h"
#include "lowering/passes/kept_operands.h"
#include "tests/lowering/lowered_text.h"

namespace kachel::lowering {
namespace {

Lowered attention(const std::string& mask, const std::string& between) {
  Request request{R"(tile 1
kernel k(Q: bf16[M, 64], K: bf16[N, 64], V: bf16[N, 64], O: out f32[M, 64], from: i32, flag: i32)
grid m < ceildiv(M, 64)
{
  fragment q: bf16[64, 64], s: f32[64, 64], p: bf16[64, 64], acc: f32[64, 64] = 0
  shared   k: bf16[64, 64], v: bf16[64, 64]
  let first = m * (from + N)
  parallel i < 64, d < 64 { q[i, d] = Q[m*64 + i, 63 - d] }
  pipelined n < ceildiv(N, 64), 2 {
    k = K[n*64 +: 64, :]
    v = V[n*64 +: 64, :]
    s = q @ k^T
    parallel i < 64, j < 64 { s[i, j] = )" +
                  mask + " ? s[i, j] : 0 }\n" + between + R"(
    p = s
    acc += p @ v
  }
  O[m*64 +: 64, :] = acc
}
)"};
  request.target.architecture = 90;
  return lowered(request);
}
const std::string kBranch = "if flag > 0 { parallel i < 64, d < 64 { acc[i, d] *= 0.5 } }";

TEST_CASE(
    "what wgmma reads from registers in every iteration is written by the fence where a branch stands in the loop") {
  const std::string with = attention("true", kBranch).text, without = attention("true", "").text;
  CHECK(has(with, "wgmma"));
  CHECK(count(with, "%%clock_hi") == 1);
  CHECK(count(with, "or.b32") >= 16);
  CHECK(count(without, "%%clock_hi") == 0);
}

// A loop over a product of registers `q`, which waits until so many groups are under way, and does more.
LoopBlock kept_in_loop(int64_t under_way, LoopBlock more, bool written) {
  using Kind = LoopIntrinsic::Kind;
  const auto registers = [](const char* name, ir::DType type) {
    auto made = std::make_shared<ir::Buffer>();
    made->name = name;
    made->type = {type, nullptr, false};
    made->scope = ir::Scope::kRegister;
    made->shape = {ir::make_int(32)};
    return made;
  };
  const ir::BufferRef q = registers("q", ir::DType::BF16), sums = registers("sums", ir::DType::F32);
  const auto variable = [](ir::DType type) {
    return std::make_shared<ir::Var>(ir::Var{ir::VarKind::kLet, "n", {type, nullptr, false}, {}});
  };
  LoopIntrinsic mma{Kind::kGroupMma, {}}, wait{Kind::kGroupWait, {}};
  mma.operands = {{sums, int32(0), 32, true}, {q, int32(0), 8, false}, {sums, int32(0), 32, false}};
  wait.immediate = under_way;
  LoopFor loop;
  loop.var = variable(ir::DType::I32);
  loop.begin = int32(0);
  loop.end = ir::make_var(variable(ir::DType::I32));
  loop.body = {{LoopIntrinsic{Kind::kGroupFence, {}}}, {mma}, {LoopIntrinsic{Kind::kGroupCommit, {}}}, {wait}};
  loop.body.insert(loop.body.end(), more.begin(), more.end());
  if (written) loop.body.push_back({LoopStore{q, int32(0), ir::make_float(0)}});
  LoopKernel kernel;
  kernel.body.push_back({std::move(loop)});
  kept_operands(&kernel);
  return std::get<LoopFor>(kernel.body[0].node).body;
}

TEST_CASE("what is still being read is waited for before it is written") {
  const auto node = [](const LoopBlock& body, size_t at) { return std::get<LoopIntrinsic>(body.at(at).node); };
  const ir::ExprRef flag = ir::make_var(
      std::make_shared<ir::Var>(ir::Var{ir::VarKind::kLet, "flag", {ir::DType::Bool, nullptr, false}, {}}));
  const LoopBlock branch = {{LoopIf{flag, {{LoopBarrier{}}}, {}}}};
  const LoopBlock all = kept_in_loop(0, branch, false), one = kept_in_loop(1, branch, false);
  CHECK(node(all, 0).operands.size() == 1);
  CHECK(node(all, 0).operands[0].write);
  CHECK(node(one, 0).kind == LoopIntrinsic::Kind::kGroupWait);
  CHECK(node(one, 0).immediate == 0);
  CHECK(node(one, 1).operands.size() == 1);
  CHECK(node(kept_in_loop(0, branch, true), 0).operands.empty());
  CHECK(node(kept_in_loop(0, {}, false), 0).operands.empty());
  LoopIntrinsic arrival{LoopIntrinsic::Kind::kPhaseArrive, {}};
  CHECK(node(kept_in_loop(0, {{LoopIf{flag, {{arrival}}, {}}}}, false), 0).operands.empty());
}

TEST_CASE("masks compare what unrolled loops change with one number of 32 bits") {
  const auto mask = [](const std::string& condition) { return attention(condition, "").loop_ir; };
  CHECK(has(mask("n*64 + j <= m*64 + i"), "i32(u32(j_r * 8) + (u32(0) - u32(i_r * 8)) + u32(j_r)) <= i32("));
  CHECK(has(mask("n*64 + j + 3 < m*64 + i"), "i32(u32(j_r * 8)"));
  const std::string wide = mask("i64(from) * N + n*64 + j < i64(from) * M");
  CHECK(has(wide, "< i32(max(min("));
  // Of numbers that are not known to be small nothing is moved.
  CHECK(!has(mask("from * j < from + i"), "max(min("));
}

}  // namespace
}  // namespace kachel::lowering
