#include "ir/typer.h"

#include <fmt/format.h>

#include "ir/instantiate.h"
#include "ir/numerics.h"

namespace kachel::ir {
namespace {

// Integer literals and selections between them have no type of their own: they adapt.
bool is_flexible(const ExprRef& expr) {
  if (expr->kind == ExprKind::kInt) return expr->type == DType::I64;
  return expr->kind == ExprKind::kApply && expr->op == Op::kSelect && is_flexible(expr->args[1]) &&
         is_flexible(expr->args[2]);
}

bool fits(const ExprRef& flexible, DType type) {
  if (flexible->kind == ExprKind::kApply) return fits(flexible->args[1], type) && fits(flexible->args[2], type);
  if (type == DType::U64) return flexible->int_value >= 0;
  return wrap_integer(type, flexible->int_value) == flexible->int_value;
}

ExprRef adapt(const ExprRef& flexible, DType type) {
  if (flexible->type == type) return flexible;
  if (flexible->kind == ExprKind::kInt) {
    if (type == DType::F32) return make_float(integer_to_float(DType::I64, flexible->int_value), flexible->loc);
    return make_int(flexible->int_value, type, flexible->loc);
  }
  auto copy = std::make_shared<Expr>(*flexible);
  copy->type = type;
  copy->args[1] = adapt(flexible->args[1], type);
  copy->args[2] = adapt(flexible->args[2], type);
  return copy;
}

bool is_float_function(Op op) {
  return (op >= Op::kExp && op <= Op::kRound) || op == Op::kFma || op >= Op::kRaisedTanh;
}

bool all_literal(const std::vector<ExprRef>& args) {
  for (const ExprRef& arg : args)
    if (arg->kind != ExprKind::kInt || arg->type != DType::I64) return false;
  return true;
}

}  // namespace

ExprRef Typer::report(Loc loc, std::string message, std::string mend) {
  diagnostics_.push_back({loc, std::move(message), std::move(mend)});
  return mistake_;
}

DType Typer::resolve(const TypeRef& type) const {
  if (!type.symbol) return type.dtype;
  auto found = types_.find(type.symbol.get());
  const DType bound = found != types_.end() ? found->second : type.symbol->options[0];
  return type.accumulator ? accumulator_type(bound) : bound;
}

VarRef Typer::declare(const VarRef& var, DType type) {
  auto fresh = std::make_shared<Var>(*var);
  fresh->type = TypeRef{type, nullptr};
  vars_[var.get()] = fresh;
  return fresh;
}

BufferRef Typer::declare(const BufferRef& buffer) {
  auto fresh = std::make_shared<Buffer>(*buffer);
  fresh->type = TypeRef{resolve(buffer->type), nullptr};
  fresh->shape = indices(buffer->shape);
  buffers_[buffer.get()] = fresh;
  return fresh;
}

VarRef Typer::find(const VarRef& var) const {
  auto found = vars_.find(var.get());
  return found != vars_.end() ? found->second : var;
}

BufferRef Typer::find(const BufferRef& buffer) const {
  auto found = buffers_.find(buffer.get());
  return found != buffers_.end() ? found->second : buffer;
}

std::vector<ExprRef> Typer::indices(const std::vector<ExprRef>& list) {
  std::vector<ExprRef> result;
  result.reserve(list.size());
  for (const ExprRef& expr : list) result.push_back(index(expr));
  return result;
}

IterVar Typer::iteration(const IterVar& iter) {
  ExprRef extent = index(iter.extent);
  return {declare(iter.var, DType::I64), extent};
}

ExprRef Typer::index(const ExprRef& expr) {
  ExprRef value = type(expr);
  if (is_mistake(value) || value->type == DType::I64) return value;
  if (!is_integer(value->type))
    return report(expr->loc, fmt::format("an index or extent must be an integer, this is {}", name(value->type)),
                  "convert it with i64(...)");
  return make_cast({DType::I64, nullptr}, value, expr->loc);
}

ExprRef Typer::to_condition(const ExprRef& typed) {
  if (is_mistake(typed) || typed->type == DType::Bool) return typed;
  if (typed->kind == ExprKind::kInt) return make_bool(typed->int_value != 0, typed->loc);
  return make_cast({DType::Bool, nullptr}, typed, typed->loc);
}

ExprRef Typer::condition(const ExprRef& expr) {
  return to_condition(type(expr));
}

ExprRef Typer::stored(const ExprRef& expr, DType to) {
  return stored_typed(type(expr), to);
}

ExprRef Typer::stored_typed(const ExprRef& value, DType to) {
  DType held = compute_type(to);
  if (is_mistake(value) || value->type == held) return value;
  if (is_flexible(value) && held != DType::Bool && (held == DType::F32 || fits(value, held))) return adapt(value, held);
  return make_cast({to, nullptr}, value, value->loc);
}

ExprRef Typer::coerce(const ExprRef& typed, DType type) {
  if (typed->type == type) return typed;
  if (is_flexible(typed)) return adapt(typed, type);
  return make_cast({type, nullptr}, typed, typed->loc);
}

std::optional<DType> Typer::unify(Op op, const ExprRef& a, const ExprRef& b, Loc loc) {
  DType x = a->type, y = b->type;
  if (x == DType::Bool || y == DType::Bool) {
    if (x == y) return x;
    DType number = x == DType::Bool ? y : x;
    report(loc, fmt::format("`{}` cannot mix bool and {}", info(op).spelling, name(number)),
           fmt::format("convert the bool with {}(...), or compare the number with 0", name(number)));
    return std::nullopt;
  }
  bool flexible_a = is_flexible(a), flexible_b = is_flexible(b);
  if (flexible_a != flexible_b) {
    const ExprRef& literal = flexible_a ? a : b;
    DType other = flexible_a ? y : x;
    if (other == DType::F32 || fits(literal, other)) return other;
    if (other != DType::U64) return DType::I64;
    x = DType::I64;
    y = DType::U64;
  }
  if (x == y) return x;
  if (x == DType::F32 || y == DType::F32) return DType::F32;
  if (x != DType::U64 && y != DType::U64) return DType::I64;
  DType other = x == DType::U64 ? y : x;
  if (other == DType::U32) return DType::U64;
  report(loc, fmt::format("`{}` cannot mix u64 and {}", info(op).spelling, name(other)),
         "convert one side with u64(...) or i64(...)");
  return std::nullopt;
}

ExprRef Typer::apply(const ExprRef& like, std::vector<ExprRef> args, DType type) {
  auto result = std::make_shared<Expr>(*like);
  result->args = std::move(args);
  result->typed = true;
  result->type = type;
  if (all_literal(result->args) && type == DType::I64) return fold(result);
  return result;
}

ExprRef Typer::arithmetic(Op op, ExprRef a, ExprRef b, Loc loc) {
  if (is_mistake(a) || is_mistake(b)) return mistake_;
  std::optional<DType> type = unify(op, a, b, loc);
  if (!type) return mistake_;
  if (*type == DType::Bool && op != Op::kEq && op != Op::kNe)
    return report(loc, fmt::format("`{}` needs numbers, these are bool", info(op).spelling),
                  "use && and || on bools, or convert with i32(...)");
  bool bits_only = op == Op::kMod || op == Op::kBitAnd || op == Op::kBitOr || op == Op::kBitXor || op == Op::kCeilDiv;
  if (bits_only && *type == DType::F32)
    return report(loc, fmt::format("`{}` needs integers, these are f32", info(op).spelling),
                  op == Op::kBitXor ? "it is an exclusive or: a square is `x * x`, of integers convert with i32(...)"
                                    : "convert the operands with i32(...) or i64(...)");
  // 0 but where the extent is 1: nobody means that, and it goes unnoticed.
  const bool of_extent =
      b->kind == ExprKind::kVar && (b->var->kind == VarKind::kDim || b->var->kind == VarKind::kTunable);
  if (op == Op::kDiv && is_integer(*type) && is_int(a, 1) && of_extent)
    return report(loc, fmt::format("`1 / {}` is 0, since integers are divided as in C", b->var->name),
                  fmt::format("write `1.0 / {}`, which is f32", b->var->name));
  auto like = make_apply(op, {}, loc);
  return apply(like, {coerce(a, *type), coerce(b, *type)}, is_comparison(op) ? DType::Bool : *type);
}

ExprRef Typer::type_shift(const ExprRef& expr, std::vector<ExprRef> args) {
  for (const ExprRef& arg : args)
    if (!is_integer(arg->type))
      return report(expr->loc, fmt::format("`{}` needs integers, this is {}", info(expr->op).spelling, name(arg->type)),
                    "convert the operand with i32(...) or i64(...)");
  DType type = args[0]->type;
  if (is_flexible(args[1]) && fits(args[1], type)) args[1] = adapt(args[1], type);
  return apply(expr, std::move(args), type);
}

ExprRef Typer::type_float_function(const ExprRef& expr, std::vector<ExprRef> args) {
  for (ExprRef& arg : args) {
    if (arg->type == DType::Bool)
      return report(expr->loc, fmt::format("`{}` needs numbers, this is bool", info(expr->op).spelling),
                    "convert the operand with f32(...)");
    arg = coerce(arg, DType::F32);
  }
  return apply(expr, std::move(args), DType::F32);
}

ExprRef Typer::type_apply(const ExprRef& expr) {
  if (static_cast<int>(expr->args.size()) != info(expr->op).arity)
    return report(
        expr->loc,
        fmt::format("`{}` takes {} operands, not {}", info(expr->op).spelling, info(expr->op).arity, expr->args.size()),
        "give it that many");
  std::vector<ExprRef> args;
  bool mistaken = false;
  for (const ExprRef& arg : expr->args) {
    args.push_back(type(arg));
    mistaken |= is_mistake(args.back());
  }
  if (mistaken) return mistake_;
  const std::string_view spelling = info(expr->op).spelling;
  DType first = args[0]->type;
  switch (expr->op) {
    case Op::kNot:
      return apply(expr, {to_condition(args[0])}, DType::Bool);
    case Op::kAnd:
    case Op::kOr:
      return apply(expr, {to_condition(args[0]), to_condition(args[1])}, DType::Bool);
    case Op::kNeg:
    case Op::kAbs:
      if (first == DType::Bool)
        return report(expr->loc, fmt::format("`{}` needs a number, this is bool", spelling), "use !, or i32(...)");
      if (args[0]->kind == ExprKind::kFloat && expr->op == Op::kNeg)
        return make_float(-args[0]->float_value, expr->loc);
      return apply(expr, std::move(args), first);
    case Op::kBitNot:
    case Op::kPopcount:
      if (!is_integer(first))
        return report(expr->loc, fmt::format("`{}` needs an integer, this is {}", spelling, name(first)),
                      first == DType::Bool ? "use !, or i32(...)" : "convert it with i32(...)");
      return apply(expr, std::move(args), first);
    case Op::kShl:
    case Op::kShr:
      return type_shift(expr, std::move(args));
    case Op::kSelect: {
      std::optional<DType> type = unify(expr->op, args[1], args[2], expr->loc);
      if (!type) return mistake_;
      return apply(expr, {to_condition(args[0]), coerce(args[1], *type), coerce(args[2], *type)}, *type);
    }
    case Op::kClamp: {
      std::optional<DType> low = unify(expr->op, args[0], args[1], expr->loc);
      if (!low) return mistake_;
      std::optional<DType> all = unify(expr->op, coerce(args[0], *low), args[2], expr->loc);
      if (!all) return mistake_;
      if (*all == DType::Bool)
        return report(expr->loc, "`clamp` needs numbers, these are bool", "convert them with i32(...)");
      return apply(expr, {coerce(args[0], *all), coerce(args[1], *all), coerce(args[2], *all)}, *all);
    }
    case Op::kBucket:
      if (!bucket_allowed_)
        return report(expr->loc, "`bucket` is for `key` only", "compute the power of two on the host");
      if (!is_integer(first))
        return report(expr->loc, "`bucket` needs an integer", "convert the operand with i64(...)");
      return apply(expr, {coerce(args[0], DType::I64)}, DType::I64);
    default:
      break;
  }
  if (is_float_function(expr->op)) return type_float_function(expr, std::move(args));
  return arithmetic(expr->op, args[0], args[1], expr->loc);
}

ExprRef Typer::type_reduce(const ExprRef& expr) {
  std::vector<IterVar> iters;
  for (const IterVar& iter : expr->iters) iters.push_back(iteration(iter));
  ExprRef body = type(expr->args[0]);
  if (is_mistake(body)) return body;
  if (body->type == DType::Bool)
    return report(expr->loc, "a reduction needs numbers, this is bool", "write `condition ? 1 : 0`");
  if (expr->kind == ExprKind::kScan)
    return make_scan(expr->reduce, iters[0], std::move(body), type(expr->args[1]), expr->inclusive, expr->loc);
  return make_reduce(expr->reduce, std::move(iters), std::move(body), expr->loc);
}

ExprRef Typer::type(const ExprRef& expr) {
  switch (expr->kind) {
    case ExprKind::kInt:
    case ExprKind::kBool:
      return expr;
    case ExprKind::kFloat:
      return make_float(round_float(DType::F32, expr->float_value), expr->loc);
    case ExprKind::kVar:
      return make_var(find(expr->var), expr->loc);
    case ExprKind::kApply:
      return type_apply(expr);
    case ExprKind::kCast: {
      ExprRef value = type(expr->args[0]);
      if (is_mistake(value)) return value;
      return make_cast({resolve(expr->cast_type), nullptr}, value, expr->loc);
    }
    case ExprKind::kLoad: {
      std::vector<ExprRef> list = indices(expr->args);
      return make_load(find(expr->buffer), std::move(list), expr->loc);
    }
    case ExprKind::kReduce:
    case ExprKind::kScan:
      return type_reduce(expr);
  }
  return mistake_;
}

Result<ExprRef> type_expr(const ExprRef& expr) {
  TypeAssignment types;
  std::vector<Diagnostic> diagnostics;
  Typer typer(types, diagnostics);
  typer.allow_bucket(true);
  ExprRef typed = typer.type(expr);
  if (!diagnostics.empty()) return invalid(diagnostics[0].message + "; " + diagnostics[0].mend);
  return typed;
}

}  // namespace kachel::ir
