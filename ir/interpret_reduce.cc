// Reductions, and those of every prefix. The sum of n floats in any order: every addition rounds a partial sum of at
// most the sum of magnitudes. Their product: every multiplication rounds by 2^-24 of itself, and where partial products
// may be subnormal by less than 2^-126, which the other factors then multiply.
#include <algorithm>
#include <cmath>
#include <limits>

#include "ir/interpreter.h"
#include "ir/numerics.h"

namespace kachel::ir {
namespace {

class Accumulator {
 public:
  explicit Accumulator(const ReduceInfo& info) : op_(info.op), floats_(info.type == DType::F32), type_(info.type) {
    if (info.index >= 0 && !info.inclusive && op_ != ReduceOp::kSum) add(of_nothing());
  }

  void add(const Cell& value) {
    if (floats_) {
      magnitude_ += std::abs(value.v) + value.e;
      if (std::isfinite(value.v)) finite_ += std::abs(value.v) + value.e;
      if (op_ == ReduceOp::kProd) note_factor(value);
    }
    if (count_++ == 0)
      result_ = value;
    else if (!floats_)
      result_ = Cell::integer(integer_op(operation_of(op_), type_, result_.i, value.i), result_.e + value.e);
    else if (op_ == ReduceOp::kSum)
      result_ = Cell::of(result_.v + value.v, result_.e + value.e);
    else if (op_ == ReduceOp::kProd)
      result_ = Cell::of(result_.v * value.v, result_.e + value.e);
    else
      result_ = op_ == ReduceOp::kMax ? maximum(result_, value) : minimum(result_, value);
  }

  Cell value() const {
    if (!floats_) return result_.e == 0 ? result_ : Cell::integer(0, kUndecided);
    if (is_extreme(op_) || count_ <= 1) return result_;
    if (result_.e == kUndecided) return Cell::undecided();
    if (op_ == ReduceOp::kProd) return product();
    // An infinity meets the opposite one where the finite terms may overflow to it.
    if (std::isinf(result_.v) && finite_ * (1 + static_cast<double>(count_) * 0x1p-23) > kLargestF32)
      return Cell::undecided();
    if (!std::isfinite(result_.v)) return Cell::exact(result_.v);
    const double roundings = static_cast<double>(count_ - 1);
    const double e = result_.e + roundings * 0x1p-24 * magnitude_ * (1 + roundings * 0x1p-24) * (1 + 0x1p-20);
    return magnitude_ + e <= kLargestF32 ? Cell::of(result_.v, e) : Cell::undecided();
  }

 private:
  // Of any order, each partial product lies between those of the factors below and above 1.
  void note_factor(const Cell& value) {
    const double most = std::abs(value.v) + value.e, least = std::abs(value.v) - value.e;
    largest_ *= std::max(most, 1.0);
    bounds_ *= most;
    if (value.v != 0 || value.e != 0) smallest_ *= std::clamp(least, 0.0, 1.0);
    may_vanish_ |= least <= 0 && value.e != 0;
  }
  Cell product() const {
    const double roundings = static_cast<double>(count_ - 1);
    const bool subnormal = smallest_ < 0x1p-125;
    if (std::isnan(result_.v)) return may_vanish_ ? Cell::undecided() : Cell::exact(result_.v);
    if (std::isinf(magnitude_)) return may_vanish_ || subnormal ? Cell::undecided() : Cell::exact(result_.v);
    if (largest_ * (1 + roundings * 0x1p-23) > kLargestF32) return Cell::undecided();
    double e = bounds_ * (1 + roundings * 0x1p-24 * (1 + 0x1p-10)) * (1 + 0x1p-20) - std::abs(result_.v);
    if (subnormal) e += roundings * 0x1p-126 * largest_;
    return Cell::of(result_.v, std::max(e, 0.0));
  }
  // What a product, a maximum or a minimum of nothing is.
  Cell of_nothing() const {
    if (op_ == ReduceOp::kProd) return floats_ ? Cell::exact(1) : Cell::integer(1);
    const bool low = op_ == ReduceOp::kMax;
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    if (floats_) return Cell::exact(low ? -kInfinity : kInfinity);
    return Cell::integer(low ? least_integer(type_) : greatest_integer(type_));
  }

  const ReduceOp op_;
  const bool floats_;
  const DType type_;
  Cell result_ = Cell::integer(0);  // 0 and 0.0 alike
  int64_t count_ = 0;
  double magnitude_ = 0, finite_ = 0;
  // Of factors: the products of their magnitudes, of those above 1 and of those below.
  double bounds_ = 1, largest_ = 1, smallest_ = 1;
  bool may_vanish_ = false;  // one may be 0 or not
};

// Where the first of the largest or smallest elements stands; undecided where another one may be as large within its
// error.
class Finder {
 public:
  explicit Finder(const ReduceInfo& info)
      : order_(info.op == ReduceOp::kArgMax ? 1 : -1), floats_(info.type == DType::F32), type_(info.type) {}

