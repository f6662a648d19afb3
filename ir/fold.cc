// Constant folding and identities of typed expressions. Every rewrite keeps the value for every input, NaN, infinities,
// signed zeros and wrap-around included; functions whose result has a stated error are left to the target.
#include <cmath>
#include "ir/instantiate.h"
#include "ir/numerics.h"

namespace kachel::ir {
namespace {

Scalar scalar_of(const ExprRef& expr) {
  Scalar value;
  value.type = expr->type;
  if (expr->kind == ExprKind::kFloat)
    value.f = round_float(DType::F32, expr->float_value);
  else
    value.i = expr->int_value;
  return value;
}

ExprRef constant(const Scalar& value, Loc loc) {
  if (value.type == DType::F32) return make_float(value.f, loc);
  if (value.type == DType::Bool) return make_bool(value.i != 0, loc);
  return make_int(value.i, value.type, loc);
}

bool is_zero(const ExprRef& expr) {
  return is_int(expr, 0) && expr->type != DType::Bool;
}
bool is_one(const ExprRef& expr) {
  return is_int(expr, 1);
}
bool is_true(const ExprRef& expr) {
  return expr->kind == ExprKind::kBool && expr->int_value != 0;
}
bool is_false(const ExprRef& expr) {
  return expr->kind == ExprKind::kBool && expr->int_value == 0;
}
bool is_apply(const ExprRef& expr, Op op) {
  return expr->kind == ExprKind::kApply && expr->op == op;
}
bool is_index(const ExprRef& expr) {
  return expr->type == DType::I64;
}

ExprRef typed_like(const ExprRef& expr, Op op, std::vector<ExprRef> args) {
  auto copy = std::make_shared<Expr>(*expr);
  copy->op = op;
  copy->args = std::move(args);
  return copy;
}

// a + c and a - c with a constant c on the right; (x + c1) + c2 becomes x + (c1 + c2) in index arithmetic.
ExprRef fold_sum(const ExprRef& expr) {
  ExprRef a = expr->args[0], b = expr->args[1];
  if (expr->op == Op::kAdd && a->kind == ExprKind::kInt && b->kind != ExprKind::kInt) std::swap(a, b);
  if (is_zero(b)) return a;
  if (expr->op == Op::kSub && is_index(expr) && same(a, b)) return make_int(0, DType::I64, expr->loc);
  if (is_index(expr) && b->kind == ExprKind::kInt && (is_apply(a, Op::kAdd) || is_apply(a, Op::kSub)) &&
      a->args[1]->kind == ExprKind::kInt) {
    int64_t inner = a->op == Op::kAdd ? a->args[1]->int_value : integer_op(Op::kNeg, DType::I64, a->args[1]->int_value);
    int64_t outer = expr->op == Op::kAdd ? b->int_value : integer_op(Op::kNeg, DType::I64, b->int_value);
    int64_t total = integer_op(Op::kAdd, DType::I64, inner, outer);
    if (total == 0) return a->args[0];
    return typed_like(expr, Op::kAdd, {a->args[0], make_int(total, DType::I64, expr->loc)});
  }
  if (a == expr->args[0]) return expr;
  return typed_like(expr, Op::kAdd, {a, b});
}

ExprRef fold_product(const ExprRef& expr) {
  ExprRef a = expr->args[0], b = expr->args[1];
  if (a->kind == ExprKind::kInt && b->kind != ExprKind::kInt) std::swap(a, b);
  if (is_zero(b)) return b;
  if (is_one(b)) return a;
  if (is_index(expr) && b->kind == ExprKind::kInt && is_apply(a, Op::kMul) && a->args[1]->kind == ExprKind::kInt) {
    int64_t factor = integer_op(Op::kMul, DType::I64, a->args[1]->int_value, b->int_value);
    return typed_like(expr, Op::kMul, {a->args[0], make_int(factor, DType::I64, expr->loc)});
  }
  if (a == expr->args[0]) return expr;
  return typed_like(expr, Op::kMul, {a, b});
}

ExprRef fold_float(const ExprRef& expr) {
  const ExprRef& a = expr->args[0];
  const auto is_value = [](const ExprRef& e, double v) { return e->kind == ExprKind::kFloat && e->float_value == v; };
  if (expr->op == Op::kMul && is_value(expr->args[1], 1)) return a;
  if (expr->op == Op::kMul && is_value(a, 1)) return expr->args[1];
  if (expr->op == Op::kDiv && is_value(expr->args[1], 1)) return a;
  if (expr->op == Op::kDiv && expr->type == DType::F32 && expr->args[1]->kind == ExprKind::kFloat) {
    // By a power of two, whose inverse is one: both round the same number.
    const double by = expr->args[1]->float_value;
    if (is_power_of_two(by)) return typed_like(expr, Op::kMul, {a, make_float(1 / by, expr->loc)});
  }
  if (expr->op == Op::kSub && is_value(expr->args[1], 0) && !std::signbit(expr->args[1]->float_value)) return a;
  return expr;
}

// c ? a * s : b * s is (c ? a : b) * s, to the bit: both sides need s.
ExprRef fold_select(const ExprRef& expr) {
  const ExprRef &yes = expr->args[1], &no = expr->args[2];
  if (same(yes, no)) return yes;
  if (expr->type != DType::F32 || !is_apply(yes, Op::kMul) || !is_apply(no, Op::kMul)) return expr;
  for (const size_t i : {1, 0})
    for (const size_t j : {1, 0})
      if (same(yes->args[i], no->args[j])) {
        const ExprRef factor = typed_like(expr, Op::kSelect, {expr->args[0], yes->args[1 - i], no->args[1 - j]});
        return typed_like(yes, Op::kMul, {factor, yes->args[i]});
      }
  return expr;
}

ExprRef fold_apply(const ExprRef& expr) {
  bool all_const = true;
  for (const ExprRef& arg : expr->args) all_const &= is_const(arg);
  if (all_const && is_exact(expr->op) && !expr->approx) {
    std::vector<Scalar> args;
    for (const ExprRef& arg : expr->args) args.push_back(scalar_of(arg));
    return constant(apply_op(expr->op, args), expr->loc);
  }
  const auto& args = expr->args;
  switch (expr->op) {
    case Op::kSelect:
      if (args[0]->kind == ExprKind::kBool) return args[0]->int_value != 0 ? args[1] : args[2];
      return fold_select(expr);
    case Op::kAnd:
      if (is_false(args[0]) || is_true(args[1])) return args[0];
      return is_true(args[0]) || is_false(args[1]) ? args[1] : expr;
    case Op::kOr:
      if (is_true(args[0]) || is_false(args[1])) return args[0];
      return is_false(args[0]) || is_true(args[1]) ? args[1] : expr;
    case Op::kNot:
      return is_apply(args[0], Op::kNot) ? args[0]->args[0] : expr;
    default:
      break;
  }
  if (args[0]->type == DType::F32) return fold_float(expr);
  if (args[0]->type == DType::Bool) return expr;
  switch (expr->op) {
    case Op::kAdd:
    case Op::kSub:
      return fold_sum(expr);
    case Op::kMul:
      return fold_product(expr);
    case Op::kDiv:
    case Op::kCeilDiv:
      return is_one(args[1]) ? args[0] : expr;
    case Op::kMod:
      return is_one(args[1]) ? make_int(0, expr->type, expr->loc) : expr;
    case Op::kShl:
    case Op::kShr:
      return is_zero(args[1]) ? args[0] : expr;
    case Op::kMin:
    case Op::kMax:
      return same(args[0], args[1]) ? args[0] : expr;
    default:
      return expr;
  }
}

// True if every value of compute type `from` that was rounded to `inner` is unchanged by rounding to `outer`.
bool holds(DType outer, DType inner) {
  if (outer == inner) return true;
  if (is_float(outer) && is_float(inner)) return outer == DType::F32;
  if (!is_integer(outer) || !is_integer(inner)) return false;
  int spare = bits(outer) - bits(inner);
  if (is_signed(outer) == is_signed(inner)) return spare >= 0;
  return is_signed(outer) && spare > 0;
}

ExprRef fold_cast(const ExprRef& expr) {
  const ExprRef& arg = expr->args[0];
  DType to = expr->cast_type.dtype;
  if (is_const(arg)) return constant(convert(scalar_of(arg), to), expr->loc);
  if (to == arg->type) return arg;
  DType known = arg->type;
  if (arg->kind == ExprKind::kCast) known = arg->cast_type.dtype;
  if (arg->kind == ExprKind::kLoad) known = arg->buffer->type.dtype;
  // The value is already one of `to`, and is held in the same compute type.
  if (compute_type(to) == arg->type && holds(to, known)) return arg;
  return expr;
}

ExprRef fold_node(const ExprRef& expr) {
  if (!expr->typed) return expr;
  switch (expr->kind) {
    case ExprKind::kApply:
      return fold_apply(expr);
    case ExprKind::kCast:
      return fold_cast(expr);
    case ExprKind::kFloat: {
      double rounded = round_float(DType::F32, expr->float_value);
      bool keep = rounded == expr->float_value || rounded != rounded;
      return keep ? expr : make_float(rounded, expr->loc);
    }
    default:
      return expr;
  }
}

}  // namespace

ExprRef fold(const ExprRef& expr) {
  return rewrite(expr, [](const ExprRef& node) { return fold_node(node); });
}

}  // namespace kachel::ir
