// Functions of numbers. tanh and erf of f32 are those of cuda_math.inc, with the same constants and errors; exp, log and
// quotients, which CUDA C++ takes from CUDA's own library, have forms of their own here, sin and cos none.
#include <limits>

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
    if (e->op == Op::kExp && !e->approx) return exponential(args[0]);
    if ((e->op == Op::kLog || e->op == Op::kLog2) && !e->approx) return logarithm(args[0], e->op == Op::kLog2);
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
  const Value q = polynomial(
      &code_, t, {-0.00208119396f, 0.0245034751f, -0.137231812f, -0.930817544f, -1.62149954f, -0.00129053101f});
  const Value large = f("sub.f32", {Code::number(1), f("ex2.approx.ftz.f32", {q})});
  return with_sign_of(code_.select(code_.compare("lt", "f32", t, Code::number(0.72f)), small, large), x);
}

// 2^t and what t has lost by rounding: 2 ulp of ex2.approx and two roundings. The bounds keep infinities away, for
// which there would be no loss to speak of; the instruction overflows and underflows within them.
Value Expressions::exponential(const Value& x) {
  const auto f = [&](const char* name, const std::vector<Value>& args) { return code_.pure(Class::kF32, name, args); };
  const Value bounded = f("min.NaN.f32", {f("max.NaN.f32", {x, Code::number(-150)}), Code::number(150)});
  const Value factor = Code::number(1.44269502f), t = f("mul.rn.f32", {bounded, factor});
  const Value lost =
      f("fma.rn.f32", {bounded, Code::number(1.92596303e-8f), f("fma.rn.f32", {bounded, factor, f("neg.f32", {t})})});
  const Value correction = f("fma.rn.f32", {lost, Code::number(0.693147182f), Code::number(1)});
  return f("mul.f32", {f("ex2.approx.ftz.f32", {t}), correction});
}

// x = 2^e (1 + d) with 1 + d from sqrt(1/2) to sqrt(2); log(1 + d) = d - d^2 / 2 + d^3 p(d), a minimax fit. Errors 0.76
// ulp, of log2 1.18: every 37th number, all from 1/2 to 2.
Value Expressions::logarithm(const Value& x, bool binary) {
  const auto f = [&](const char* name, const std::vector<Value>& args) { return code_.pure(Class::kF32, name, args); };
  const Value tiny = code_.compare("lt", "f32", x, Code::number(0x1p-126f));
  const Value raised = code_.select(tiny, f("mul.f32", {x, Code::number(0x1p23f)}), x);
  const Value bias = code_.select(tiny, Code::number(-23), Code::number(0));
  constexpr int64_t kRoot = 0x3f3504f3;  // sqrt(1/2)
  const Value moved = code_.add(code_.pure(Class::kB32, "mov.b32", {raised}), Code::integer(-kRoot, 32));
  const Value exponent = code_.pure(Class::kB32, "shr.s32", {moved, Code::integer(23, 32)});
  const Value fraction = code_.pure(Class::kB32, "and.b32", {moved, Code::integer(0x7fffff, 32)});
  const Value mantissa = f("mov.b32", {code_.add(fraction, Code::integer(kRoot, 32))});
  const Value d = f("add.rn.f32", {mantissa, Code::number(-1)});
  const Value e = f("add.rn.f32", {f("cvt.rn.f32.s32", {exponent}), bias});
  const Value p = polynomial(&code_, d,
                             {0x1.204376p-4f, -0x1.d7a37p-4f, 0x1.de4a34p-4f, -0x1.fcba9ep-4f, 0x1.23d37ep-3f,
                              -0x1.555cap-3f, 0x1.999d58p-3f, -0x1.fffff8p-3f, 0x1.555554p-2f});
  const Value squared = f("mul.rn.f32", {d, d});
  const Value cubic = f("mul.rn.f32", {f("mul.rn.f32", {p, d}), squared});
  const Value half = f("mul.rn.f32", {d, Code::number(-0.5f)});
  Value sum;
  if (binary) {
    // The factor log2(e) is 1 + 0.4427: what is multiplied by 1 stays exact.
    const Value y = f("fma.rn.f32", {half, d, cubic}), more = Code::number(0x1.c551dap-2f);
    const Value scaled = f("fma.rn.f32", {d, more, f("mul.rn.f32", {y, more})});
    sum = f("add.rn.f32", {f("add.rn.f32", {f("add.rn.f32", {scaled, y}), d}), e});
  } else {
    const Value low = f("fma.rn.f32", {e, Code::number(-0x1.bd0106p-13f), cubic});
    const Value near = f("add.rn.f32", {f("fma.rn.f32", {half, d, low}), d});
    sum = f("fma.rn.f32", {e, Code::number(0.693359375f), near});
  }
  const Value infinity = Code::number(std::numeric_limits<float>::infinity()), zero = Code::number(0);
  const Value proper = code_.select(code_.compare("eq", "f32", x, infinity), x, sum);
  const Value ends = code_.select(code_.compare("eq", "f32", x, zero), f("neg.f32", {infinity}), proper);
  return code_.select(code_.compare("ge", "f32", x, zero), ends, Code::number(std::numeric_limits<float>::quiet_NaN()));
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
