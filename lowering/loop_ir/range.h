// Interval analysis of integer expressions: what bounds can be proved, and where arithmetic cannot wrap.
#pragma once
#include <cstdint>
#include <limits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ir/kernel.h"

namespace kachel::lowering {

// Inclusive. The full range stands for "nothing known".
struct Interval {
  int64_t lo = std::numeric_limits<int64_t>::min();
  int64_t hi = std::numeric_limits<int64_t>::max();
  bool full() const { return lo == std::numeric_limits<int64_t>::min() && hi == std::numeric_limits<int64_t>::max(); }
  bool operator==(const Interval&) const = default;
};

// Run-time dimensions are at most this; the argument binder refuses larger ones. 2^40.
inline constexpr int64_t kMaxDim = int64_t{1} << 40;

class Ranges {
 public:
  void set(const ir::VarRef& var, Interval interval) { intervals_[var] = interval; }
  // Also known: var < limit, symbolically (`b < B`).
  void set_limit(const ir::VarRef& var, ir::ExprRef limit) { limits_[var] = std::move(limit); }

  // Also known: whatever equals the expression, an operation of I64, has a value in the interval.
  void know(ir::ExprRef expr, Interval interval) { known_.emplace_back(std::move(expr), interval); }
  // Also known: the product of any of these numbers, at least 0 each, is below the limit, as those of a tensor's
  // extents are that has fewer elements.
  void know_shape(const std::vector<ir::ExprRef>& extents, int64_t limit);
  // Also known: the product, whatever the order of its factors, is at least 0 and below the limit.
  void know_product(const ir::ExprRef& product, int64_t limit);
  // Also known: the integer that var is a name of, wherever it is visible.
  void set_value(const ir::VarRef& var, const ir::ExprRef& value);
  // Also known: var is a multiple of this.
  void set_multiple(const ir::VarRef& var, int64_t multiple) { multiples_[var] = multiple; }
  // A number that divides every value of `expr`, as far as it does not wrap; 0 if it is always 0.
  int64_t multiple_of(const ir::ExprRef& expr) const;

  // The values that `expr` can take, wrapping included: an operation that may overflow its type yields the type's whole
  // range. REQUIRES: typed integer or Bool.
  Interval of(const ir::ExprRef& expr) const;
  // Neither `expr` itself nor any operation below it can wrap.
  bool cannot_wrap(const ir::ExprRef& expr) const;

  bool proves_nonnegative(const ir::ExprRef& expr) const { return of(expr).lo >= 0; }
  bool proves_less(const ir::ExprRef& expr, const ir::ExprRef& limit) const;

 private:
  // The variables are kept: a new one at a freed one's address must not inherit what was known.
  std::unordered_map<ir::VarRef, Interval> intervals_;
  std::unordered_map<ir::VarRef, ir::ExprRef> limits_;
  std::unordered_map<ir::VarRef, int64_t> multiples_;
  std::unordered_map<ir::VarRef, ir::ExprRef> products_;  // that names stand for
  std::vector<std::pair<ir::ExprRef, Interval>> known_;
  struct Product {
    std::vector<ir::ExprRef> factors;
    int64_t number = 1;  // times this, at least 1
  };
  struct Shape {
    Product elements;
    int64_t limit;
    bool whole = false;  // nothing is said of fewer factors: another one may be 0
  };
  std::vector<Shape> shapes_;
  bool add_factors(const ir::ExprRef& product, Product* out) const;
  // The limit of a product of a known shape's factors and of a number; 0: there is none.
  int64_t limit_of_product(const ir::ExprRef& product) const;
};

// Also known: what divides a kernel's dimensions, as `where` says, and its names, those in regions left out.
void note_multiples(const ir::Kernel& kernel, Ranges* multiples);
// Of the dimensions alone; and between what they lie, where `where` says what they equal.
void note_dimensions(const ir::Kernel& kernel, Ranges* ranges);

}  // namespace kachel::lowering
