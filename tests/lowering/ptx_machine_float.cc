// Arithmetic of f32 and of pairs of 16-bit floats. What hardware approximates is computed in double and rounded.
#include <cmath>
#include <limits>

#include "ir/numerics.h"
#include "tests/lowering/ptx_machine_functions.h"

namespace kachel::lowering {
namespace {

using ir::DType;

float flushed(float value) {
  return std::fpclassify(value) == FP_SUBNORMAL ? std::copysign(0.0f, value) : value;
}
bool unordered(float a, float b) {
  return std::isnan(a) || std::isnan(b);
}
// -0 is less than 0.
float least(float a, float b) {
  if (std::isnan(a)) return b;
  if (std::isnan(b)) return a;
  if (a == b) return std::signbit(a) ? a : b;
  return a < b ? a : b;
}
float most(float a, float b) {
  if (std::isnan(a)) return b;
  if (std::isnan(b)) return a;
  if (a == b) return std::signbit(a) ? b : a;
  return a > b ? a : b;
}

void define_exact(PtxFunctions* all) {
  for (const char* rounding : {"", ".rn"}) {
    const std::string end = std::string(rounding) + ".f32";
    define<float>(all, "add" + end, [](float a, float b) { return a + b; });
    define<float>(all, "sub" + end, [](float a, float b) { return a - b; });
    define<float>(all, "mul" + end, [](float a, float b) { return a * b; });
  }
  define<float>(all, "fma.rn.f32", [](float a, float b, float c) { return std::fma(a, b, c); });
  define<float>(all, "fma.rn.sat.f32", [](float a, float b, float c) {
    const float sum = std::fma(a, b, c);
    return sum >= 1 ? 1.0f : sum > 0 ? sum : 0.0f;  // NaN gives 0
  });
  define<float>(all, "sqrt.rn.f32", [](float a) { return std::sqrt(a); });
  define<float>(all, "neg.f32", [](float a) { return -a; });
  define<float>(all, "abs.f32", [](float a) { return std::fabs(a); });
  define<float>(all, "copysign.f32", [](float sign, float size) { return std::copysign(size, sign); });
  define<float>(all, "min.f32", [](float a, float b) { return least(a, b); });
  define<float>(all, "max.f32", [](float a, float b) { return most(a, b); });
  define<float>(all, "min.NaN.f32", [](float a, float b) { return unordered(a, b) ? a + b : least(a, b); });
  define<float>(all, "max.NaN.f32", [](float a, float b) { return unordered(a, b) ? a + b : most(a, b); });
}

void define_orders(PtxFunctions* all) {
  define_comparisons<float>(all, "f32");
  define<float>(all, "setp.ne.f32", [](float a, float b) { return !unordered(a, b) && a != b; });
  define<float>(all, "setp.num.f32", [](float a, float b) { return !unordered(a, b); });
  define<float>(all, "setp.nan.f32", [](float a, float b) { return unordered(a, b); });
  define<float>(all, "setp.equ.f32", [](float a, float b) { return unordered(a, b) || a == b; });
  define<float>(all, "setp.neu.f32", [](float a, float b) { return a != b; });
  define<float>(all, "setp.ltu.f32", [](float a, float b) { return !(a >= b); });
  define<float>(all, "setp.leu.f32", [](float a, float b) { return !(a > b); });
  define<float>(all, "setp.gtu.f32", [](float a, float b) { return !(a <= b); });
  define<float>(all, "setp.geu.f32", [](float a, float b) { return !(a < b); });
}

// With and without subnormals.
template <class Op>
void define_approximation(PtxFunctions* all, const std::string& name, Op) {
  define<float>(all, name + ".approx.f32", [](float a) { return static_cast<float>(Op{}(double{a})); });
  define<float>(all, name + ".approx.ftz.f32",
                [](float a) { return flushed(static_cast<float>(Op{}(double{flushed(a)}))); });
}

void define_approximations(PtxFunctions* all) {
  define_approximation(all, "ex2", [](double a) { return std::exp2(a); });
  define_approximation(all, "lg2", [](double a) { return std::log2(a); });
  define_approximation(all, "rcp", [](double a) { return 1 / a; });
  define_approximation(all, "sqrt", [](double a) { return std::sqrt(a); });
  define_approximation(all, "rsqrt", [](double a) { return 1 / std::sqrt(a); });
  define_approximation(all, "sin", [](double a) { return std::sin(a); });
  define_approximation(all, "cos", [](double a) { return std::cos(a); });
  define_approximation(all, "tanh", [](double a) { return std::tanh(a); });
}

// Of one number of 16 bits, and of two in a word.
template <DType kType, class Op>
void define_half(PtxFunctions* all, const std::string& name, Op) {
  (*all)[name] = [](PtxOperands x) -> uint64_t {
    auto number = [](uint64_t bits) { return double{narrow_float(kType, static_cast<uint16_t>(bits))}; };
    return ir::encode_float(kType, Op{}(number(x[0]), number(x[1])));
  };
  (*all)[name + "x2"] = [](PtxOperands x) -> uint64_t {
    auto half = [&](int shift) -> uint64_t {
      auto number = [&](uint64_t bits) { return double{narrow_float(kType, static_cast<uint16_t>(bits >> shift))}; };
      return uint64_t{ir::encode_float(kType, Op{}(number(x[0]), number(x[1])))} << shift;
    };
    return half(0) | half(16);
  };
}
template <DType kType>
void define_halves(PtxFunctions* all, const std::string& type) {
  define_half<kType>(all, "add.rn." + type, [](double a, double b) { return a + b; });
  define_half<kType>(all, "sub.rn." + type, [](double a, double b) { return a - b; });
  define_half<kType>(all, "mul.rn." + type, [](double a, double b) { return a * b; });
}

}  // namespace

void define_floats(PtxFunctions* all) {
  define_exact(all);
  define_orders(all);
  define_approximations(all);
  define_halves<DType::F16>(all, "f16");
  define_halves<DType::BF16>(all, "bf16");
}

}  // namespace kachel::lowering
