#include "lowering/passes/compared_terms.h"

#include <algorithm>
#include <utility>

#include "ir/query.h"
#include "ir/visit.h"
#include "lowering/loop_ir/loop_build.h"
#include "lowering/planted.h"

namespace kachel::lowering {
namespace {

using ir::DType;
using ir::ExprKind;
using ir::ExprRef;
using ir::Op;

class Comparison {
 public:
  Comparison(const LoopTerms& terms, const Ranges& ranges) : terms_(terms), ranges_(ranges) {}

  // place < limit with what the place changes with on one side, where no difference wraps.
  ExprRef compared(const ExprRef& condition) const {
    if (!is(condition, Op::kLt) || terms_.level(condition->args[1]) || condition->args[0]->type != DType::I32)
      return condition;
    const std::vector<Term> terms = terms_.terms_of(condition->args[0]);
    const ExprRef low = sum_of(terms, 0), high = sum_from(terms, 1);
    if (!low || !high) return condition;
    const ExprRef& limit = condition->args[1];
    const bool wraps = ranges_.of(limit).lo < 0 || ranges_.of(low).lo < 0 || ranges_.of(low).hi > kMostPlace ||
                       ranges_.of(high).lo < 0 || ranges_.of(high).hi > kMostPlace;
    if (wraps) return condition;
    return ir::make_typed(Op::kGt, {apply(Op::kSub, limit, with_sign(DType::I32, low)), with_sign(DType::I32, high)});
  }

  // The same of any comparison, with terms on both sides, and in 64 bits: what unrolled loops change differs by little,
  // so that it can be compared with the difference of the rest in 32 bits, which is cut off at the ends.
  ExprRef parted(const ExprRef& condition) const {
    if (!is(condition, Op::kLt) && !is(condition, Op::kLe) && !is(condition, Op::kGt) && !is(condition, Op::kGe))
      return condition;
    const ExprRef &a = condition->args[0], &b = condition->args[1];
    if ((a->type != DType::I32 && a->type != DType::I64) || loads_memory(condition)) return condition;
    int budget = LoopTerms::kMostNodes;
    std::vector<Term> terms, of_b;
    collect_wide(a, false, &budget, &terms);
    collect_wide(b, true, &budget, &of_b);
    if (budget < 0 || (are_of_one_kind(terms) && are_of_one_kind(of_b))) return condition;
    const bool exact = is_exact(terms) && is_exact(of_b);
    terms.insert(terms.end(), of_b.begin(), of_b.end());
    Interval moved{0, 0};
    for (Term& term : terms) {
      if (!term.level) continue;
      const Interval range = ranges_.of(term.value);
      if (range.lo < -kFarthest || range.hi > kFarthest) return condition;
      moved.lo += term.minus ? -range.hi : range.lo;
      moved.hi += term.minus ? -range.lo : range.hi;
      const bool widened = term.value->kind == ExprKind::kCast && term.value->args[0]->type == DType::I32;
      term.value = widened ? term.value->args[0] : with_sign(DType::I32, term.value);
    }
    if (moved.lo < -kMostPlace / 2 || moved.hi > kMostPlace / 2) return condition;
    const bool fits = differ_within(a, b, moved);
    if (!fits && (a->type == DType::I64 || !exact)) return condition;
    for (Term& term : terms) {
      if (term.level) continue;
      term.minus ^= !planted(Planted::kPartedSides);
      if (!fits) term.value = ir::make_cast({DType::I64, nullptr}, with_sign(DType::I32, term.value));
    }
    ExprRef rest = sum_of(terms, 0);
    const ExprRef moving = sum_from(terms, 1);
    if (!rest || !moving) return condition;
    if (rest->type == DType::I64) {
      rest = ir::make_typed(Op::kMin, {rest, ir::make_int(kMostPlace, DType::I64)});
      rest = ir::make_typed(Op::kMax, {rest, ir::make_int(-kMostPlace, DType::I64)});
      rest = ir::make_cast({DType::I32, nullptr}, rest);
    }
    rest = with_sign(DType::I32, rest);
    return ir::make_typed(condition->op, {with_sign(DType::I32, moving), rest});
  }

 private:
  // All of them change with unrolled loops, or none does.
  static bool are_of_one_kind(const std::vector<Term>& terms) {
    return std::all_of(terms.begin(), terms.end(), [&](const Term& term) { return !term.level == !terms[0].level; });
  }
  // Whether the sum is one of 32 bits that did not wrap.
  bool is_exact(const std::vector<Term>& terms) const {
    Interval sum{0, 0};
    for (const Term& term : terms) {
      if (term.value->type != DType::I32) return false;
      const Interval range = ranges_.of(term.value);
      sum.lo += term.minus ? -range.hi : range.lo;
      sum.hi += term.minus ? -range.lo : range.hi;
    }
    return sum.lo >= -kMostPlace && sum.hi <= kMostPlace;
  }
  // Whether b - a and what is moved from a to the other side are a number of their type together.
  bool differ_within(const ExprRef& a, const ExprRef& b, const Interval& moved) const {
    const Interval of_a = ranges_.of(a), of_b = ranges_.of(b);
    int64_t low = 0, high = 0;
    if (__builtin_sub_overflow(of_b.lo, of_a.hi, &low) || __builtin_sub_overflow(of_b.hi, of_a.lo, &high) ||
        __builtin_add_overflow(low, moved.lo, &low) || __builtin_add_overflow(high, moved.hi, &high))
      return false;
    return a->type == DType::I64 || (low >= -kMostPlace && high <= kMostPlace);
  }
  // As collect(), but sums of 32 bits that are widened are looked into where none of them wraps.
  void collect_wide(const ExprRef& expr, bool minus, int* budget, std::vector<Term>* terms) const {
    std::vector<Term> found;
    terms_.collect(expr, minus, budget, &found);
    for (const Term& term : found) {
      const bool widens = term.level && term.value->type == DType::I64 && term.value->kind == ExprKind::kCast &&
                          term.value->args[0]->type == DType::I32;
      std::vector<Term> parts;
      if (widens) terms_.collect(term.value->args[0], term.minus, budget, &parts);
      bool bounded = parts.size() > 1;
      for (const Term& part : parts) {
        const Interval range = ranges_.of(part.value);
        bounded &= part.value->type == DType::I32 && range.lo >= -kFarthest && range.hi <= kFarthest;
      }
      if (!bounded || parts.size() > kMostParts) {
        terms->push_back(term);
        continue;
      }
      for (Term& part : parts) {
        part.value = ir::make_cast({DType::I64, nullptr}, part.value);
        terms->push_back(std::move(part));
      }
    }
  }

  static constexpr int64_t kMostPlace = (int64_t{1} << 31) - 1;
  static constexpr int64_t kFarthest = 1 << 24;  // of what unrolled loops change, and of each part of it
  static constexpr size_t kMostParts = 8;
  const LoopTerms& terms_;
  const Ranges& ranges_;
};

}  // namespace

ExprRef compared(const ExprRef& condition, const LoopTerms& terms, const Ranges& ranges) {
  return Comparison(terms, ranges).compared(condition);
}
ExprRef parted(const ExprRef& condition, const LoopTerms& terms, const Ranges& ranges) {
  return Comparison(terms, ranges).parted(condition);
}

}  // namespace kachel::lowering
