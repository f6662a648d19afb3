// Functions of numbers: instructions where there are such, else ptx_math.h.
#include <cmath>

#include "ir/query.h"
#include "lowering/emit/ptx/ptx_expr.h"
#include "lowering/emit/ptx/ptx_math.h"

namespace kachel::lowering::ptx {

using ir::DType;
using ir::ExprRef;
using ir::Op;

namespace {

const char* instruction(Op op, bool approx) {
  switch (op) {
    case Op::kNeg:
      return "neg.f32";
    case Op::kAdd:
      return "add.f32";
    case Op::kSub:
      return "sub.f32";
    case Op::kMul:
      return "mul.f32";
    case Op::kMin:
      return "min.f32";
    case Op::kMax:
      return "max.f32";
    case Op::kAbs:
      return "abs.f32";
    case Op::kFma:
      return "fma.rn.f32";
    case Op::kExp2:
      return "ex2.approx.ftz.f32";
    case Op::kRcp:
      return "rcp.approx.f32";
    case Op::kRsqrt:
      return "rsqrt.approx.f32";
    case Op::kSqrt:
      return approx ? "sqrt.approx.f32" : "sqrt.rn.f32";
    case Op::kFloor:
      return "cvt.rmi.f32.f32";
    case Op::kCeil:
      return "cvt.rpi.f32.f32";
    case Op::kTrunc:
      return "cvt.rzi.f32.f32";
    case Op::kRound:
      return "cvt.rni.f32.f32";
    default:
      break;
  }
  if (!approx) return nullptr;
  switch (op) {
    case Op::kLog2:
      return "lg2.approx.f32";
    case Op::kTanh:
      return "tanh.approx.f32";
    case Op::kSin:
      return "sin.approx.f32";
    case Op::kCos:
      return "cos.approx.f32";
    default:
      return nullptr;
  }
}

float constant_of(const ExprRef& number) {
  return static_cast<float>(number->float_value);
}

}  // namespace

// |x|, of a multiple c y as c |y|, and what has the sign of x: an instruction takes the magnitude of an operand, but
// not of its result.
std::pair<Value, Value> Expressions::magnitude(const ExprRef& x) {
  const auto made = [&](const char* name, const std::vector<Value>& args) {
    return code_.pure(Class::kF32, name, args);
  };
  const bool minus = ir::is(x, Op::kNeg);
  const ExprRef& value = minus ? x->args[0] : x;
  if (ir::is(value, Op::kMul))
    for (const size_t at : {size_t{0}, size_t{1}})
      if (const ExprRef& c = value->args[at]; c->kind == ir::ExprKind::kFloat) {
        const Value y = of(value->args[1 - at]);
        const auto factor = static_cast<float>(c->float_value);
        return {made("mul.f32", {made("abs.f32", {y}), Code::number(std::abs(factor))}),
                minus == std::signbit(factor) ? y : made("neg.f32", {y})};
      }
  return {made("abs.f32", {of(value)}), of(x)};
}

Value Expressions::function(const ExprRef& e, const std::vector<Value>& args) {
  const char* type = number_type(e->type);
  const Class kind = class_of_type(e->type);
  if (e->type == DType::F32) {
    if (e->op == Op::kClamp)
      return code_.pure(kind, "min.f32", {code_.pure(kind, "max.f32", {args[0], args[1]}), args[2]});
    if (e->op == Op::kRaisedTanh) return raised_tangent(&code_, args[0], constant_of(e->args[1]));
    if (e->op == Op::kRaisedErf) {
      const auto [t, sign] = magnitude(e->args[0]);
      return raised_error_function(&code_, t, sign, constant_of(e->args[1]));
    }
    if (ir::is(e, Op::kTanh) && ir::is(e->args[0], Op::kLog) && !e->approx && !e->args[0]->approx)
      return tangent_of_logarithm(&code_, of(e->args[0]->args[0]));
    if (!e->approx && !e->of_rounded)
      if (const auto made = written_out(&code_, e->op, args)) return *made;
    if (e->op == Op::kExp)
      return code_.pure(kind, instruction(Op::kExp2, true),
                        {code_.pure(kind, "mul.f32", {args[0], Code::number(1.4426950408889634f)})});
    if (e->op == Op::kLog)
      return code_.pure(kind, "mul.f32",
                        {code_.pure(kind, instruction(Op::kLog2, true), args), Code::number(0.6931471805599453f)});
    const char* name = instruction(e->op, e->approx);
    return name ? code_.pure(kind, name, args) : lacks(ir::info(e->op).spelling, kind);
  }
  switch (e->op) {
    case Op::kMin:
    case Op::kMax:
      return code_.extremum(e->op == Op::kMin, type, args[0], args[1]);
    case Op::kClamp:
      return code_.extremum(true, type, code_.extremum(false, type, args[0], args[1]), args[2]);
    case Op::kAbs:
      return ir::is_signed(e->type) ? code_.magnitude(args[0]) : args[0];
    case Op::kPopcount: {
      const Value count = code_.pure(Class::kB32, kind == Class::kB64 ? "popc.b64" : "popc.b32", args);
      return kind == Class::kB64 ? code_.widened(count, false) : count;
    }
    default:
      return lacks(ir::info(e->op).spelling, kind);
  }
}

}  // namespace kachel::lowering::ptx
