#include "ir/interval.h"

#include <algorithm>

#include "ir/numerics.h"

namespace kachel::ir {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
const double kNaN = std::numeric_limits<double>::quiet_NaN();

bool is_nan(double v) {
  return v != v;
}
bool touches_zero(const Cell& a) {
  return std::abs(a.v) <= a.e;
}

}  // namespace

Cell rounded_far(double v, double e, bool contracted) {
  if (is_nan(v)) return Cell::exact(kNaN);
  double magnitude = std::abs(v);
  if (magnitude == kInfinity) return Cell::exact(v);
  if (magnitude + e < kOverflowF32) return rounded_f32(v, e);
  // Fused with an infinite addend, an overflowing product counts as the finite number it is: inf where inf - inf would
  // have been NaN.
  if (!contracted && magnitude - e >= kOverflowF32) return Cell::exact(std::copysign(kInfinity, v));
  return Cell::undecided();
}

Cell add_special(const Cell& a, const Cell& b) {
  if (a.is_undecided() || b.is_undecided()) return Cell::undecided();
  return rounded_far(a.v + b.v, a.e + b.e, false);
}

Cell multiply_special(const Cell& a, const Cell& b) {
  if (a.is_undecided() || b.is_undecided()) return Cell::undecided();
  if (is_nan(a.v) || is_nan(b.v)) return Cell::exact(kNaN);
  if (std::isinf(a.v) || std::isinf(b.v)) {
    const Cell& other = std::isinf(a.v) ? b : a;
    if (other.e != 0 && touches_zero(other)) return Cell::undecided();
    return Cell::exact(a.v * b.v);
  }
  return rounded_far(a.v * b.v, std::abs(a.v) * b.e + std::abs(b.v) * a.e + a.e * b.e, true);
}

Cell divide(const Cell& a, const Cell& b) {
  if (a.is_undecided() || b.is_undecided()) return Cell::undecided();
  if (is_nan(a.v) || is_nan(b.v)) return Cell::exact(kNaN);
  if (touches_zero(b)) {
    // The sign of a zero may depend on the order of a sum, so only +0 decides the sign of the quotient.
    if (b.e != 0 || std::signbit(b.v) || (a.e != 0 && touches_zero(a))) return Cell::undecided();
    return Cell::exact(a.v / b.v);
  }
  if (std::isinf(a.v) || std::isinf(b.v)) return Cell::exact(a.v / b.v);
  double v = a.v / b.v;
  double e = a.e == 0 && b.e == 0 ? 0 : (a.e + std::abs(v) * b.e) / (std::abs(b.v) - b.e);
  // GRAMMAR.md, "Numerics": 1 ulp instead of half of one where numbers are far from 1, more near to the smallest.
  const auto far = [](double x, double error) {
    return std::abs(x) - error < 0x1p-100 || std::abs(x) + error > 0x1p126;
  };
  if (a.v != 0 && (far(v, e) || far(a.v, a.e) || far(b.v, b.e))) e += std::abs(v) * 0x1p-23 + 0x1p-147;
  return rounded_far(v, e, false);
}

Cell fma(const Cell& a, const Cell& b, const Cell& c) {
  double product = a.v * b.v;  // exact where it matters: 48 bits
  double e = std::abs(a.v) * b.e + std::abs(b.v) * a.e + a.e * b.e + c.e;
  double v = std::fma(a.v, b.v, c.v);
  if (std::abs(v) + e <= kLargestF32) return rounded_f32(v, e);
  if (a.is_undecided() || b.is_undecided() || c.is_undecided()) return Cell::undecided();
  if (!std::isfinite(product) || !std::isfinite(c.v)) {
    Cell exact_product = std::isfinite(product) ? Cell::exact(product) : multiply_special(a, b);
    return add_special(exact_product, c);
  }
  return rounded_far(v, e, false);
}

