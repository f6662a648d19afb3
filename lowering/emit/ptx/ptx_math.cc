// tanh and erf are those of cuda_math.inc, with the same constants and errors; exp, log, sin, cos and quotients, which
// CUDA C++ takes from CUDA's own library, have forms of their own.
#include "lowering/emit/ptx/ptx_math.h"

#include <cmath>
#include <limits>

namespace kachel::lowering::ptx {

using ir::Op;

namespace {

struct F32 {
  Code* code;
  Value operator()(const char* name, const std::vector<Value>& args) const {
    return code->pure(Class::kF32, name, args);
  }
};

// Horner's scheme, from the highest power down: fma after fma.
Value polynomial(Code* code, const Value& x, std::initializer_list<float> coefficients) {
  Value sum = Code::number(*coefficients.begin());
  for (auto next = coefficients.begin() + 1; next != coefficients.end(); ++next)
    sum = code->pure(Class::kF32, "fma.rn.f32", {sum, x, Code::number(*next)});
  return sum;
}

Value with_sign_of(const F32& f, const Value& magnitude, const Value& x) {
  return f("copysign.f32", {x, magnitude});
}

Value hyperbolic_tangent(Code* code, const Value& x) {
  const F32 f{code};
  const Value t = f("abs.f32", {x}), z = f("mul.f32", {x, x});
  const Value p = polynomial(code, z, {0.0152795585f, -0.0520029739f, 0.133092418f, -0.333323985f});
  const Value small = f("fma.rn.f32", {f("mul.f32", {p, z}), t, t});
  const Value power = f("ex2.approx.ftz.f32", {f("mul.f32", {t, Code::number(2.88539008f)})});
  const Value rest = f("rcp.approx.ftz.f32", {f("add.f32", {power, Code::number(1)})});
  const Value large = f("fma.rn.f32", {rest, Code::number(-2), Code::number(1)});
  return with_sign_of(f, code->select(code->compare("lt", "f32", t, Code::number(0.62f)), small, large), x);
}

Value error_function(Code* code, const Value& x) {
  const F32 f{code};
  const Value t = f("abs.f32", {x}), z = f("mul.f32", {x, x});
  const Value p = polynomial(code, z, {0.00421903515f, -0.0264173951f, 0.112754002f, -0.376120806f, 0.128379107f});
  const Value small = f("fma.rn.f32", {p, t, t});
  const Value q = polynomial(
      code, t, {-0.00208119396f, 0.0245034751f, -0.137231812f, -0.930817544f, -1.62149954f, -0.00129053101f});
  const Value large = f("sub.f32", {Code::number(1), f("ex2.approx.ftz.f32", {q})});
  return with_sign_of(f, code->select(code->compare("lt", "f32", t, Code::number(0.72f)), small, large), x);
}

// 2^t and what t has lost by rounding, which is below 2^-16 up to t = 256: 2 ulp of ex2.approx and two roundings. Far
// out and at the infinities the loss is no number or none to speak of; saturation leaves a factor near 1 there. kOffset
// makes 1 - kOffset kFactor a float.
Value exponential(Code* code, const Value& x) {
  const F32 f{code};
  constexpr float kFactor = 0x1.62e43p-16f, kOffset = 0x1.feb6ccp-2f;  // ln 2 / 2^15, 177 / 2^24 / kFactor
  const Value log2e = Code::number(1.44269502f), t = f("mul.rn.f32", {x, log2e});
  const Value lost = f("fma.rn.f32", {x, Code::number(1.92596303e-8f), f("fma.rn.f32", {x, log2e, f("neg.f32", {t})})});
  const Value scaled = f("fma.rn.sat.f32", {lost, Code::number(0x1p15f), Code::number(kOffset)});
  const Value correction = f("fma.rn.f32", {scaled, Code::number(kFactor), Code::number(1 - 177 * 0x1p-24f)});
  return f("mul.f32", {f("ex2.approx.ftz.f32", {t}), correction});
}

// x = 2^e (1 + d) with 1 + d from sqrt(1/2) to sqrt(2); log(1 + d) = d - d^2 / 2 + d^3 p(d), a minimax fit. Errors 0.76
// ulp, of log2 1.18: every 37th number, all from 1/2 to 2.
Value logarithm(Code* code, const Value& x, bool binary) {
  const F32 f{code};
  const Value tiny = code->compare("lt", "f32", x, Code::number(0x1p-126f));
  const Value raised = code->select(tiny, f("mul.f32", {x, Code::number(0x1p23f)}), x);
  const Value bias = code->select(tiny, Code::number(-23), Code::number(0));
  constexpr int64_t kRoot = 0x3f3504f3;  // sqrt(1/2)
  const Value moved = code->add(code->pure(Class::kB32, "mov.b32", {raised}), Code::integer(-kRoot, 32));
  const Value exponent = code->pure(Class::kB32, "shr.s32", {moved, Code::integer(23, 32)});
  const Value fraction = code->pure(Class::kB32, "and.b32", {moved, Code::integer(0x7fffff, 32)});
  const Value mantissa = f("mov.b32", {code->add(fraction, Code::integer(kRoot, 32))});
  const Value d = f("add.rn.f32", {mantissa, Code::number(-1)});
  const Value e = f("add.rn.f32", {f("cvt.rn.f32.s32", {exponent}), bias});
  const Value p = polynomial(code, d,
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
  const Value proper = code->select(code->compare("eq", "f32", x, infinity), x, sum);
  const Value ends = code->select(code->compare("eq", "f32", x, zero), f("neg.f32", {infinity}), proper);
  return code->select(code->compare("ge", "f32", x, zero), ends, Code::number(std::numeric_limits<float>::quiet_NaN()));
}

// As in llvm_math.cc: what is left of multiples of pi/2 that three parts make up, then the polynomial of the quadrant.
// 2.3 ulp up to 2^20; beyond, less and less of the angle is left, but the result stays a sine.
Value sine(Code* code, const Value& x, bool cosine) {
  const F32 f{code};
  const Value rounder = Code::number(0x1.8p23f), one = Code::number(1);
  const Value shifted = f("fma.rn.f32", {x, Code::number(0x1.45f306p-1f), rounder});
  const Value turns = f("sub.rn.f32", {shifted, rounder});
  Value rest = x;
  for (const float part : {-0x1.921fbp+0f, -0x1.5110b4p-22f, -0x1.846988p-48f})
    rest = f("fma.rn.f32", {turns, Code::number(part), rest});
  rest = f("max.NaN.f32", {f("min.NaN.f32", {rest, one}), Code::number(-1)});
  const Value z = f("mul.rn.f32", {rest, rest});
  const Value cubic = f("mul.rn.f32", {polynomial(code, z, {-0x1.9943f2p-13f, 0x1.11073cp-7f, -0x1.555546p-3f}), z});
  const Value odd = f("fma.rn.f32", {cubic, rest, rest});
  const Value even = polynomial(code, z, {0x1.99eb9cp-16f, -0x1.6c0c34p-10f, 0x1.55554ap-5f, -0.5f, 1});
  const Value quarter = code->add(code->pure(Class::kB32, "mov.b32", {shifted}), Code::integer(cosine, 32));
  const Value swaps =
      code->compare("ne", "s32", code->bits("and", quarter, Code::integer(1, 32)), Code::integer(0, 32));
  const Value sign = code->shift(code->bits("and", quarter, Code::integer(2, 32)), Code::integer(30, 32), true, false);
  const Value value = code->pure(Class::kB32, "mov.b32", {code->select(swaps, even, odd)});
  return f("mov.b32", {code->bits("xor", value, sign)});
}

// As in cuda_math.inc.
Value divide(Code* code, const Value& a, const Value& b) {
  const F32 f{code};
  const auto bits_of = [&](const Value& x) { return code->pure(Class::kB32, "mov.b32", {x}); };
  const auto integer = [](int64_t value) { return Code::integer(value, 32); };
  const Value exponent = code->bits("and", code->bits("xor", bits_of(b), integer(-1)), integer(0x7f000000));
  const Value scale =
      f("mov.b32",
        {code->pure(Class::kB32, "max.s32", {code->add(exponent, integer(-0x01000000)), integer(0x00800000)})});
  const Value x = f("mul.rn.f32", {a, scale}), y = f("mul.rn.f32", {b, scale});
  const Value less = f("neg.f32", {y}), near = f("rcp.approx.ftz.f32", {y});
  const Value error = f("min.f32", {f("fma.rn.f32", {less, near, Code::number(1)}), Code::number(0.5f)});
  const Value r = f("fma.rn.f32", {near, error, near});
  const Value q = f("mul.rn.f32", {x, r});
  const Value corrected = f("fma.rn.f32", {f("fma.rn.f32", {less, q, x}), r, q});
  const Value proper = code->compare("gt", "f32", f("abs.f32", {corrected}), Code::number(0));
  return code->select(proper, corrected, q);
}

}  // namespace

// 2k - k erfc(|x|), below 0 k erfc(|x|), whose logarithm is a polynomial.
Value raised_error_function(Code* code, const Value& magnitude, const Value& sign, float k) {
  const F32 f{code};
  const Value q = polynomial(code, magnitude,
                             {-4.53586041e-05f, 0.000445507700f, -0.00148944170f, -0.000774629475f, 0.0282536801f,
                              -0.148481622f, -0.918416381f, -1.62790859f});
  const float factor = std::abs(k);
  const Value power =
      factor == 1 ? f("mul.f32", {q, magnitude}) : f("fma.rn.f32", {q, magnitude, Code::number(std::log2(factor))});
  Value rest = f("ex2.approx.ftz.f32", {power});
  if (k < 0) rest = f("neg.f32", {rest});
  return code->select(code->compare("lt", "f32", sign, Code::number(0)), rest,
                      f("sub.f32", {Code::number(2 * k), rest}));
}

// 2k / (1 + exp(-2x)).
Value raised_tangent(Code* code, const Value& x, float k) {
  const F32 f{code};
  const Value power = f("ex2.approx.ftz.f32", {f("mul.f32", {x, Code::number(-2.88539008f)})});
  const Value rest = f("rcp.approx.ftz.f32", {f("add.f32", {power, Code::number(1)})});
  return k == 0.5f ? rest : f("mul.f32", {rest, Code::number(2 * k)});
}

// (y - 1) (y + 1) / (y^2 + 1), of which each factor is rounded once and the quotient twice: 3.5 ulp. Of y below 0 and
// of NaN it is NaN, from 2^30 on 1.
Value tangent_of_logarithm(Code* code, const Value& y) {
  const F32 f{code};
  const Value one = Code::number(1), small = f("min.f32", {y, Code::number(0x1p30f)});
  const Value inverse = f("rcp.approx.ftz.f32", {f("fma.rn.f32", {small, small, one})});
  const Value product = f("mul.f32", {f("add.f32", {small, Code::number(-1)}), f("add.f32", {small, one})});
  const Value quotient = f("mul.f32", {product, inverse}), nan = Code::number(std::numeric_limits<float>::quiet_NaN());
  return code->select(code->compare("ge", "f32", y, Code::number(0)), quotient, nan);
}

std::optional<Value> written_out(Code* code, Op op, const std::vector<Value>& args) {
  switch (op) {
    case Op::kExp:
      return exponential(code, args[0]);
    case Op::kLog:
    case Op::kLog2:
      return logarithm(code, args[0], op == Op::kLog2);
    case Op::kTanh:
      return hyperbolic_tangent(code, args[0]);
    case Op::kErf:
      return error_function(code, args[0]);
    case Op::kSin:
    case Op::kCos:
      return sine(code, args[0], op == Op::kCos);
    case Op::kDiv:
      return divide(code, args[0], args[1]);
    default:
      return std::nullopt;
  }
}

}  // namespace kachel::lowering::ptx
