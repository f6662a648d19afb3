#include "ir/quotients.h"

#include <algorithm>
#include <optional>

namespace kachel::ir {

namespace {

bool is(const ExprRef& expr, Op op) {
  return expr->kind == ExprKind::kApply && expr->op == op;
}

// e where a remainder and one of the known values say what it is, else null.
ExprRef whole_of(const ExprRef& quotient, const ExprRef& remainder) {
  if (!is(quotient, Op::kDiv) || !is(remainder, Op::kMod)) return nullptr;
  const ExprRef &dividend = quotient->args[0], &divisor = quotient->args[1];
  const ExprRef &rest_of = remainder->args[0], &modulus = remainder->args[1];
  if (same(dividend, rest_of) && same(divisor, modulus)) return rest_of;
  // e / (a * b) beside (e / b) % a
  if (!is(divisor, Op::kMul) || !is(rest_of, Op::kDiv) || !same(rest_of->args[0], dividend)) return nullptr;
  for (size_t side = 0; side < 2; ++side)
    if (same(divisor->args[side], modulus) && same(divisor->args[1 - side], rest_of->args[1])) return rest_of;
  return nullptr;
}

// What the value is an invertible function of, written out; the value itself if of nothing else.
ExprRef core_of(ExprRef value, const std::function<ExprRef(const Var&)>& named,
                const std::function<bool(const ExprRef&)>& is_fixed) {
  for (;;) {
    if (value->kind == ExprKind::kVar) {
      const ExprRef stands_for = named(*value->var);
      if (!stands_for) return value;
      value = stands_for;
      continue;
    }
    const bool sum = is(value, Op::kAdd) || is(value, Op::kSub), product = is(value, Op::kMul);
    if (!sum && !product) return value;
    const auto leaves = [&](const ExprRef& other) {
      return sum ? is_fixed(other) : other->kind == ExprKind::kInt && other->int_value != 0;
    };
    if (leaves(value->args[1]))
      value = value->args[0];
    else if (leaves(value->args[0]))
      value = value->args[1];
    else
      return value;
  }
}

}  // namespace

std::vector<ExprRef> recomposed(const std::vector<ExprRef>& known, const std::function<ExprRef(const Var&)>& named,
                                const std::function<bool(const ExprRef&)>& is_fixed) {
  std::vector<ExprRef> values;
  for (const ExprRef& value : known) values.push_back(core_of(value, named, is_fixed));
  const size_t given = values.size();
  // Each pair once: what comes of it is tried with all others, in turn.
  for (size_t i = 1; i < values.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      for (const auto& [a, b] : {std::pair(i, j), std::pair(j, i)})
        if (ExprRef whole = whole_of(values[a], values[b]);
            whole && std::none_of(values.begin(), values.end(), [&](const ExprRef& one) { return same(one, whole); }))
          values.push_back(std::move(whole));
  return {values.begin() + static_cast<std::ptrdiff_t>(given), values.end()};
}

}  // namespace kachel::ir
