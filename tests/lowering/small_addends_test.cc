// What quotients, remainders and masks do not see of a sum (small_addends.cc), and what loops then load once.
#include "lowering/passes/small_addends.h"

#include "ir/print.h"
#include "tests/lowering/lowered_text.h"

namespace kachel::lowering {
namespace {

using ir::DType;
using ir::ExprRef;
using ir::Op;

ir::VarRef variable(const char* name) {
  return std::make_shared<ir::Var>(ir::Var{ir::VarKind::kLet, name, {DType::I32, nullptr}, {}});
}
ExprRef number(int64_t value) {
  return ir::make_int(value, DType::I32);
}

TEST_CASE("a mask takes from a sum of a multiple and something small the one that has the bits") {
  const ir::VarRef lane = variable("lane"), round = variable("round"), other = variable("other");
  Ranges ranges;
  ranges.set(lane, {0, 127});
  ranges.set(round, {0, 7});
  ranges.set(other, {-1000, 1000});
  const ExprRef far = ir::make_typed(Op::kMul, {ir::make_var(round), number(128)});
  const auto of = [&](Op op, const ir::VarRef& small, int64_t by) {
    const ExprRef sum = ir::make_typed(Op::kAdd, {ir::make_var(small), far});
    return ir::print(without_small_addend(ir::make_typed(op, {sum, number(by)}), ranges, {}));
  };
  const std::string both = "lane + round * 128", any = "other + round * 128";
  CHECK(of(Op::kBitAnd, lane, 15) == "lane & 15");
  CHECK(of(Op::kBitAnd, lane, 64) == "lane & 64");
  CHECK(of(Op::kBitAnd, lane, 256) == "round * 128 & 256");
  CHECK(of(Op::kBitAnd, lane, 255).find(both) != std::string::npos);  // bits of both
  CHECK(of(Op::kBitAnd, lane, 0) == "0");
  CHECK(of(Op::kBitAnd, other, 127) == "other & 127");
  CHECK(of(Op::kBitAnd, other, 256).find(any) != std::string::npos);  // which may carry
  CHECK(of(Op::kMod, lane, 128) == "lane");
  CHECK(of(Op::kMod, lane, 64).find(both) != std::string::npos);
  CHECK(of(Op::kDiv, lane, 128) == "round * 128 / 128");
  CHECK(of(Op::kDiv, other, 128).find(any) != std::string::npos);
}

TEST_CASE("factors that bits of a thread's number choose are loaded once for all of its registers") {
  const std::string text = lowered({R"(tile 1
kernel k(X: f32[N, 512], T: f32[256, 2], Y: out f32[N, 512, 2])
tune threads = 128
grid b < N
{
  shared z: f32[1, 512]
  fragment x: f32[1, 512], y: f32[1, 512]
  z = X[b +: 1, :]
  parallel i < 1, d < 512 { x[i, d] = z[i, (d & 1) << 8 | (d & 510) >> 1] }
  parallel i < 1, d < 512 { y[i, d] = x[i, d] * T[(d & 15) << 4, 0] - T[(d & 15) << 4, 1] }
  Y[b +: 1, :, 0] = y
}
)"})
                               .loop_ir;
  CAPTURE(text);
  CHECK(has(text, "copy_vector near[0 +: 2], T[ix * i32(T_stride0) +: 2]\n    for d_r"));
}

}  // namespace
}  // namespace kachel::lowering
