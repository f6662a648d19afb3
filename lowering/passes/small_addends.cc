#include "lowering/passes/small_addends.h"

#include <numeric>

namespace kachel::lowering {
namespace {

using ir::ExprKind;
using ir::ExprRef;
using ir::Op;

// The greatest power of two that divides `value`; 0: all do.
int64_t power_in(int64_t value) {
  return value & -value;
}

ExprRef of_quotient(const ExprRef& node, const ExprRef& a, const ExprRef& b, const Ranges& ranges) {
  const ExprRef& divisor = node->args[1];
  const Interval small = ranges.of(b);
  const int64_t common = std::gcd(ranges.multiple_of(a), divisor->int_value);
  if (ranges.of(a).lo < 0 || small.lo < 0 || small.hi >= common) return nullptr;
  if (node->op == Op::kDiv) return ir::make_typed(Op::kDiv, {a, divisor});
  return common == divisor->int_value ? b : nullptr;
}

// Bits below those of a multiple come from the other addend, and no carry leaves what is less than it.
ExprRef of_mask(const ExprRef& mask, const ExprRef& a, const ExprRef& b, const Ranges& ranges) {
  const int64_t bits = mask->int_value, unit = power_in(ranges.multiple_of(a));
  if (unit == 0 || bits < unit) return ir::make_typed(Op::kBitAnd, {b, mask});
  const Interval small = ranges.of(b);
  const bool above = bits % unit == 0 && small.lo >= 0 && small.hi < unit;
  return above ? ir::make_typed(Op::kBitAnd, {a, mask}) : nullptr;
}

}  // namespace

ExprRef without_small_addend(const ExprRef& node, const Ranges& ranges, const NamedSums& sums) {
  if (node->kind != ExprKind::kApply || ir::is_float(node->type)) return node;
  const bool quotient = node->op == Op::kDiv || node->op == Op::kMod;
  if (!quotient && node->op != Op::kBitAnd) return node;
  ExprRef sum = node->args[0];
  const ExprRef& number = node->args[1];
  if (number->kind != ExprKind::kInt || number->int_value < 0) return node;
  if (number->int_value == 0) return quotient ? node : ir::make_int(0, node->type);
  const auto named = sum->kind == ExprKind::kVar ? sums.find(sum->var.get()) : sums.end();
  if (named != sums.end()) sum = named->second;
  if (sum->kind != ExprKind::kApply || sum->op != Op::kAdd || !ranges.cannot_wrap(sum)) return node;
  for (const bool first : {true, false}) {
    const ExprRef &a = sum->args[first ? 0 : 1], &b = sum->args[first ? 1 : 0];
    const ExprRef without = quotient ? of_quotient(node, a, b, ranges) : of_mask(number, a, b, ranges);
    if (without) return without;
  }
  return node;
}

}  // namespace kachel::lowering