Cell maximum(const Cell& a, const Cell& b) {
  if (a.is_undecided() || b.is_undecided()) return Cell::undecided();
  if (is_nan(a.v)) return b;
  if (is_nan(b.v)) return a;
  double low_a = a.v - a.e, high_a = a.v + a.e, low_b = b.v - b.e, high_b = b.v + b.e;
  if (low_a >= high_b) return a;
  if (low_b >= high_a) return b;
  double low = std::max(low_a, low_b), high = std::max(high_a, high_b);
  return Cell::of((low + high) / 2, (high - low) / 2 * (1 + 0x1p-28));
}

Cell minimum(const Cell& a, const Cell& b) {
  return negate(maximum(negate(a), negate(b)));
}

Cell hull(const Cell& a, const Cell& b) {
  if (a.e == 0 && b.e == 0 && (a.v == b.v || (is_nan(a.v) && is_nan(b.v)))) return a;
  if (is_nan(a.v) || is_nan(b.v)) return Cell::undecided();
  double low = std::min(a.v - a.e, b.v - b.e), high = std::max(a.v + a.e, b.v + b.e);
  double e = (high - low) / 2;
  if (!(e < kInfinity)) return Cell::undecided();
  return Cell::of((low + high) / 2, e * (1 + 0x1p-28));
}

Cell hull_integer(const Cell& a, const Cell& b) {
  return Cell::integer(a.i, a.e == 0 && b.e == 0 && a.i == b.i ? 0 : kUndecided);
}

Cell compare_floats(Op op, const Cell& a, const Cell& b) {
  if (a.e == 0 && b.e == 0) return Cell::integer(float_compare(op, a.v, b.v));
  if (a.is_undecided() || b.is_undecided()) return Cell::integer(0, kUndecided);
  // A NaN is exact, so the other operand decides nothing.
  if (is_nan(a.v) || is_nan(b.v)) return Cell::integer(op == Op::kNe);
  bool below = a.v + a.e<b.v - b.e, above = a.v - a.e> b.v + b.e;
  if (below || above) {
    bool truth = op == Op::kNe || (below ? op == Op::kLt || op == Op::kLe : op == Op::kGt || op == Op::kGe);
    return Cell::integer(truth);
  }
  bool touching_below = a.v + a.e <= b.v - b.e, touching_above = a.v - a.e >= b.v + b.e;
  if (op == Op::kLe && touching_below) return Cell::integer(1);
  if (op == Op::kGe && touching_above) return Cell::integer(1);
  if (op == Op::kLt && touching_above) return Cell::integer(0);
  if (op == Op::kGt && touching_below) return Cell::integer(0);
  return Cell::integer(0, kUndecided);
}

namespace {

Cell float_to_float(const Cell& value, DType to) {
  if (value.e == 0) return Cell::exact(round_float(to, value.v));
  if (value.is_undecided()) return value;
  double low = round_float(to, value.v - value.e), high = round_float(to, value.v + value.e);
  if (low == high) return Cell::exact(low);
  if (std::isinf(low) || std::isinf(high)) return Cell::undecided();
  return Cell::of((low + high) / 2, (high - low) / 2);
}

Cell float_to_integer_cell(const Cell& value, DType to) {
  if (value.e == 0) return Cell::integer(float_to_integer(to, value.v));
  if (value.is_undecided()) return Cell::integer(0, kUndecided);
  if (to == DType::Bool) return Cell::integer(1, touches_zero(value) ? kUndecided : 0);
  int64_t low = float_to_integer(to, value.v - value.e), high = float_to_integer(to, value.v + value.e);
  return Cell::integer(low, low == high ? 0 : kUndecided);
}

}  // namespace

Cell convert_cell(const Cell& value, DType from, DType to) {
  if (from == DType::F32) return is_float(to) ? float_to_float(value, to) : float_to_integer_cell(value, to);
  if (is_float(to)) {
    if (value.e != 0) return Cell::undecided();
    return Cell::exact(round_float(to, integer_to_float(from, value.i)));
  }
  return Cell::integer(wrap_integer(to, value.i), value.e);
}

}  // namespace kachel::ir
