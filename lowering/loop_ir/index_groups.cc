#include "lowering/loop_ir/index_groups.h"

#include "ir/tunable_role.h"

namespace kachel::lowering {

using ir::ExprKind;
using ir::ExprRef;
using ir::Op;

namespace {

// place < limit and its opposite: a group is below a multiple of `width` as a whole, or not at all.
bool agrees(const ir::Expr& comparison, const ir::VarRef& var, int64_t width, const Ranges& ranges) {
  const InGroup a = in_group(comparison.args[0], var, width, ranges),
                b = in_group(comparison.args[1], var, width, ranges);
  if (a == InGroup::kAlike && b == InGroup::kAlike) return true;
  const auto is_limit = [&](size_t arg) { return ranges.multiple_of(comparison.args[arg]) % width == 0; };
  const Op op = comparison.op;
  return (a == InGroup::kRises && b == InGroup::kAlike && (op == Op::kLt || op == Op::kGe) && is_limit(1)) ||
         (b == InGroup::kRises && a == InGroup::kAlike && (op == Op::kGt || op == Op::kLe) && is_limit(0));
}

}  // namespace

InGroup in_group(const ExprRef& expr, const ir::VarRef& var, int64_t width, const Ranges& ranges, int64_t step) {
  if (!ir::mentions(expr, var)) return InGroup::kAlike;
  if (expr->kind == ExprKind::kVar) return step == 1 ? InGroup::kRises : InGroup::kOther;
  const auto of = [&](size_t arg) { return in_group(expr->args[arg], var, width, ranges, step); };
  const auto all_alike = [&] {
    for (size_t arg = 0; arg < expr->args.size(); ++arg)
      if (of(arg) != InGroup::kAlike) return InGroup::kOther;
    return InGroup::kAlike;
  };
  // Sums may wrap: where they do, a multiple of `width` becomes one, and so no group is parted.
  if (expr->kind == ExprKind::kCast)
    return ir::bits(expr->type) >= 32 && !ir::is_float(expr->type) ? of(0) : all_alike();
  if (expr->kind != ExprKind::kApply || ir::is_float(expr->type)) return InGroup::kOther;
  if (ir::is_comparison(expr->op) && !ir::is_float(expr->args[0]->type) && expr->args[0]->type != ir::DType::Bool)
    return agrees(*expr, var, width * step, ranges) ? InGroup::kAlike : InGroup::kOther;
  const auto multiple = [&](const ExprRef& value) { return ranges.multiple_of(value) % width == 0; };
  switch (expr->op) {
    case Op::kAdd:
    case Op::kSub: {
      const InGroup first = of(0), second = of(1);
      if (first == InGroup::kRises && second == InGroup::kAlike && multiple(expr->args[1])) return first;
      if (expr->op == Op::kAdd && second == InGroup::kRises && first == InGroup::kAlike && multiple(expr->args[0]))
        return second;
      return first == InGroup::kAlike && second == InGroup::kAlike ? InGroup::kAlike : InGroup::kOther;
    }
    case Op::kBitXor: {  // of swizzles, which exchange groups
      const InGroup first = of(0), second = of(1);
      if (first == InGroup::kRises && second == InGroup::kAlike && multiple(expr->args[1])) return first;
      if (second == InGroup::kRises && first == InGroup::kAlike && multiple(expr->args[0])) return second;
      return all_alike();
    }
    case Op::kDiv:
    case Op::kMod: {
      const bool words = step > 1 && expr->op == Op::kDiv && ir::is_int(expr->args[1], step) &&
                         ranges.proves_nonnegative(expr->args[0]);
      if (words && in_group(expr->args[0], var, width * step, ranges) == InGroup::kRises) return InGroup::kRises;
      const bool whole = expr->args[1]->kind == ExprKind::kInt && expr->args[1]->int_value > 0 &&
                         expr->args[1]->int_value % width == 0 && ranges.proves_nonnegative(expr->args[0]);
      if (whole && of(0) == InGroup::kRises) return expr->op == Op::kDiv ? InGroup::kAlike : InGroup::kRises;
      return all_alike();
    }
    default:
      return all_alike();
  }
}

bool are_neighbours(const std::vector<ExprRef>& indices, const ir::VarRef& var, int64_t width, const Ranges& ranges,
                    int64_t step) {
  for (size_t i = 0; i < indices.size(); ++i)
    if (in_group(indices[i], var, width, ranges, step) != (i + 1 < indices.size() ? InGroup::kAlike : InGroup::kRises))
      return false;
  return true;
}

}  // namespace kachel::lowering
