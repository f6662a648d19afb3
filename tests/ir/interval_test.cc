// The bounds of single operations. Operands are drawn from their intervals; results computed as an implementation
// would, in f32, fused and not, must lie within.
#include "ir/interval.h"

#include <doctest/doctest.h>

#include <random>
#include <vector>

#include "ir/numerics.h"

namespace kachel::ir {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
const double kNan = std::numeric_limits<double>::quiet_NaN();

double f32(double v) {
  return static_cast<float>(v);
}
bool within(const Cell& cell, double v) {
  if (cell.is_undecided()) return true;
  if (cell.v != cell.v) return v != v;
  if (std::isinf(cell.v)) return v == cell.v;
  return std::abs(v - cell.v) <= cell.e;
}

struct Draw {
  std::mt19937 engine{7};
  double uniform(double low, double high) { return low + (high - low) * (engine() / 4294967296.0); }
  Cell cell(double low, double high) {
    double v = f32(uniform(low, high));
    return engine() % 3 == 0 ? Cell::exact(v)
                             : Cell::of(v, std::abs(v) * std::ldexp(1, -static_cast<int>(engine() % 20) - 3));
  }
  // A value that f32 arithmetic may have where `cell` is expected.
  double member(const Cell& cell) {
    if (cell.e == 0) return cell.v;
    double v = f32(cell.v + cell.e * uniform(-0.999, 0.999));
    return within(cell, v) ? v : cell.v;
  }
};

TEST_CASE("sums, products and quotients hold what f32 gives, fused or not") {
  Draw draw;
  int outside = 0;
  double widest = 0;
  for (int round = 0; round < 20000; ++round) {
    Cell a = draw.cell(-3, 3), b = draw.cell(-3, 3), c = draw.cell(-3, 3);
    double x = draw.member(a), y = draw.member(b), z = draw.member(c);
    outside += !within(add(a, b), f32(x + y));
    Cell product = multiply(a, b);
    outside += !within(product, f32(x * y));
    outside += !within(product, x * y);
    Cell sum = add(product, c);
    outside += !within(sum, f32(f32(x * y) + z));
    outside += !within(sum, f32(std::fma(x, y, z)));
    outside += !within(fma(a, b, c), f32(std::fma(x, y, z)));
    if (std::abs(b.v) > 1e-3) outside += !within(divide(a, b), f32(x / y));
    outside += !within(maximum(a, b), std::fmax(x, y));
    outside += !within(minimum(a, b), std::fmin(x, y));
    outside += !within(hull(a, b), x) + !within(hull(a, b), y);
    if (a.e == 0 && b.e == 0) widest = std::max(widest, product.e / ulp_at(DType::F32, product.v));
  }
  CHECK(outside == 0);
  CHECK(widest <= 0.5);
  CHECK(widest > 0.4);
}

TEST_CASE("sums of representable results are exact") {
  CHECK(add(Cell::exact(3), Cell::exact(4)).e == 0);
  CHECK(multiply(Cell::exact(3), Cell::exact(0.5)).e == 0);
  CHECK(divide(Cell::exact(6), Cell::exact(3)).e == 0);
  CHECK(function(Op::kSqrt, false, Cell::exact(9)).e == 0);
  CHECK(add(Cell::exact(16777216), Cell::exact(1)).e == 1);  // 2^24 + 1 or, rounded, 2^24
}

TEST_CASE("functions hold the true value anywhere in the operand's interval, with room for the stated error") {
  struct Row {
    Op op;
    double low, high;
    double (*exact)(double);
  };
  const Row rows[] = {{Op::kExp, -20, 20, [](double x) { return std::exp(x); }},
                      {Op::kExp2, -20, 20, [](double x) { return std::exp2(x); }},
                      {Op::kLog, 0.01, 20, [](double x) { return std::log(x); }},
                      {Op::kLog2, 0.01, 20, [](double x) { return std::log2(x); }},
                      {Op::kRsqrt, 0.01, 20, [](double x) { return 1 / std::sqrt(x); }},
                      {Op::kRcp, -5, 5, [](double x) { return 1 / x; }},
                      {Op::kSqrt, 0.01, 20, [](double x) { return std::sqrt(x); }},
                      {Op::kTanh, -4, 4, [](double x) { return std::tanh(x); }},
                      {Op::kErf, -4, 4, [](double x) { return std::erf(x); }},
                      {Op::kSin, -9, 9, [](double x) { return std::sin(x); }},
                      {Op::kCos, -9, 9, [](double x) { return std::cos(x); }},
                      {Op::kFloor, -9, 9, [](double x) { return std::floor(x); }},
                      {Op::kCeil, -9, 9, [](double x) { return std::ceil(x); }},
                      {Op::kTrunc, -9, 9, [](double x) { return std::trunc(x); }},
                      {Op::kRound, -9, 9, [](double x) { return std::nearbyint(x); }},
                      {Op::kAbs, -9, 9, [](double x) { return std::abs(x); }}};
  for (const Row& row : rows)
    for (bool approx : {false, true}) {
      CAPTURE(info(row.op).spelling);
      CAPTURE(approx);
      Draw draw;
      int outside = 0, undecided = 0;
      for (int round = 0; round < 5000; ++round) {
        Cell a = draw.cell(row.low, row.high);
        Cell result = function(row.op, approx, a);
        undecided += result.is_undecided();
        for (double x : {a.v, a.v - a.e * 0.999, a.v + a.e * 0.999, draw.member(a)}) {
          double exact = row.exact(x);
          outside += !within(result, exact);
          bool stated = row.op < Op::kFloor && row.op >= Op::kExp && row.op != Op::kSqrt;
          if (stated) {  // one ulp to either side is always allowed
            outside += !within(result, f32(exact) + ulp_at(DType::F32, exact));
            outside += !within(result, f32(exact) - ulp_at(DType::F32, exact));
          }
        }
        // Not much more than the interval and the stated error: 12 ulp for an exact operand, unless approx.
        if (a.e == 0 && !approx && !(result.e <= 12 * ulp_at(DType::F32, result.v))) ++outside;
      }
      CHECK(outside == 0);
      CHECK(undecided < 50);
    }
}

TEST_CASE("what is raised by 1 is within 2^-21 of its constant") {
  Draw draw;
  int outside = 0;
  for (int round = 0; round < 5000; ++round) {
    const Cell a = draw.cell(-4, 4);
    for (const double k : {1.0, -0.5}) {
      const Cell tangent = raised_function(Op::kRaisedTanh, a, k), error = raised_function(Op::kRaisedErf, a, k);
      for (double x : {a.v, a.v - a.e * 0.999, a.v + a.e * 0.999, draw.member(a)})
        for (const double by : {-0.99, 0.0, 0.99}) {
          outside += !within(tangent, k * (1 + std::tanh(x) + by * 0x1p-21));
          outside += !within(error, k * (std::erfc(-x) + by * 0x1p-21));
        }
      if (a.e == 0) outside += !(tangent.e < 0x1p-20 && error.e < 0x1p-20);
    }
  }
  CHECK(outside == 0);
  CHECK(raised_function(Op::kRaisedErf, Cell::undecided(), 1).is_undecided());
  CHECK(std::isnan(raised_function(Op::kRaisedTanh, Cell::exact(kNan), 1).v));
  CHECK(within(raised_function(Op::kRaisedErf, Cell::exact(-kInf), 1), 0));
}

TEST_CASE("infinities and NaN are exact where they are certain") {
  const Cell inf = Cell::exact(kInf), minus = Cell::exact(-kInf), nan = Cell::exact(kNan), one = Cell::of(1, 0.1);
  const Cell around_zero = Cell::of(0.01, 0.1), zero = Cell::exact(0), large = Cell::exact(3e38);
  const auto is = [](const Cell& cell, double v) {
    return cell.e == 0 && (cell.v == v || (v != v && cell.v != cell.v));
  };
  CHECK(is(add(inf, one), kInf));
  CHECK(is(add(inf, minus), kNan));
  CHECK(is(add(nan, one), kNan));
  CHECK(is(multiply(inf, one), kInf));
  CHECK(is(multiply(inf, negate(one)), -kInf));
  CHECK(multiply(inf, around_zero).is_undecided());
  CHECK(is(multiply(inf, zero), kNan));
  CHECK(is(add(large, large), kInf));
  CHECK(is(add(minus, Cell::undecided()), 0) == false);
  CHECK(add(minus, Cell::undecided()).is_undecided());
  CHECK(multiply(zero, Cell::undecided()).is_undecided());
  // An overflowing product is infinite alone, but fused with an addend it may be finite, or not meet an infinity.
  CHECK(multiply(Cell::exact(0x1p64), Cell::exact(0x1p64)).is_undecided());
  CHECK(multiply(Cell::exact(0x1p90), Cell::exact(-0x1p90)).is_undecided());
  CHECK(add(Cell::of(kLargestF32, 1e33), Cell::exact(0)).is_undecided());
  CHECK(is(divide(one, inf), 0));
  CHECK(is(divide(one, zero), kInf));
  CHECK(is(divide(zero, zero), kNan));
  CHECK(divide(one, around_zero).is_undecided());
  CHECK(divide(one, Cell::exact(-0.0)).is_undecided());
  CHECK(is(divide(inf, inf), kNan));
  CHECK(is(function(Op::kExp, false, minus), 0));
  CHECK(function(Op::kExp, false, Cell::exact(40), true).e > 30 * function(Op::kExp, false, Cell::exact(1), false).e);
  CHECK(function(Op::kExp, false, Cell::exact(40), true).e < 0x1p-17 * std::exp(40.0));
  CHECK(is(function(Op::kExp, false, Cell::exact(1000)), kInf));
  CHECK(is(function(Op::kExp2, false, Cell::of(5000, 1)), kInf));
  CHECK(function(Op::kExp2, false, Cell::of(128, 1)).is_undecided());
  CHECK(is(function(Op::kLog, false, zero), -kInf));
  CHECK(is(function(Op::kLog, false, Cell::exact(-1)), kNan));
  CHECK(is(function(Op::kLog2, false, Cell::of(-1, 0.5)), kNan));
  CHECK(function(Op::kLog, false, around_zero).is_undecided());
  CHECK(function(Op::kRcp, false, around_zero).is_undecided());
  CHECK(is(function(Op::kRsqrt, false, inf), 0));
  CHECK(is(function(Op::kSqrt, false, Cell::exact(-1)), kNan));
  CHECK(is(function(Op::kSin, false, inf), kNan));
  CHECK(within(function(Op::kTanh, false, inf), 1));
  CHECK(within(function(Op::kSin, false, Cell::exact(2e6)), -1));
  CHECK(within(function(Op::kSin, false, Cell::exact(2e6)), 1));
  CHECK_FALSE(within(function(Op::kSin, false, Cell::exact(2e5)), 1.01));
  CHECK(is(maximum(nan, Cell::exact(2)), 2));
  CHECK(is(maximum(nan, nan), kNan));
  CHECK(is(minimum(minus, one), -kInf));
  CHECK(is(hull(nan, nan), kNan));
  CHECK(hull(nan, one).is_undecided());
  CHECK(hull(one, nan).is_undecided());
}

TEST_CASE("comparisons are decided where intervals are apart") {
  const Cell a = Cell::of(1, 0.25), b = Cell::of(2, 0.25), near = Cell::of(1.4, 0.25), nan = Cell::exact(kNan);
  const auto truth = [](const Cell& cell) { return cell.e != 0 ? -1 : static_cast<int>(cell.i); };
  CHECK(truth(compare_floats(Op::kLt, a, b)) == 1);
  CHECK(truth(compare_floats(Op::kGt, a, b)) == 0);
  CHECK(truth(compare_floats(Op::kGe, b, a)) == 1);
  CHECK(truth(compare_floats(Op::kEq, a, b)) == 0);
  CHECK(truth(compare_floats(Op::kNe, a, b)) == 1);
  for (Op op : {Op::kEq, Op::kNe, Op::kLt, Op::kLe, Op::kGt, Op::kGe}) {
    CHECK(truth(compare_floats(op, a, near)) == -1);
    CHECK(truth(compare_floats(op, a, Cell::undecided())) == -1);
    CHECK(truth(compare_floats(op, a, nan)) == (op == Op::kNe));
  }
  const Cell touching = Cell::of(1.5, 0.25);  // meets `a` in 1.25
  CHECK(truth(compare_floats(Op::kLe, a, touching)) == 1);
  CHECK(truth(compare_floats(Op::kLt, a, touching)) == -1);
  CHECK(truth(compare_floats(Op::kGt, a, touching)) == 0);
  CHECK(truth(compare_floats(Op::kLt, a, Cell::exact(kInf))) == 1);
  CHECK(truth(compare_floats(Op::kLe, Cell::exact(-kInf), a)) == 1);
  CHECK(truth(compare_floats(Op::kEq, Cell::exact(2), Cell::exact(2))) == 1);
}

TEST_CASE("conversions of intervals") {
  const auto to = [](const Cell& cell, DType type) { return convert_cell(cell, DType::F32, type); };
  // Both ends round to 1: exact. Around the tie between 1 and 1 + 2^-10: either.
  Cell narrow = to(Cell::of(1 + 0x1p-13, 0x1p-14), DType::F16);
  CHECK(narrow.v == 1);
  CHECK(narrow.e == 0);
  Cell tie = to(Cell::of(1 + 0x1p-11, 0x1p-14), DType::F16);
  CHECK(within(tie, 1));
  CHECK(within(tie, 1 + 0x1p-10));
  CHECK(tie.e == 0x1p-11);
  CHECK(to(Cell::of(65519, 2), DType::F16).is_undecided());
  CHECK(to(Cell::of(70000, 2), DType::F16).v == kInf);
  CHECK(to(Cell::of(70000, 2), DType::F16).e == 0);
  CHECK(to(Cell::of(70000, 2), DType::F8E4M3).v == 448);
  CHECK(to(Cell::of(2.5, 0.25), DType::I32).i == 2);
  CHECK(to(Cell::of(2.5, 0.25), DType::I32).e == 0);
  CHECK(to(Cell::of(3, 0.25), DType::I32).is_undecided());
  CHECK(to(Cell::of(300, 0.25), DType::I8).i == 127);
  CHECK(to(Cell::of(0.5, 0.25), DType::Bool).i == 1);
  CHECK(to(Cell::of(0.5, 0.5), DType::Bool).is_undecided());
  CHECK(convert_cell(Cell::integer(5), DType::I32, DType::F16).v == 5);
  CHECK(convert_cell(Cell::integer(5, kUndecided), DType::I32, DType::F16).is_undecided());
  CHECK(convert_cell(Cell::integer(300), DType::I32, DType::U8).i == 44);
}

}  // namespace
}  // namespace kachel::ir
