// Sums of products over numbered atoms. Operations other than + - * are atoms keyed by their spelling and the keys of
// their operands' polynomials, so that `ceildiv(K + 0, BK)` and `ceildiv(K, BK)` are one atom. Keys hold atom numbers,
// never nested text, which keeps them short for any expression.
#include "ir/poly.h"

#include <fmt/format.h>

#include <algorithm>

namespace kachel::ir {
namespace {

constexpr size_t kMaxTerms = 24;
constexpr size_t kMaxDegree = 8;

bool add_term(Poly& poly, const std::vector<int>& product, int64_t coefficient) {
  int64_t& slot = poly.terms[product];
  if (__builtin_add_overflow(slot, coefficient, &slot)) return false;
  if (slot == 0) poly.terms.erase(product);
  return poly.terms.size() <= kMaxTerms;
}

bool sum(const Poly& a, const Poly& b, int64_t scale, Poly& out) {
  out = a;
  for (const auto& [product, coefficient] : b.terms) {
    int64_t scaled = 0;
    if (__builtin_mul_overflow(coefficient, scale, &scaled) || !add_term(out, product, scaled)) return false;
  }
  return true;
}

bool product(const Poly& a, const Poly& b, Poly& out) {
  out = {};
  for (const auto& [left, x] : a.terms) {
    for (const auto& [right, y] : b.terms) {
      int64_t coefficient = 0;
      if (left.size() + right.size() > kMaxDegree || __builtin_mul_overflow(x, y, &coefficient)) return false;
      std::vector<int> merged;
      std::merge(left.begin(), left.end(), right.begin(), right.end(), std::back_inserter(merged));
      if (!add_term(out, merged, coefficient)) return false;
    }
  }
  return true;
}

// Of two constants, with the language's meaning; false where it is left as an atom.
bool fold(Op op, int64_t a, int64_t b, int64_t& out) {
  if (a == INT64_MIN || b == INT64_MIN) return false;
  switch (op) {
    case Op::kDiv:
      out = b == 0 ? 0 : a / b;
      return true;
    case Op::kMod:
      out = b == 0 ? 0 : a % b;
      return true;
    case Op::kCeilDiv:
      if (b <= 0) return false;
      out = a / b + (a % b > 0 ? 1 : 0);
      return true;
    case Op::kMin:
      out = std::min(a, b);
      return true;
    case Op::kMax:
      out = std::max(a, b);
      return true;
    default:
      return false;
  }
}

}  // namespace

Poly PolyContext::constant(int64_t value) {
  Poly poly;
  if (value != 0) poly.terms[{}] = value;
  return poly;
}

Poly PolyContext::atom(const std::string& key, Atom atom) {
  auto [it, fresh] = numbers_.try_emplace(key, static_cast<int>(atoms_.size()));
  if (fresh) atoms_.push_back(std::move(atom));
  Poly poly;
  poly.terms[{it->second}] = 1;
  return poly;
}

std::string PolyContext::key(const Poly& poly) const {
  std::string key;
  for (const auto& [product, coefficient] : poly.terms)
    key += fmt::format("{}*{};", coefficient, fmt::join(product, "."));
  return key;
}

void PolyContext::collect(const Poly& poly, std::unordered_set<const Var*>& out) const {
  for (const auto& [product, coefficient] : poly.terms)
    for (int atom : product) {
      const auto& mentions = atoms_[static_cast<size_t>(atom)].mentions;
      out.insert(mentions.begin(), mentions.end());
    }
}

Poly PolyContext::variable_poly(const VarRef& var) {
  auto it = defined_.find(var.get());
  if (it != defined_.end()) return it->second;
  return atom(fmt::format("v{}", fmt::ptr(var.get())), {var.get(), {var.get()}});
}

Poly PolyContext::add(const Poly& a, const Poly& b, int64_t scale) {
  Poly out;
  if (sum(a, b, scale, out)) return out;
  Atom result;
  collect(a, result.mentions);
  collect(b, result.mentions);
  return atom(fmt::format("add({}|{}|{})", key(a), key(b), scale), std::move(result));
}

Poly PolyContext::multiply(const Poly& a, const Poly& b) {
  Poly out;
  if (product(a, b, out)) return out;
  Atom result;
  collect(a, result.mentions);
  collect(b, result.mentions);
  return atom(fmt::format("mul({}|{})", key(a), key(b)), std::move(result));
}

Poly PolyContext::opaque(const Expr& expr) {
  std::vector<Poly> args;
  for (const ExprRef& arg : expr.args) args.push_back(of(arg));
  return opaque(expr, args);
}

Poly PolyContext::opaque(const Expr& expr, const std::vector<Poly>& args) {
  Atom result;
  std::string text;
  switch (expr.kind) {
    case ExprKind::kApply:
      text = fmt::format("op{}{}(", static_cast<int>(expr.op), expr.approx ? "~" : "");
      break;
    case ExprKind::kCast:
      text = fmt::format("cast{}:{}(", fmt::ptr(expr.cast_type.symbol.get()), static_cast<int>(expr.cast_type.dtype));
      break;
    case ExprKind::kLoad:
      text = fmt::format("load{}(", fmt::ptr(expr.buffer.get()));
      break;
    default:  // a reduction or a float: equal to itself only
      text = fmt::format("expr{}(", fmt::ptr(&expr));
      break;
  }
  for (const Poly& poly : args) {
    collect(poly, result.mentions);
    text += key(poly) + "|";
  }
  if (expr.kind == ExprKind::kFloat) text += fmt::format("{}", expr.float_value);
  return atom(text + ")", std::move(result));
}

Poly PolyContext::of(const ExprRef& expr) {
  switch (expr->kind) {
    case ExprKind::kInt:
    case ExprKind::kBool:
      return constant(expr->int_value);
    case ExprKind::kVar:
      return variable_poly(expr->var);
    case ExprKind::kCast:
      if (!expr->cast_type.symbol && expr->cast_type.dtype == DType::I64) return of(expr->args[0]);
      return opaque(*expr);
    case ExprKind::kApply:
      break;
    default:
      return opaque(*expr);
  }
  switch (expr->op) {
    case Op::kNeg:
      return add(constant(0), of(expr->args[0]), -1);
    case Op::kAdd:
      return add(of(expr->args[0]), of(expr->args[1]));
    case Op::kSub:
      return add(of(expr->args[0]), of(expr->args[1]), -1);
    case Op::kMul:
      return multiply(of(expr->args[0]), of(expr->args[1]));
    case Op::kDiv:
    case Op::kMod:
    case Op::kCeilDiv:
    case Op::kMin:
    case Op::kMax: {
      Poly a = of(expr->args[0]), b = of(expr->args[1]);
      int64_t value = 0;
      if (a.is_constant() && b.is_constant() && fold(expr->op, a.constant_term(), b.constant_term(), value))
        return constant(value);
      bool divides = expr->op == Op::kDiv || expr->op == Op::kCeilDiv;
      if (divides && b == constant(1)) return a;
      return opaque(*expr, {a, b});  // worked out once: a chain of them would double with each
    }
    default:
      return opaque(*expr);
  }
}

void PolyContext::define(const VarRef& let, const ExprRef& value) {
  defined_.insert_or_assign(let.get(), of(value));
}

void PolyContext::equate(const VarRef& dim, const ExprRef& expr) {
  Poly poly = of(expr);
  if (defined_.count(dim.get()) || mentions(poly, dim.get())) return;
  defined_.emplace(dim.get(), std::move(poly));
}

bool PolyContext::mentions(int atom, const Var* var) const {
  return atoms_[static_cast<size_t>(atom)].mentions.count(var) != 0;
}

bool PolyContext::mentions(const Poly& poly, const Var* var) const {
  for (const auto& [product, coefficient] : poly.terms)
    for (int atom : product)
      if (mentions(atom, var)) return true;
  return false;
}

bool PolyContext::linear(const Poly& poly, const Var* var, Poly& coefficient, Poly& rest) {
  coefficient = {};
  rest = {};
  for (const auto& [product, factor] : poly.terms) {
    std::vector<int> others;
    int powers = 0;
    for (int atom : product) {
      if (variable(atom) == var) {
        ++powers;
        continue;
      }
      if (mentions(atom, var)) return false;
      others.push_back(atom);
    }
    if (powers > 1) return false;
    (powers == 1 ? coefficient : rest).terms[others] += factor;
  }
  return true;
}

}  // namespace kachel::ir
