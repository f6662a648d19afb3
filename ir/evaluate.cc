#include <fmt/format.h>

#include "ir/instantiate.h"
#include "ir/numerics.h"
#include "ir/typecheck.h"

namespace kachel::ir {
namespace {

Result<Scalar> value_of(const ExprRef& expr, const HostEnv& env) {
  Scalar result;
  result.type = expr->type;
  switch (expr->kind) {
    case ExprKind::kInt:
    case ExprKind::kBool:
      result.i = expr->int_value;
      return result;
    case ExprKind::kFloat:
      result.f = round_float(DType::F32, expr->float_value);
      return result;
    case ExprKind::kVar: {
      auto found = env.find(expr->var.get());
      if (found == env.end())
        return invalid(
            fmt::format("`{}` has no value here; only dimensions, scalars, consts and tunables do", expr->var->name));
      const HostValue& value = found->second;
      if (expr->type == DType::F32)
        result.f = round_float(DType::F32, value.is_float ? value.f : static_cast<double>(value.i));
      else
        result.i = wrap_integer(expr->type, value.is_float ? static_cast<int64_t>(value.f) : value.i);
      return result;
    }
    case ExprKind::kCast: {
      KACHEL_ASSIGN(Scalar operand, value_of(expr->args[0], env));
      return convert(operand, expr->cast_type.dtype);
    }
    case ExprKind::kApply: {
      Scalar operands[3];
      size_t count = 0;
      for (const ExprRef& arg : expr->args) {
        KACHEL_ASSIGN(operands[count++], value_of(arg, env));
      }
      return apply_op(expr->op, std::span<const Scalar>(operands, count));
    }
    case ExprKind::kLoad:
      return invalid(fmt::format("`{}` is in device memory and has no value on the host", expr->buffer->name));
    case ExprKind::kReduce:
    case ExprKind::kScan:
      return invalid("a reduction has no value on the host");
  }
  return internal("no such expression");
}

Result<Scalar> typed_value(const ExprRef& expr, const HostEnv& env) {
  if (expr->typed) return value_of(expr, env);
  KACHEL_ASSIGN(ExprRef typed, type_expr(expr));
  return value_of(typed, env);
}

}  // namespace

Result<HostValue> evaluate(const ExprRef& expr, const HostEnv& env) {
  KACHEL_ASSIGN(Scalar value, typed_value(expr, env));
  HostValue result;
  result.is_float = value.type == DType::F32;
  result.i = value.i;
  result.f = value.f;
  return result;
}

Result<int64_t> evaluate_int(const ExprRef& expr, const HostEnv& env) {
  KACHEL_ASSIGN(Scalar value, typed_value(expr, env));
  if (value.type == DType::F32) return invalid("an integer is needed here, this is f32; convert it with i64(...)");
  return value.i;
}

}  // namespace kachel::ir
