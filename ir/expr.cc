#include "ir/expr.h"

#include <cassert>

namespace kachel::ir {
namespace {

// Precedence: || 1, && 2, comparisons 4, | 5, ^ 6, & 7, shifts 8, + - 9, * / % 10, unary 11. `? :` is below all.
constexpr OpInfo kOps[kOpCount] = {
    {"-", 1, 11},    {"!", 1, 11},    {"~", 1, 11},      {"+", 2, 9},           {"-", 2, 9},          {"*", 2, 10},
    {"/", 2, 10},    {"%", 2, 10},    {"&", 2, 7},       {"|", 2, 5},           {"^", 2, 6},          {"<<", 2, 8},
    {">>", 2, 8},    {"&&", 2, 2},    {"||", 2, 1},      {"==", 2, 4},          {"!=", 2, 4},         {"<", 2, 4},
    {"<=", 2, 4},    {">", 2, 4},     {">=", 2, 4},      {"select", 3, 0},      {"min", 2, 0},        {"max", 2, 0},
    {"abs", 1, 0},   {"clamp", 3, 0}, {"ceildiv", 2, 0}, {"fma", 3, 0},         {"popcount", 1, 0},   {"exp", 1, 0},
    {"exp2", 1, 0},  {"log", 1, 0},   {"log2", 1, 0},    {"rsqrt", 1, 0},       {"rcp", 1, 0},        {"sqrt", 1, 0},
    {"tanh", 1, 0},  {"erf", 1, 0},   {"sin", 1, 0},     {"cos", 1, 0},         {"floor", 1, 0},      {"ceil", 1, 0},
    {"trunc", 1, 0}, {"round", 1, 0}, {"bucket", 1, 0},  {"raised_tanh", 2, 0}, {"raised_erf", 2, 0},
};

std::shared_ptr<Expr> node(ExprKind kind, Loc loc) {
  auto expr = std::make_shared<Expr>();
  expr->kind = kind;
  expr->loc = loc;
  return expr;
}

}  // namespace

const OpInfo& info(Op op) {
  return kOps[static_cast<int>(op)];
}
bool is_comparison(Op op) {
  return op >= Op::kEq && op <= Op::kGe;
}

ExprRef make_int(int64_t value, DType type, Loc loc) {
  auto expr = node(ExprKind::kInt, loc);
  expr->int_value = value;
  expr->type = type;
  expr->typed = true;
  return expr;
}

ExprRef make_float(double value, Loc loc) {
  auto expr = node(ExprKind::kFloat, loc);
  expr->float_value = value;
  expr->type = DType::F32;
  expr->typed = true;
  return expr;
}

ExprRef make_bool(bool value, Loc loc) {
  auto expr = node(ExprKind::kBool, loc);
  expr->int_value = value;
  expr->type = DType::Bool;
  expr->typed = true;
  return expr;
}

ExprRef make_var(VarRef var, Loc loc) {
  auto expr = node(ExprKind::kVar, loc);
  if (!var->type.symbol) {
    expr->type = compute_type(var->type.dtype);
    expr->typed = true;
  }
  expr->var = std::move(var);
  return expr;
}

ExprRef make_untyped_var(VarRef var, Loc loc) {
  if (var->kind != VarKind::kLet) return make_var(std::move(var), loc);
  auto expr = node(ExprKind::kVar, loc);
  expr->var = std::move(var);
  return expr;
}

ExprRef make_apply(Op op, std::vector<ExprRef> args, Loc loc, bool approx) {
  auto expr = node(ExprKind::kApply, loc);
  expr->op = op;
  expr->approx = approx;
  expr->args = std::move(args);
  return expr;
}

ExprRef make_typed(Op op, std::vector<ExprRef> args, bool approx) {
  auto expr = node(ExprKind::kApply, args[0]->loc);
  expr->op = op;
  expr->approx = approx;
  expr->typed = true;
  if (is_comparison(op) || op == Op::kAnd || op == Op::kOr || op == Op::kNot)
    expr->type = DType::Bool;
  else
    expr->type = args[op == Op::kSelect ? 1 : 0]->type;
  expr->args = std::move(args);
  return expr;
}

ExprRef make_cast(TypeRef type, ExprRef arg, Loc loc) {
  auto expr = node(ExprKind::kCast, loc);
  expr->typed = !type.symbol && arg->typed;
  if (expr->typed) expr->type = compute_type(type.dtype);
  expr->cast_type = std::move(type);
  expr->args = {std::move(arg)};
  return expr;
}

ExprRef make_load(BufferRef buffer, std::vector<ExprRef> indices, Loc loc) {
  auto expr = node(ExprKind::kLoad, loc);
  if (!buffer->type.symbol) {
    expr->type = compute_type(buffer->type.dtype);
    expr->typed = true;
  }
  expr->buffer = std::move(buffer);
  expr->args = std::move(indices);
  return expr;
}

const char* spelling(ReduceOp op) {
  constexpr const char* kSpellings[] = {"sum", "max", "min", "prod", "argmax", "argmin"};
  return kSpellings[static_cast<int>(op)];
}
bool is_arg(ReduceOp op) {
  return op == ReduceOp::kArgMax || op == ReduceOp::kArgMin;
}
bool is_extreme(ReduceOp op) {
  return op == ReduceOp::kMax || op == ReduceOp::kMin;
}

ExprRef make_reduce(ReduceOp op, std::vector<IterVar> iters, ExprRef body, Loc loc) {
  auto expr = node(ExprKind::kReduce, loc);
  expr->reduce = op;
  expr->iters = std::move(iters);
  expr->typed = body->typed;
  expr->type = is_arg(op) ? DType::I64 : body->type;
  expr->args = {std::move(body)};
  return expr;
}

ExprRef make_scan(ReduceOp op, IterVar iter, ExprRef body, ExprRef index, bool inclusive, Loc loc) {
  auto expr = node(ExprKind::kScan, loc);
  expr->reduce = op;
  expr->inclusive = inclusive;
  expr->iters = {std::move(iter)};
  expr->typed = body->typed;
  expr->type = body->type;
  expr->args = {std::move(body), std::move(index)};
  return expr;
}

bool is_reduction(const Expr& expr) {
  return expr.kind == ExprKind::kReduce || expr.kind == ExprKind::kScan;
}
bool is_const(const ExprRef& expr) {
  return expr->kind <= ExprKind::kBool;
}
bool is_zero_constant(const ExprRef& expr) {
  return is_int(expr, 0) || (expr->kind == ExprKind::kFloat && expr->float_value == 0);
}
bool is_int(const ExprRef& expr, int64_t value) {
  return expr->kind == ExprKind::kInt && expr->int_value == value;
}

bool same(const ExprRef& a, const ExprRef& b) {
  if (a == b) return true;
  if (!a || !b || a->kind != b->kind || a->args.size() != b->args.size() || a->iters.size() != b->iters.size())
    return false;
  if (a->typed != b->typed || (a->typed && a->type != b->type)) return false;
  switch (a->kind) {
    case ExprKind::kInt:
    case ExprKind::kBool:
      if (a->int_value != b->int_value) return false;
      break;
    case ExprKind::kFloat:
      if (!(a->float_value == b->float_value || (a->float_value != a->float_value && b->float_value != b->float_value)))
        return false;
      break;
    case ExprKind::kVar:
      if (a->var != b->var) return false;
      break;
    case ExprKind::kApply:
      if (a->op != b->op || a->approx != b->approx || a->of_rounded != b->of_rounded) return false;
      break;
    case ExprKind::kCast:
      if (!(a->cast_type == b->cast_type)) return false;
      break;
    case ExprKind::kLoad:
      if (a->buffer != b->buffer) return false;
      break;
    case ExprKind::kReduce:
    case ExprKind::kScan:
      if (a->reduce != b->reduce || a->inclusive != b->inclusive) return false;
      for (size_t i = 0; i < a->iters.size(); ++i)
        if (a->iters[i].var != b->iters[i].var || !same(a->iters[i].extent, b->iters[i].extent)) return false;
      break;
  }
  for (size_t i = 0; i < a->args.size(); ++i)
    if (!same(a->args[i], b->args[i])) return false;
  return true;
}

}  // namespace kachel::ir