  void add(const Cell& value) {
    const int64_t number = count_++;
    if (value.is_undecided()) undecided_ = true;
    if (floats_ && std::isnan(value.v)) return;  // loses against a number
    if (found_ < 0 || exceeds(value, best_)) {
      if (found_ >= 0) rival(best_);
      best_ = value;
      found_ = number;
    } else {
      rival(value);
    }
  }

  Cell value() const {
    const bool near = floats_ && found_ >= 0 && (inexact_ >= least() || (best_.e > 0 && exact_ >= least()));
    const bool hangs = undecided_ || near;
    return hangs ? Cell::integer(0, kUndecided) : Cell::integer(std::max<int64_t>(found_, 0));
  }

 private:
  static constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

  bool exceeds(const Cell& a, const Cell& b) const {
    if (floats_) return order_ * a.v > order_ * b.v;
    return integer_op(order_ > 0 ? Op::kGt : Op::kLt, type_, a.i, b.i) != 0;
  }
  double least() const { return order_ * best_.v - best_.e; }
  void rival(const Cell& value) {
    if (!floats_) return;
    double& most = value.e > 0 ? inexact_ : exact_;
    const double upper = order_ * value.v + value.e;
    if (!(most >= upper)) most = upper;
  }

  const double order_;
  const bool floats_;
  const DType type_;
  Cell best_ = Cell::integer(0);
  int64_t found_ = -1, count_ = 0;
  double exact_ = kNone, inexact_ = kNone;  // the largest of the others
  bool undecided_ = false;
};

}  // namespace

Cell Interpreter::reduce(const ReduceInfo& info) {
  if (!info.memoised) return reduce_now(info);
  size_t index = 0;
  for (const SlotExtent& depends : info.depends)
    index = index * static_cast<size_t>(depends.extent) + static_cast<size_t>(at(depends.slot).i);
  Table& table = tables_[info.table];
  if (table.serials[index] != serial_) {
    table.values[index] = reduce_now(info);
    table.serials[index] = serial_;
  }
  return table.values[index];
}

Cell Interpreter::reduce_now(const ReduceInfo& info) {
  int64_t count = 1;
  for (const SlotExtent& iter : info.iters) {
    count *= iter.extent;
    at(iter.slot) = Cell::integer(0);
  }
  if (!spend(count * static_cast<int64_t>(info.body.code.size() + 1))) return Cell::undecided();
  return is_arg(info.op) ? reduce_into<Finder>(info, count) : reduce_into<Accumulator>(info, count);
}

template <class Result>
Cell Interpreter::reduce_into(const ReduceInfo& info, int64_t count) {
  Result result(info);
  for (int64_t step = 0; step < count; ++step) {
    evaluate(info.body.code);
    result.add(at(info.body.slot));
    for (size_t axis = info.iters.size(); axis-- > 0;) {
      Cell& index = at(info.iters[axis].slot);
      if (++index.i < info.iters[axis].extent) break;
      index.i = 0;
    }
  }
  return result.value();
}

// All prefixes in one pass, where they can be kept.
Cell Interpreter::scan(const ReduceInfo& info) {
  const SlotExtent& iter = info.iters[0];
  const int64_t wanted = at(info.index).i;
  Table* table = info.memoised ? &tables_[info.table] : nullptr;
  size_t first = 0;
  if (table) {
    for (size_t i = 0; i + 1 < info.depends.size(); ++i)
      first = first * static_cast<size_t>(info.depends[i].extent) + static_cast<size_t>(at(info.depends[i].slot).i);
    first *= static_cast<size_t>(iter.extent);
    const size_t index = first + static_cast<size_t>(wanted);
    if (table->serials[index] == serial_) return table->values[index];
  }
  const int64_t count = table ? iter.extent : wanted + 1;
  if (!spend(count * static_cast<int64_t>(info.body.code.size() + 1))) return Cell::undecided();
  Accumulator sum(info);
  Cell result = Cell::integer(0);
  for (int64_t step = 0; step < count; ++step) {
    if (!info.inclusive && step == wanted) result = sum.value();
    if (!info.inclusive && table) table->values[first + static_cast<size_t>(step)] = sum.value();
    at(iter.slot) = Cell::integer(step);
    evaluate(info.body.code);
    sum.add(at(info.body.slot));
    if (info.inclusive && step == wanted) result = sum.value();
    if (info.inclusive && table) table->values[first + static_cast<size_t>(step)] = sum.value();
    if (table) table->serials[first + static_cast<size_t>(step)] = serial_;
  }
  return result;
}

}  // namespace kachel::ir
