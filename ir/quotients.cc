#include "ir/quotients.h"

#include <algorithm>
#include <optional>

#include "ir/query.h"

namespace kachel::ir {

namespace {

int64_t literal(const ExprRef& expr) {
  return expr->kind == ExprKind::kInt ? expr->int_value : 0;
}

// A product as it is written, in whatever order and brackets.
struct Factors {
  int64_t number = 1;  // 0: too large
  std::vector<ExprRef> others;

  void add(const ExprRef& expr) {
    if (is(expr, Op::kMul)) return add(expr->args[0]), add(expr->args[1]);
    if (expr->kind != ExprKind::kInt) return others.push_back(expr);
    if (__builtin_mul_overflow(number, expr->int_value, &number)) number = 0;
  }
};

// The factors of `whole` but for those of `part`; nothing where these are not among them.
std::optional<Factors> without(const ExprRef& whole, const Factors& part) {
  Factors left;
  left.add(whole);
  if (part.number == 0 || left.number == 0 || left.number % part.number != 0) return {};
  left.number /= part.number;
  for (const ExprRef& factor : part.others) {
    const auto found =
        std::find_if(left.others.begin(), left.others.end(), [&](const ExprRef& one) { return same(one, factor); });
    if (found == left.others.end()) return {};
    left.others.erase(found);
  }
  return left;
}
// Whether a literal or written product is a * b.
bool is_product(const ExprRef& product, const ExprRef& a, const ExprRef& b) {
  Factors both;
  both.add(a);
  both.add(b);
  const auto left = without(product, both);
  return left && left->number == 1 && left->others.empty();
}
// Whether it has the factor.
bool is_multiple(const ExprRef& value, const ExprRef& of) {
  Factors factors;
  factors.add(of);
  return without(value, factors).has_value();
}

// e where a remainder and one of the known values say what it is, else null.
ExprRef whole_of(const ExprRef& quotient, const ExprRef& remainder) {
  if (!is(quotient, Op::kDiv) || !is(remainder, Op::kMod)) return nullptr;
  const ExprRef &dividend = quotient->args[0], &divisor = quotient->args[1];
  const ExprRef &rest_of = remainder->args[0], &modulus = remainder->args[1];
  if (same(dividend, rest_of) && same(divisor, modulus)) return rest_of;
  // e / (a * b) beside (e / b) % a
  if (is(rest_of, Op::kDiv) && same(rest_of->args[0], dividend) && is_product(divisor, modulus, rest_of->args[1]))
    return rest_of;
  // (e % (a * b)) / b beside e % b, which is the remainder of e % (a * b) too
  if (is(dividend, Op::kMod) && same(dividend->args[0], rest_of) && same(divisor, modulus) &&
      is_multiple(dividend->args[1], divisor))
    return dividend;
  return nullptr;
}

ExprRef written_out(ExprRef value, const DigitRules& rules) {
  while (value->kind == ExprKind::kVar) {
    const ExprRef stands_for = rules.named(*value->var);
    if (!stands_for) break;
    value = stands_for;
  }
  return value;
}

// What the value is an invertible function of, written out; the value itself if of nothing else.
ExprRef core_of(ExprRef value, const DigitRules& rules) {
  for (;;) {
    value = written_out(value, rules);
    const bool sum = is(value, Op::kAdd) || is(value, Op::kSub), product = is(value, Op::kMul);
    if (!sum && !product) return value;
    const auto leaves = [&](const ExprRef& other) { return sum ? rules.is_fixed(other) : literal(other) != 0; };
    if (leaves(value->args[1]))
      value = value->args[0];
    else if (leaves(value->args[0]))
      value = value->args[1];
    else
      return value;
  }
}

// Names may each use the one before several times: what they stand for is looked at as far as this.
constexpr int kMostNodes = 200;
constexpr size_t kMostTerms = 16;

bool is_natural(const ExprRef& expr, const DigitRules& rules, int* budget) {
  if (--*budget < 0) return false;
  const ExprRef value = written_out(expr, rules);
  if (value->kind == ExprKind::kInt) return value->int_value >= 0;
  if (value->kind == ExprKind::kVar)
    return value->var->kind == VarKind::kDim || value->var->kind == VarKind::kTunable ||
           value->var->kind == VarKind::kGrid || rules.limit(*value->var);
  const bool keeps = is(value, Op::kAdd) || is(value, Op::kMul) || is(value, Op::kDiv) || is(value, Op::kMod) ||
                     is(value, Op::kCeilDiv);
  return keeps && is_natural(value->args[0], rules, budget) && is_natural(value->args[1], rules, budget);
}

// What a value is below that is not negative; null: not known.
ExprRef limit_of(const ExprRef& value, const DigitRules& rules) {
  if (value->kind == ExprKind::kVar) return rules.limit(*value->var);
  int budget = kMostNodes;
  return is(value, Op::kMod) && is_natural(value->args[0], rules, &budget) ? value->args[1] : nullptr;
}

// False: there are too many terms.
bool flatten(const ExprRef& expr, const DigitRules& rules, std::vector<ExprRef>* terms) {
  const ExprRef value = written_out(expr, rules);
  if (is(value, Op::kAdd)) return flatten(value->args[0], rules, terms) && flatten(value->args[1], rules, terms);
  terms->push_back(value);
  return terms->size() <= kMostTerms;
}

// The digit and the rest of a sum of it and multiples of what it is below; else nothing.
std::vector<ExprRef> parts_of(const ExprRef& sum, const DigitRules& rules) {
  std::vector<ExprRef> terms;
  if (!flatten(sum, rules, &terms)) return {};
  for (size_t at = 0; terms.size() > 1 && at < terms.size(); ++at) {
    const ExprRef limit = limit_of(terms[at], rules);
    ExprRef rest;
    bool splits = limit != nullptr;
    for (size_t i = 0; i < terms.size() && splits; ++i) {
      if (i == at) continue;
      splits = is_multiple(terms[i], limit);
      rest = rest ? make_typed(Op::kAdd, {rest, terms[i]}) : terms[i];
    }
    if (splits) return {terms[at], rest};
  }
  return {};
}

}  // namespace

std::vector<ExprRef> recomposed(const std::vector<ExprRef>& known, const DigitRules& rules) {
  std::vector<ExprRef> values;
  for (const ExprRef& value : known) values.push_back(core_of(value, rules));
  const size_t given = values.size();
  const auto add = [&values](ExprRef value) {
    if (std::none_of(values.begin(), values.end(), [&](const ExprRef& one) { return same(one, value); }))
      values.push_back(std::move(value));
  };
  // Each pair once: what comes of it is tried with all others, in turn.
  for (size_t i = 0; i < values.size(); ++i) {
    for (const ExprRef& part : parts_of(values[i], rules)) add(core_of(part, rules));
    for (size_t j = 0; j < i; ++j)
      for (const auto& [a, b] : {std::pair(i, j), std::pair(j, i)})
        if (ExprRef whole = whole_of(values[a], values[b])) add(std::move(whole));
  }
  return {values.begin() + static_cast<std::ptrdiff_t>(given), values.end()};
}

}  // namespace kachel::ir
