#include "runtime/engine/bind/host_program.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "ir/numerics.h"
#include "ir/typecheck.h"

namespace kachel::runtime {
namespace {

using ir::DType;
using ir::ExprKind;
using ir::Op;

int64_t bits_of(double value) {
  return std::bit_cast<int64_t>(value);
}
double double_of(int64_t bits) {
  return std::bit_cast<double>(bits);
}

// Replaces consts by their values before folding, so that what depends on them alone costs nothing at launch.
ir::ExprRef with_consts(const ir::ExprRef& expr, const HostScope& scope) {
  return ir::rewrite(expr, [&](const ir::ExprRef& node) -> ir::ExprRef {
    if (node->kind != ExprKind::kVar) return node;
    auto found = scope.consts.find(node->var.get());
    if (found == scope.consts.end()) return node;
    const ir::HostValue& value = found->second;
    if (node->type == DType::F32)
      return ir::make_float(value.is_float ? value.f : static_cast<double>(value.i), node->loc);
    if (node->type == DType::Bool) return ir::make_bool(value.i != 0, node->loc);
    return ir::make_int(ir::wrap_integer(node->type, value.i), node->type, node->loc);
  });
}

}  // namespace

Result<HostProgram> HostProgram::compile(const ir::ExprRef& expr, const HostScope& scope) {
  KACHEL_ASSIGN(ir::ExprRef typed, ir::type_expr(expr));
  typed = ir::fold(with_consts(typed, scope));
  HostProgram program;
  program.is_float_ = typed->type == DType::F32;
  KACHEL_TRY(program.emit(typed, scope, 0));
  program.find_form();
  return program;
}

HostProgram HostProgram::with_tunables(const int64_t* values) const {
  HostProgram program = *this;
  program.mentions_tunables_ = false;
  program.code_.clear();
  for (Instruction instruction : code_) {
    if (instruction.kind == Kind::kTunable) {
      instruction.kind = Kind::kConst;
      instruction.value = values[instruction.value];
    }
    const auto arity = static_cast<size_t>(instruction.arity);
    const auto operands = program.code_.end() - instruction.arity;
    auto is_const = [](const Instruction& operand) { return operand.kind == Kind::kConst; };
    if (arity > 0 && std::all_of(operands, program.code_.end(), is_const)) {
      instruction.value =
          apply(instruction, operands[0].value, arity > 1 ? operands[1].value : 0, arity > 2 ? operands[2].value : 0);
      instruction.kind = Kind::kConst;
      instruction.arity = 0;
      program.code_.erase(operands, program.code_.end());
    }
    program.code_.push_back(instruction);
  }
  program.find_form();
  return program;
}

void HostProgram::find_form() {
  form_ = {};
  form_.kind = HostForm::Kind::kProgram;
  auto is = [&](size_t at, Kind kind, Op op = Op::kAdd) {
    return code_[at].kind == kind && (kind != Kind::kIntOp || (code_[at].op == op && code_[at].type == DType::I64));
  };
  if (code_.size() == 1 && (is(0, Kind::kDim) || is(0, Kind::kConst) || is(0, Kind::kIntScalar))) {
    form_.kind = is(0, Kind::kDim)     ? HostForm::Kind::kDim
                 : is(0, Kind::kConst) ? HostForm::Kind::kConst
                                       : HostForm::Kind::kScalar;
    if (form_.kind == HostForm::Kind::kConst) form_.value = code_[0].value;
  } else if (code_.size() == 2 && is(0, Kind::kDim) && is(1, Kind::kIntOp, Op::kBucket)) {
    form_.kind = HostForm::Kind::kBucket;
  } else if (code_.size() >= 3 && is(0, Kind::kDim) && is(1, Kind::kConst) && code_[1].value > 0) {
    if (code_.size() == 3 && is(2, Kind::kIntOp, Op::kCeilDiv)) form_.kind = HostForm::Kind::kCeilDiv;
    if (code_.size() == 5 && is(2, Kind::kIntOp, Op::kMod) && is(3, Kind::kConst) && code_[3].value == 0 &&
        is(4, Kind::kIntOp, Op::kEq))
      form_.kind = HostForm::Kind::kMultipleOf;
    form_.value = code_[1].value;
  }
  if (form_.kind != HostForm::Kind::kConst) form_.position = static_cast<uint8_t>(code_[0].value);
}

HostForm HostProgram::form() const {
  HostForm form = form_;
  if (form.kind == HostForm::Kind::kProgram) form.program = this;
  return form;
}

int64_t HostForm::run_program(const HostInputs& inputs) const {
  return program->run(inputs);
}

Status HostProgram::emit(const ir::ExprRef& expr, const HostScope& scope, int depth) {
  // Operand i of a node is evaluated above i earlier ones; three operands at most.
  if (depth + 3 > kStack)
    return unsupported(
        "an expression that the host evaluates is nested too deeply; split it over more consts or dimensions");
  Instruction instruction{Kind::kConst, expr->op, expr->type, expr->type, 0, 0};
  switch (expr->kind) {
    case ExprKind::kInt:
    case ExprKind::kBool:
      instruction.value = expr->int_value;
      break;
    case ExprKind::kFloat:
      instruction.value = bits_of(ir::round_float(DType::F32, expr->float_value));
      break;
    case ExprKind::kVar: {
      const ir::Var* var = expr->var.get();
      if (auto dim = scope.dims.find(var); dim != scope.dims.end()) {
        instruction.kind = Kind::kDim;
        instruction.value = dim->second;
        mentions_dims_ = true;
      } else if (auto scalar = scope.scalars.find(var); scalar != scope.scalars.end()) {
        instruction.kind = expr->type == DType::F32 ? Kind::kFloatScalar : Kind::kIntScalar;
        instruction.value = scalar->second;
        mentions_scalars_ = true;
      } else if (auto tunable = scope.tunables.find(var); tunable != scope.tunables.end()) {
        instruction.kind = Kind::kTunable;
        instruction.value = tunable->second;
        mentions_tunables_ = true;
      } else {
        return invalid(fmt::format("`{}` has no value on the host; use dimensions, scalars, consts and tunables there",
                                   var->name));
      }
      break;
    }
    case ExprKind::kCast:
      KACHEL_TRY(emit(expr->args[0], scope, depth));
      instruction.kind = Kind::kCast;
      instruction.type = expr->args[0]->type;
      instruction.to = expr->cast_type.dtype;
      instruction.arity = 1;
      break;
    case ExprKind::kApply: {
      for (size_t i = 0; i < expr->args.size(); ++i)
        KACHEL_TRY(emit(expr->args[i], scope, depth + static_cast<int>(i)));
      instruction.arity = static_cast<int8_t>(expr->args.size());
      DType operand = expr->args[expr->op == Op::kSelect ? 1 : 0]->type;
      instruction.type = operand;
      if (operand != DType::F32)
        instruction.kind = Kind::kIntOp;
      else if (expr->op == Op::kSelect)
        instruction.kind = Kind::kFloatSelect;
      else
        instruction.kind = ir::is_comparison(expr->op) ? Kind::kFloatCompare : Kind::kFloatOp;
      break;
    }
    case ExprKind::kLoad:
      return invalid(fmt::format("`{}` is in device memory and has no value on the host", expr->buffer->name));
    case ExprKind::kReduce:
    case ExprKind::kScan:
      return invalid("a reduction has no value on the host");
  }
  code_.push_back(instruction);
  return {};
}

int64_t HostProgram::load(const Instruction& instruction, const HostInputs& inputs) {
  switch (instruction.kind) {
    case Kind::kDim:
      return inputs.dims[instruction.value];
    case Kind::kIntScalar:
      return static_cast<int64_t>(inputs.scalars[instruction.value]);
    case Kind::kFloatScalar:
      return bits_of(std::bit_cast<float>(static_cast<uint32_t>(inputs.scalars[instruction.value])));
    case Kind::kTunable:
      return inputs.tunables[instruction.value];
    default:
      return instruction.value;
  }
}

int64_t HostProgram::apply(const Instruction& instruction, int64_t a, int64_t b, int64_t c) {
  switch (instruction.kind) {
    case Kind::kIntOp:
      return ir::integer_op(instruction.op, instruction.type, a, b, c);
    case Kind::kFloatOp:
      return bits_of(ir::float_op(instruction.op, double_of(a), double_of(b), double_of(c)));
    case Kind::kFloatCompare:
      return ir::float_compare(instruction.op, double_of(a), double_of(b));
    case Kind::kFloatSelect:
      return a != 0 ? b : c;
    default: {
      ir::Scalar value;
      value.type = instruction.type;
      if (instruction.type == DType::F32)
        value.f = double_of(a);
      else
        value.i = a;
      const ir::Scalar converted = ir::convert(value, instruction.to);
      return converted.type == DType::F32 ? bits_of(converted.f) : converted.i;
    }
  }
}

int64_t HostProgram::run_code(const HostInputs& inputs) const {
  int64_t stack[kStack + 1];
  int64_t* top = stack;  // one past the topmost value
  for (const Instruction& instruction : code_) {
    if (instruction.kind <= Kind::kTunable) {
      *top++ = load(instruction, inputs);
      continue;
    }
    top -= instruction.arity;
    top[0] = apply(instruction, top[0], instruction.arity > 1 ? top[1] : 0, instruction.arity > 2 ? top[2] : 0);
    ++top;
  }
  return stack[0];
}

}  // namespace kachel::runtime
