#include "lowering/loop_ir/index_groups.h"

#include "ir/tunable_role.h"

namespace kachel::lowering {

using ir::ExprKind;
using ir::ExprRef;
using ir::Op;

InGroup in_group(const ExprRef& expr, const ir::VarRef& var, int64_t width, const Ranges& ranges) {
  if (!ir::mentions(expr, var)) return InGroup::kAlike;
  if (expr->kind == ExprKind::kVar) return InGroup::kRises;
  const auto of = [&](size_t arg) { return in_group(expr->args[arg], var, width, ranges); };
  const auto all_alike = [&] {
    for (size_t arg = 0; arg < expr->args.size(); ++arg)
      if (of(arg) != InGroup::kAlike) return InGroup::kOther;
    return InGroup::kAlike;
  };
  // Sums may wrap: where they do, a multiple of `width` becomes one, and so no group is parted.
  if (expr->kind == ExprKind::kCast)
    return ir::bits(expr->type) >= 32 && !ir::is_float(expr->type) ? of(0) : all_alike();
  if (expr->kind != ExprKind::kApply || ir::is_float(expr->type)) return InGroup::kOther;
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
      const bool whole = expr->args[1]->kind == ExprKind::kInt && expr->args[1]->int_value > 0 &&
                         expr->args[1]->int_value % width == 0 && ranges.proves_nonnegative(expr->args[0]);
      if (whole && of(0) == InGroup::kRises) return expr->op == Op::kDiv ? InGroup::kAlike : InGroup::kRises;
      return all_alike();
    }
    default:
      return all_alike();
  }
}

bool are_neighbours(const std::vector<ExprRef>& indices, const ir::VarRef& var, int64_t width, const Ranges& ranges) {
  for (size_t i = 0; i < indices.size(); ++i)
    if (in_group(indices[i], var, width, ranges) != (i + 1 < indices.size() ? InGroup::kAlike : InGroup::kRises))
      return false;
  return true;
}

}  // namespace kachel::lowering
