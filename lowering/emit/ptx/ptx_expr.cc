#include "lowering/emit/ptx/ptx_expr.h"

#include "ir/numerics.h"

namespace kachel::lowering::ptx {
namespace {

constexpr int64_t kMostLimit = int64_t{1} << 30;

}  // namespace

using ir::DType;
using ir::ExprKind;
using ir::ExprRef;
using ir::Op;

const char* number_type(DType type) {
  switch (ir::compute_type(type)) {
    case DType::F32:
      return "f32";
    case DType::I32:
      return "s32";
    case DType::U32:
      return "u32";
    case DType::I64:
      return "s64";
    case DType::U64:
      return "u64";
    default:
      return "pred";
  }
}
Class class_of_type(DType type) {
  switch (ir::compute_type(type)) {
    case DType::F32:
      return Class::kF32;
    case DType::I64:
    case DType::U64:
      return Class::kB64;
    case DType::Bool:
      return Class::kPred;
    default:
      return Class::kB32;
  }
}

int width_of_type(DType type) {
  return ir::bits(ir::compute_type(type));
}

Value Expressions::lacks(const std::string& what, Class kind) {
  if (missing_.empty()) missing_ = what;
  return code_.fresh(kind);
}

void Expressions::bind_own(const ir::VarRef& var, const Value& value) {
  bind(var, value);
  if (value.constant || !ir::is_integer(var->type.dtype)) return;
  const Interval range = kernel_.ranges.of(ir::make_var(var));
  const auto most = static_cast<uint64_t>(range.hi);
  if (range.lo >= 0 && !range.full() && most < code_.bits_of(value).most) code_.at_most(value, most);
}

Value Expressions::of(const ExprRef& e) {
  switch (e->kind) {
    case ExprKind::kInt:
      return Code::integer(e->int_value, width_of_type(e->type));
    case ExprKind::kBool:
      return Code::truth(e->int_value != 0);
    case ExprKind::kFloat:
      return Code::number(static_cast<float>(e->float_value));
    case ExprKind::kVar: {
      const auto named = names_.find(e->var.get());
      return named == names_.end() ? lacks("the name " + e->var->name, class_of_type(e->type)) : named->second;
    }
    case ExprKind::kLoad:
      return ir::bits(e->buffer->type.dtype) == 4 ? load_nibble(e) : memory_.load(place(e->buffer, e->args[0]));
    case ExprKind::kCast:
      return cast(e);
    case ExprKind::kApply:
      return apply(e);
    case ExprKind::kReduce:
    case ExprKind::kScan:
      break;
  }
  return lacks("a reduction");
}

Place Expressions::place(const ir::BufferRef& buffer, const ExprRef& index) {
  const Buffer& to = memory_.of(buffer);
  Place out{&to, to.type, {}, 0, 0};
  if (to.space == Space::kRegister) {
    const Value at = of(index);
    const int64_t count = static_cast<int64_t>(to.registers.size()) * to.each();
    if (!at.constant || *at.constant < 0 || *at.constant >= count)
      lacks("an element of " + buffer->name + " that is not known");
    else
      out.element = *at.constant;
    return out;
  }
  const int64_t size = ir::bits(to.type) / 8;
  if (to.space == Space::kShared) {
    const Value at = code_.add(to.base, code_.mul(low(index), Code::integer(size, 32)));
    const Code::Sum sum = code_.split(at);
    out.address = sum.base;
    out.offset = sum.offset;
    return out;
  }
  const bool narrow = width_of_type(index->type) == 32;
  const Code::Sum sum = code_.split(narrow ? of(index) : wide(index));
  out.offset = sum.offset * size;
  // Offsets of instructions have 24 bits.
  constexpr int64_t kMostOffset = 1 << 20;
  const bool far = out.offset < -kMostOffset || out.offset > kMostOffset;
  const Value from = far ? code_.add(sum.base, Code::integer(sum.offset, narrow ? 32 : 64)) : sum.base;
  if (far) out.offset = 0;
  if (from.is(0))
    out.address = to.base;
  else if (narrow && !from.constant)
    out.address = code_.pure(Class::kB64, index->type == DType::U32 ? "mad.wide.u32" : "mad.wide.s32",
                             {from, Code::integer(size, 32), to.base});
  else
    out.address =
        code_.add(to.base, code_.mul(code_.widened(from, index->type == DType::I32), Code::integer(size, 64)));
  if (const Code::Sum address = code_.split(out.address); address.offset && !far) {
    out.address = address.base;
    out.offset += address.offset;
  }
  return out;
}

Value Expressions::low(const ExprRef& e) {
  if (width_of_type(e->type) == 32) return of(e);
  if (e->kind == ExprKind::kCast && is_integer(e->args[0]->type)) return low(e->args[0]);
  if (e->kind == ExprKind::kApply) {
    if (e->op == Op::kAdd) return code_.add(low(e->args[0]), low(e->args[1]));
    if (e->op == Op::kSub) return code_.sub(low(e->args[0]), low(e->args[1]));
    if (e->op == Op::kMul) return code_.mul(low(e->args[0]), low(e->args[1]));
  }
  return code_.narrowed(of(e));
}

Value Expressions::wide(const ExprRef& e) {
  if (e->kind == ExprKind::kCast && e->args[0]->type == DType::I32) {
    const Code::Sum sum = code_.split(of(e->args[0]));
    return code_.add(code_.widened(sum.base, true), Code::integer(sum.offset, 64));
  }
  if (e->kind == ExprKind::kApply) {
    if (e->op == Op::kAdd) return code_.add(wide(e->args[0]), wide(e->args[1]));
    if (e->op == Op::kSub) return code_.sub(wide(e->args[0]), wide(e->args[1]));
    if (e->op == Op::kMul) return code_.mul(wide(e->args[0]), wide(e->args[1]));
  }
  return of(e);
}

// 4-bit elements, which are in tensors only, the lower half of a byte first.
Value Expressions::load_nibble(const ExprRef& e) {
  const Buffer& from = memory_.of(e->buffer);
  const Value at = code_.widened(of(e->args[0]), ir::is_signed(e->args[0]->type));
  const Value address = code_.add(from.base, code_.shift(at, Code::integer(1, 32), false, true));
  const Value byte = memory_.load_bits({&from, DType::U8, address, 0, 0});
  const Value odd = code_.bits("and", code_.narrowed(at), Code::integer(1, 32));
  const Value first = code_.mul(odd, Code::integer(4, 32)), four = Code::integer(4, 32);
  return code_.pure(Class::kB32, e->buffer->type.dtype == DType::I4 ? "bfe.s32" : "bfe.u32", {byte, first, four});
}

// A multiple of a number is below, or above, any literal between two of them as it is the next one: neighbours whose
// rows end together are compared once.
void Expressions::compare_multiples(const ir::Expr& e, std::vector<Value>* args) {
  if (e.op == Op::kEq || e.op == Op::kNe) return;
  for (size_t side = 0; side < 2; ++side) {
    const Value &value = (*args)[side], &limit = (*args)[1 - side];
    if (value.constant || !limit.constant || *limit.constant < 0 || *limit.constant > kMostLimit) continue;
    const int64_t factor = kernel_.ranges.multiple_of(e.args[side]), unit = factor & -factor;  // also of what wraps
    if (unit <= 1 || unit > kMostLimit) continue;
    // value < limit and limit <= value, for which the next multiple stands; else the one before
    const bool up = side == 0 ? e.op == Op::kLt || e.op == Op::kGe : e.op == Op::kGt || e.op == Op::kLe;
    const int64_t down = *limit.constant / unit * unit;
    (*args)[1 - side] =
        Code::integer(up && down < *limit.constant ? down + unit : down, width_of_type(e.args[side]->type));
  }
}

namespace {

// What a register holds of an element of the load's type that is the number, if that is one of the type and not zero.
std::optional<uint32_t> padding_bits(const ExprRef& load, const ExprRef& number) {
  if (load->kind != ExprKind::kLoad || number->kind != ExprKind::kFloat) return std::nullopt;
  const DType type = load->buffer->type.dtype;
  if (type != DType::F32 && type != DType::F16 && type != DType::BF16) return std::nullopt;
  const uint32_t bits = ir::encode_float(type, number->float_value);
  const bool same = ir::decode_float(type, bits) == number->float_value;  // not so of NaN
  return same && number->float_value != 0 ? std::optional(bits) : std::nullopt;
}

}  // namespace

Value Expressions::apply(const ExprRef& e) {
  const Op op = e->op;
  const DType type = e->args.back()->type;
  if (op == Op::kAnd || op == Op::kOr || op == Op::kSelect) {
    const Value first = of(e->args[0]);
    if (first.constant && op != Op::kSelect) return first.is(0) == (op == Op::kAnd) ? first : of(e->args[1]);
    if (first.constant) return of(e->args[first.is(0) ? 2 : 1]);
    const Value otherwise = op == Op::kAnd ? first : code_.opposite(first);
    if (op != Op::kSelect) {
      const Code::Guard guard(&code_, otherwise);
      const Value second = of(e->args[1]);
      return op == Op::kAnd ? code_.both(first, second) : code_.either(first, second);
    }
    const auto under = [&](const Value& condition, const ExprRef& value) {
      const Code::Guard guard(&code_, condition);
      return of(value);
    };
    std::optional<Code::Rest> rest;
    if (const auto bits = padding_bits(e->args[1], e->args[2])) rest.emplace(&code_, *bits, of(e->args[2]));
    const Value yes = under(first, e->args[1]);
    rest.reset();
    return code_.select(first, yes, under(otherwise, e->args[2]));
  }
  if (const std::optional<Value> sum = integer_and_more(e)) return *sum;
  std::vector<Value> args;
  for (const ExprRef& arg : e->args) args.push_back(of(arg));
  const Class kind = class_of_type(e->type);
  if (ir::is_comparison(op)) {
    constexpr const char* kNames[] = {"eq", "ne", "lt", "le", "gt", "ge"};
    const int which = static_cast<int>(op) - static_cast<int>(Op::kEq);
    if (type == DType::Bool) {
      if (which > 1) return lacks("an order of truths", kind);
      const Value differ =
          code_.pure(Class::kPred, "xor.pred", {code_.in_register(args[0]), code_.in_register(args[1])});
      return which ? differ : code_.opposite(differ);
    }
    if (is_integer(type)) compare_multiples(*e, &args);
    return code_.compare(ir::is_float(type) && op == Op::kNe ? "neu" : kNames[which], number_type(type), args[0],
                         args[1]);
  }
  if (op == Op::kNot) return code_.opposite(args[0]);
  if (is_integer(e->type)) {
    switch (op) {
      case Op::kNeg:
        return code_.sub(Code::integer(0, width_of_type(e->type)), args[0]);
      case Op::kAdd:
        return code_.add(args[0], args[1]);
      case Op::kSub:
        return code_.sub(args[0], args[1]);
      case Op::kMul:
        return code_.mul(args[0], args[1]);
      case Op::kBitNot:
        return code_.bits("xor", args[0], Code::integer(-1, width_of_type(e->type)));
      case Op::kBitAnd:
        return code_.bits("and", args[0], args[1]);
      case Op::kBitOr:
        return code_.bits("or", args[0], args[1]);
      case Op::kBitXor:
        return code_.bits("xor", args[0], args[1]);
      case Op::kShl:
      case Op::kShr:
        return code_.shift(args[0], args[1], op == Op::kShl, ir::is_signed(e->type));
      case Op::kDiv:
      case Op::kMod:
        return quotient(e, args[0], args[1], op == Op::kMod);
      case Op::kCeilDiv:
        return rounded_up(e, args[0], args[1]);
      default:
        break;
    }
  }
  return function(e, args);
}

}  // namespace kachel::lowering::ptx
