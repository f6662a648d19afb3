// Functions of numbers. Those of f32 that take more than an instruction are the ones of cuda_math.inc, with the same
// constants and errors; what CUDA's own library computes has no code here.
#include "lowering/emit/ptx/ptx_expr.h"

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

}  // namespace

Value Expressions::function(const ExprRef& e, const std::vector<Value>& args) {
  const char* type = number_type(e->type);
  const Class kind = class_of_type(e->type);
  const auto named = [&](const char* name, const std::vector<Value>& of) {
    return code_.pure(kind, fmt::format("{}.{}", name, type).c_str(), of);
  };
  if (e->op == Op::kClamp) return named("min", {named("max", {args[0], args[1]}), args[2]});
  if (e->type == DType::F32) {
    if (e->op == Op::kDiv) return divide(args[0], args[1]);
    if (e->op == Op::kTanh && !e->approx) return hyperbolic_tangent(args[0]);
    if (e->op == Op::kErf) return error_function(args[0]);
    if (e->op == Op::kExp && e->approx)
      return code_.pure(kind, instruction(Op::kExp2, true),
                        {code_.pure(kind, "mul.f32", {args[0], Code::number(1.4426950408889634f)})});
    if (e->op == Op::kLog && e->approx)
      return code_.pure(kind, "mul.f32",
                        {code_.pure(kind, instruction(Op::kLog2, true), args), Code::number(0.6931471805599453f)});
    const char* name = instruction(e->op, e->approx);
    return name ? code_.pure(kind, name, args) : lacks(ir::info(e->op).spelling, kind);
  }
  switch (e->op) {
    case Op::kMin:
    case Op::kMax: {
      if (args[0].constant && args[1].constant && ir::is_signed(e->type))
        return (*args[0].constant < *args[1].constant) == (e->op == Op::kMin) ? args[0] : args[1];
      return named(e->op == Op::kMin ? "min" : "max", args);
    }
    case Op::kAbs:
      return ir::is_signed(e->type) ? named("abs", args) : args[0];
    case Op::kPopcount: {
      const Value count = code_.pure(Class::kB32, kind == Class::kB64 ? "popc.b64" : "popc.b32", args);
      return kind == Class::kB64 ? code_.widened(count, false) : count;
    }
    default:
      return lacks(ir::info(e->op).spelling, kind);
  }
}

namespace {

// Horner's scheme, from the highest power down: fma after fma.
Value polynomial(Code* code, const Value& x, std::initializer_list<float> coefficients) {
  Value sum = Code::number(*coefficients.begin());
  for (auto next = coefficients.begin() + 1; next != coefficients.end(); ++next)
    sum = code->pure(Class::kF32, "fma.rn.f32", {sum, x, Code::number(*next)});
  return sum;
}

}  // namespace

Value Expressions::with_sign_of(const Value& magnitude, const Value& x) {
  return code_.pure(Class::kF32, "copysign.f32", {x, magnitude});
}

Value Expressions::hyperbolic_tangent(const Value& x) {
  const auto f = [&](const char* name, const std::vector<Value>& args) { return code_.pure(Class::kF32, name, args); };
  const Value t = f("abs.f32", {x}), z = f("mul.f32", {x, x});
  const Value p = polynomial(&code_, z, {0.0152795585f, -0.0520029739f, 0.133092418f, -0.333323985f});
  const Value small = f("fma.rn.f32", {f("mul.f32", {p, z}), t, t});
  const Value power = f("ex2.approx.ftz.f32", {f("mul.f32", {t, Code::number(2.88539008f)})});
  const Value rest = f("rcp.approx.ftz.f32", {f("add.f32", {power, Code::number(1)})});
  const Value large = f("fma.rn.f32", {rest, Code::number(-2), Code::number(1)});
  return with_sign_of(code_.select(code_.compare("lt", "f32", t, Code::number(0.62f)), small, large), x);
}

Value Expressions::error_function(const Value& x) {
  const auto f = [&](const char* name, const std::vector<Value>& args) { return code_.pure(Class::kF32, name, args); };
  const Value t = f("abs.f32", {x}), z = f("mul.f32", {x, x});
  const Value p = polynomial(&code_, z, {0.00421903515f, -0.0264173951f, 0.112754002f, -0.376120806f, 0.128379107f});
  const Value small = f("fma.rn.f32", {p, t, t});
  const Value q = polynomial(&code_, t, {-0.00208119396f, 0.0245034751f, -0.137231812f, -0.930817544f, -1.62149954f,
                                         -0.00129053101f});
  const Value large = f("sub.f32", {Code::number(1), f("ex2.approx.ftz.f32", {q})});
  return with_sign_of(code_.select(code_.compare("lt", "f32", t, Code::number(0.72f)), small, large), x);
}

Value Expressions::divide(const Value& a, const Value& b) {
  const auto f = [&](const char* name, const std::vector<Value>& args) { return code_.pure(Class::kF32, name, args); };
  const auto number_or = [&](const Value& value, const Value& other) {
    return code_.select(code_.compare("num", "f32", value, value), value, other);
  };
  const Value one = Code::number(1), size = f("abs.f32", {b});
  const Value scale =
      code_.select(code_.compare("gt", "f32", size, Code::number(0x1p100f)), Code::number(0x1p-60f),
                   code_.select(code_.compare("lt", "f32", size, Code::number(0x1p-100f)), Code::number(0x1p60f), one));
  const Value y = f("mul.rn.f32", {b, scale}), less = f("neg.f32", {y});
  const Value near = f("rcp.approx.ftz.f32", {y});
  const Value nearer = f("fma.rn.f32", {f("fma.rn.f32", {less, near, one}), near, near});
  const Value nearest = f("fma.rn.f32", {f("fma.rn.f32", {less, nearer, one}), nearer, nearer});
  const Value r = number_or(nearest, near);
  const Value q = f("mul.rn.f32", {a, r});
  const Value corrected = f("fma.rn.f32", {f("fma.rn.f32", {f("neg.f32", {q}), y, a}), r, q});
  return f("mul.f32", {number_or(corrected, q), scale});
}

}  // namespace kachel::lowering::ptx
