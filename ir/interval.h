// Values with rounding-error bounds: what the reference interpreter computes with. Private to it.
//
// A float cell says that a correct implementation has some value within [v - e, v + e]. v is not itself rounded: it is
// the float64 result, and e grows by half an ulp of f32 with each operation, so that evaluating with fma or without,
// and summing in any order, stays within. Where all operands are exact (e == 0) the error of the one rounding is known
// and taken instead, which keeps sums of small integers exact. e == 0 with v infinite or NaN means exactly that.
//
// e == kUndecided says that nothing is known, not even that the value is finite: uninitialised memory, a choice that
// hangs on a comparison within the error, an overflow that rounding may or may not cause. It spreads through every
// operation. Integer and bool cells hold an exact value or are undecided.
#pragma once
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "ir/expr.h"

namespace kachel::ir {

inline constexpr double kUndecided = std::numeric_limits<double>::infinity();

struct Cell {
  union {
    double v;
    int64_t i;
  };
  double e;

  static Cell exact(double value) { return {value, 0.0}; }
  static Cell of(double value, double error) { return {value, error}; }
  static Cell integer(int64_t value, double error = 0) {
    Cell cell{0.0, error};
    cell.i = value;
    return cell;
  }
  static Cell undecided() { return {0.0, kUndecided}; }
  bool is_undecided() const { return e == kUndecided; }
};

inline constexpr double kLargestF32 = 0x1.FFFFFEp127;
inline constexpr double kOverflowF32 = 0x1.FFFFFFp127;  // this and beyond rounds to infinity

// Half an ulp of f32 at x >= 0.
inline double half_ulp_f32(double x) {
  uint64_t exponent = std::bit_cast<uint64_t>(x) >> 52;
  constexpr uint64_t kLeast = 1023 - 126;
  return std::bit_cast<double>(((exponent < kLeast ? kLeast : exponent) - 24) << 52);
}

// What one rounding to f32 adds to [v - e, v + e]. REQUIRES: |v| + e <= kLargestF32.
inline Cell rounded_f32(double v, double e) {
  if (e == 0) return Cell::of(v, std::abs(static_cast<double>(static_cast<float>(v)) - v));
  // The factor pays for the float64 roundings of v and e themselves.
  return Cell::of(v, (e + half_ulp_f32(std::abs(v) + e)) * (1 + 0x1p-28));
}

// Near or beyond the f32 range, and everything that is not finite. `contracted`: a following addition may be fused with
// this operation and bring an overflowing product back into range.
Cell rounded_far(double v, double e, bool contracted);
Cell add_special(const Cell& a, const Cell& b);
Cell multiply_special(const Cell& a, const Cell& b);
Cell divide(const Cell& a, const Cell& b);
Cell fma(const Cell& a, const Cell& b, const Cell& c);

inline Cell add(const Cell& a, const Cell& b) {
  double v = a.v + b.v, e = a.e + b.e;
  return std::abs(v) + e <= kLargestF32 ? rounded_f32(v, e) : add_special(a, b);
}
inline Cell negate(const Cell& a) {
  return Cell::of(-a.v, a.e);
}
inline Cell multiply(const Cell& a, const Cell& b) {
  double v = a.v * b.v;
  double e = a.e == 0 && b.e == 0 ? 0 : std::abs(a.v) * b.e + std::abs(b.v) * a.e + a.e * b.e;
  return std::abs(v) + e <= kLargestF32 ? rounded_f32(v, e) : multiply_special(a, b);
}

// A NaN loses against a number.
Cell maximum(const Cell& a, const Cell& b);
Cell minimum(const Cell& a, const Cell& b);
// Covers both; undecided unless both are finite or equal.
Cell hull(const Cell& a, const Cell& b);
Cell hull_integer(const Cell& a, const Cell& b);

// The functions of f32, kSqrt to kRound included, with the errors stated in GRAMMAR.md.
Cell function(Op op, bool approx, const Cell& a, bool of_rounded = false);

// kRaisedTanh, kRaisedErf: k (1 + f(a)).
Cell raised_function(Op op, const Cell& a, double k);

// A bool cell; undecided where the intervals overlap.
Cell compare_floats(Op op, const Cell& a, const Cell& b);

// The conversion table on cells: `value` is held in compute type `from`, the result is rounded to `to` and held in its
// compute type. A float becomes the interval between the rounded ends, exact where they agree.
Cell convert_cell(const Cell& value, DType from, DType to);

}  // namespace kachel::ir
