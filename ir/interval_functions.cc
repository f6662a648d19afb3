// Functions of f32 on cells: the float64 value, the error that the operand's interval leads to (from the derivative,
// bounded over the interval), and the error that an implementation may add. The last is twice what CUDA's libdevice
// states, so that other correct libraries pass as well. GRAMMAR.md, "Numerics", has the same table.
#include <algorithm>

#include "ir/interval.h"
#include "ir/numerics.h"

namespace kachel::ir {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kLn2 = 0.6931471805599453;
constexpr double kPi = 3.141592653589793;
constexpr double kRaisedError = 0x1p-21;
constexpr double kLargestAngle = 0x1p20;  // beyond it sin and cos are only known to lie in [-1, 1]

// What the result may differ by for an exact operand `x`, given the exact result `v`.
double stated_error(Op op, bool approx, double x, double v) {
  double ulp = 2 * half_ulp_f32(std::abs(v));
  if (approx) {
    switch (op) {
      case Op::kExp2:
        return std::abs(v) * 0x1p-21 + 0x1p-126;
      case Op::kExp:
        return std::abs(v) * 0x1p-19 * (1 + std::abs(x)) + 0x1p-126;
      case Op::kRcp:
      case Op::kRsqrt:
        return std::abs(v) * 0x1p-22 + 0x1p-126;
      case Op::kTanh:
        return std::abs(v) * 0x1.6A1p-11 + 0x1p-126;  // 2^-10.5
      case Op::kSin:
      case Op::kCos:
        return 0x1p-20 * std::max(1.0, x * x / (kPi * kPi));
      case Op::kLog:
      case Op::kLog2:
        return 0x1p-21 * std::max(1.0, std::abs(v));
      default:
        break;
    }
  }
  switch (op) {
    case Op::kLog:
    case Op::kLog2:
    case Op::kRcp:
      return 2 * ulp;
    case Op::kExp:
    case Op::kExp2:
      return 4 * ulp + 0x1p-126;
    case Op::kRsqrt:
    case Op::kTanh:
    case Op::kErf:
    case Op::kSin:
    case Op::kCos:
      return 4 * ulp;
    default:
      return 0;
  }
}

double evaluate_double(Op op, double x) {
  switch (op) {
    case Op::kExp:
      return std::exp(x);
    case Op::kExp2:
      return std::exp2(x);
    case Op::kLog:
      return std::log(x);
    case Op::kLog2:
      return std::log2(x);
    case Op::kRsqrt:
      return 1 / std::sqrt(x);
    case Op::kRcp:
      return 1 / x;
    case Op::kSqrt:
      return std::sqrt(x);
    case Op::kTanh:
      return std::tanh(x);
    case Op::kErf:
      return std::erf(x);
    case Op::kSin:
      return std::sin(x);
    default:
      return std::cos(x);
  }
}

// An upper bound of |f(y) - f(x)| for |y - x| <= e, where f(x) = v. REQUIRES: the interval is within the domain.
double propagated(Op op, double x, double e, double v) {
  double relative = e / std::abs(x);
  switch (op) {
    case Op::kExp:
      return v == 0 ? std::exp(x + e) : v * std::expm1(e);
    case Op::kExp2:
      return v == 0 ? std::exp2(x + e) : v * std::expm1(e * kLn2);
    case Op::kLog:
      return relative / (1 - relative);
    case Op::kLog2:
      return relative / (1 - relative) / kLn2;
    case Op::kRsqrt:
      return v * relative / (2 * (1 - relative));
    case Op::kRcp:
      return std::abs(v) * relative / (1 - relative);
    case Op::kSqrt:
      return v * relative / (1 + std::sqrt(1 - relative));
    case Op::kTanh: {
      double nearest = std::max(0.0, std::abs(v) - e);
      return e * (1 - nearest * nearest);
    }
    case Op::kErf: {
      double nearest = std::max(0.0, std::abs(x) - e);
      return e * 1.1283791670955128 * std::exp(-nearest * nearest);
    }
    default:
      return std::min(e, 2.0);
  }
}

Cell step_function(Op op, const Cell& a) {
  if (a.e == 0) return Cell::exact(float_op(op, a.v));
  double low = float_op(op, a.v - a.e), high = float_op(op, a.v + a.e);
  return low == high ? Cell::exact(low) : Cell::of((low + high) / 2, (high - low) / 2);
}

// The result lies in [low, high] for every operand of the interval, whatever the domain.
bool needs_positive(Op op) {
  return op == Op::kLog || op == Op::kLog2 || op == Op::kRsqrt || op == Op::kSqrt;
}

}  // namespace

