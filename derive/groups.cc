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

std::optional<GroupElement> group_element(const ExprRef& expr) {
  if (const auto number = group_number(expr)) return GroupElement{*number, 1};
  // The largest place in the group's part.
  const auto most_of = [](const ExprRef& place) -> std::optional<int64_t> {
    if (place->kind == ExprKind::kInt && place->int_value >= 0) return place->int_value;
    const auto within = within_groups(place);
    if (!within) return {};
    const int64_t number = place->args[1]->int_value;
    return is(place, Op::kBitAnd) ? number : number - 1;
  };
  const auto first_of = [](const ExprRef& first) -> std::optional<GroupElement> {
    if (!is(first, Op::kMul)) return {};
    for (const size_t at : {size_t{0}, size_t{1}}) {
      const auto number = group_number(first->args[at]);
      const ExprRef& by = first->args[1 - at];
      if (number && by->kind == ExprKind::kInt && by->int_value > 0 && number->by % by->int_value == 0)
        return GroupElement{*number, by->int_value};
    }
    return {};
  };
  if (const auto first = first_of(expr)) return first;
  if (!is(expr, Op::kAdd)) return {};
  for (const size_t at : {size_t{0}, size_t{1}}) {
    const auto first = first_of(expr->args[at]);
    const auto most = most_of(expr->args[1 - at]);
    if (first && most && *most < first->elements) return first;
  }
  return {};
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
