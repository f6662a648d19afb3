#include "derive/groups.h"

#include "ir/query.h"
#include "ir/visit.h"

namespace kachel::derive {

using namespace ir;

namespace {

constexpr int64_t kMostLog = 30, kMost = int64_t{1} << kMostLog;

}  // namespace

std::optional<Grouped> group_number(const ExprRef& expr) {
  const bool shift = is(expr, Op::kShr);
  if (!(shift || is(expr, Op::kDiv)) || !is_var(expr->args[0], VarKind::kParallel)) return {};
  const ExprRef& by = expr->args[1];
  if (by->kind != ExprKind::kInt || by->int_value < 1 || by->int_value > (shift ? kMostLog : kMost)) return {};
  return Grouped{expr->args[0]->var, shift ? int64_t{1} << by->int_value : by->int_value};
}

std::optional<Grouped> within_groups(const ExprRef& expr) {
  const bool mask = is(expr, Op::kBitAnd);
  if (!(mask || is(expr, Op::kMod)) || expr->args[1]->kind != ExprKind::kInt) return {};
  const int64_t number = expr->args[1]->int_value;
  if (number < 1 || number >= kMost || (mask && (number & (number + 1)))) return {};
  const int64_t by = number + (mask ? 1 : 0);
  if (is_var(expr->args[0], VarKind::kParallel)) return Grouped{expr->args[0]->var, by};
  const auto whole = group_number(expr->args[0]);
  return whole && whole->by <= kMost / by ? std::optional(Grouped{whole->var, whole->by * by}) : std::nullopt;
}

}  // namespace kachel::derive