Cell function(Op op, bool approx, const Cell& a, bool of_rounded) {
  if (a.is_undecided()) return a;
  if (op == Op::kAbs) return Cell::of(std::abs(a.v), a.e);
  if (op == Op::kFloor || op == Op::kCeil || op == Op::kTrunc || op == Op::kRound) return step_function(op, a);
  if (approx && a.v != 0 && std::abs(a.v) < 0x1p-125 + a.e &&
      (op == Op::kRcp || op == Op::kRsqrt || op == Op::kLog || op == Op::kLog2))
    return Cell::undecided();  // a subnormal operand may count as zero
  if (a.e != 0) {
    bool touches_zero = std::abs(a.v) <= a.e;
    if (op == Op::kRcp && touches_zero) return Cell::undecided();
    if (needs_positive(op) && a.v - a.e <= 0 && !(a.v + a.e < 0)) return Cell::undecided();
  } else if ((op == Op::kRcp || op == Op::kRsqrt) && a.v == 0) {
    return std::signbit(a.v) ? Cell::undecided() : Cell::exact(kInfinity);
  }
  const bool circular = op == Op::kSin || op == Op::kCos;
  if (circular && std::isfinite(a.v) && std::abs(a.v) + a.e > kLargestAngle) return Cell::of(0, 1 + 0x1p-20);
  double v = evaluate_double(op, a.v);
  // NaN, and infinite operands or poles, where the result is exact; tanh and erf of infinity are 1, nearly.
  if (v != v) return Cell::exact(v);
  if (std::isinf(a.v) && (v == 0 || std::isinf(v))) return Cell::exact(v);
  if (a.v == 0 && a.e == 0 && std::isinf(v)) return Cell::exact(v);
  if (op == Op::kSqrt && a.e == 0 && !approx) return rounded_f32(v, 0);
  if (std::isinf(v)) {  // beyond float64: far beyond f32, unless the interval is huge
    double low = evaluate_double(op, a.v - a.e);
    return low > 2 * kOverflowF32 ? Cell::exact(v) : Cell::undecided();
  }
  double e = a.e == 0 ? 0 : propagated(op, a.v, a.e, v);
  if (of_rounded) e += std::abs(v * a.v) * 0x1p-23;
  e += stated_error(op, approx, a.v, v) + (op == Op::kSqrt ? half_ulp_f32(std::abs(v) + e) : 0);
  e *= 1 + 0x1p-28;
  if (std::abs(v) + e <= kLargestF32) return Cell::of(v, e);
  if (std::abs(v) - e >= kOverflowF32) return Cell::exact(std::copysign(kInfinity, v));
  return Cell::undecided();
}

Cell raised_function(Op op, const Cell& a, double k) {
  if (a.is_undecided()) return a;
  const Op within = op == Op::kRaisedTanh ? Op::kTanh : Op::kErf;
  const double v = float_op(op, a.v, k);
  if (v != v) return Cell::exact(v);
  const double e = (a.e == 0 ? 0 : propagated(within, a.v, a.e, evaluate_double(within, a.v))) + kRaisedError;
  return rounded_far(v, std::abs(k) * e, false);
}

}  // namespace kachel::ir
