// What expressions become in CUDA C++, where that matters to more than a reader.
#include "lowering/emit/emit_cuda_expr.h"

#include <doctest/doctest.h>

namespace kachel::lowering {
namespace {

using ir::DType;
using ir::ExprRef;
using ir::Op;

ExprRef variable(const char* name, DType type) {
  return ir::make_var(std::make_shared<ir::Var>(ir::Var{ir::VarKind::kLet, name, {type, nullptr, false}, {}}));
}

// ptxas 13.0 may copy 16 bits of a 32-bit one where a select is one of 64 bits (cuda_prelude.cc).
TEST_CASE("a select of the smaller or larger of two integers is written as an instruction") {
  LoopKernel kernel;
  CudaExpressions expressions(kernel);
  auto text = [&](Op compare, const ExprRef& a, const ExprRef& b, const ExprRef& yes, const ExprRef& no) {
    return expressions.text(ir::make_typed(Op::kSelect, {ir::make_typed(compare, {a, b}), yes, no}), false);
  };
  const ExprRef a = variable("a", DType::I32), b = variable("b", DType::I32);
  for (Op less : {Op::kLt, Op::kLe}) {
    CHECK(text(less, a, b, a, b) == "kachel_min(a_, b_)");
    CHECK(text(less, a, b, b, a) == "kachel_max(b_, a_)");
  }
  for (Op more : {Op::kGt, Op::kGe}) {
    CHECK(text(more, a, b, a, b) == "kachel_max(a_, b_)");
    CHECK(text(more, a, b, b, a) == "kachel_min(b_, a_)");
  }
  CHECK(text(Op::kLt, a, b, a, a) == "((a_ < b_) ? a_ : a_)");
  CHECK(text(Op::kEq, a, b, a, b) == "((a_ == b_) ? a_ : b_)");
  // Of floats one of which is NaN, min gives the other.
  const ExprRef x = variable("x", DType::F32), y = variable("y", DType::F32);
  CHECK(text(Op::kLt, x, y, x, y) == "(kachel_less(x_, y_) ? x_ : y_)");
}

// ptxas 13.0 takes |x| >= 0 for true of NaN (cuda_prelude.cc).
TEST_CASE("orders of floats are the opposites of what ptxas folds") {
  LoopKernel kernel;
  CudaExpressions expressions(kernel);
  const ExprRef x = variable("x", DType::F32), y = variable("y", DType::F32);
  const auto text = [&](Op op) { return expressions.text(ir::make_typed(op, {x, y}), false); };
  CHECK(text(Op::kLt) == "kachel_less(x_, y_)");
  CHECK(text(Op::kGt) == "kachel_less(y_, x_)");
  CHECK(text(Op::kLe) == "kachel_at_most(x_, y_)");
  CHECK(text(Op::kGe) == "kachel_at_most(y_, x_)");
  CHECK(text(Op::kEq) == "(x_ == y_)");
}

}  // namespace
}  // namespace kachel::lowering
