#include "lowering/emit/ptx/ptx_expr.h"

#include <bit>

#include "lowering/machine/machine.h"

namespace kachel::lowering::ptx {

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

namespace {

int width(DType type) {
  return ir::bits(ir::compute_type(type));
}

}  // namespace

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
      return Code::integer(e->int_value, width(e->type));
    case ExprKind::kBool:
      return Code::truth(e->int_value != 0);
    case ExprKind::kFloat:
      return Code::number(static_cast<float>(e->float_value));
    case ExprKind::kVar: {
      const auto named = names_.find(e->var.get());
      return named == names_.end() ? lacks("the name " + e->var->name, class_of_type(e->type)) : named->second;
    }
    case ExprKind::kLoad:
      return load(e);
    case ExprKind::kCast:
      return cast(e);
    case ExprKind::kApply:
      return apply(e);
    case ExprKind::kReduce:
      break;
  }
  return lacks("a reduction");
}

Place Expressions::place(const ir::BufferRef& buffer, const ExprRef& index) {
  const Buffer& to = memory_.of(buffer);
  Place out{&to, {}, 0, 0};
  if (to.space == Space::kRegister) {
    const Value at = of(index);
    const int64_t each = std::max(32 / ir::bits(to.type), 1), count = static_cast<int64_t>(to.registers.size()) * each;
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
  const bool narrow = width(index->type) == 32;
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
    out.address = code_.add(to.base, code_.mul(code_.widened(from, index->type == DType::I32), Code::integer(size, 64)));
  if (const Code::Sum address = code_.split(out.address); address.offset && !far) {
    out.address = address.base;
    out.offset += address.offset;
  }
  return out;
}

Value Expressions::low(const ExprRef& e) {
  if (width(e->type) == 32) return of(e);
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

Value Expressions::load(const ExprRef& e) {
  const DType type = e->buffer->type.dtype;
  if (ir::bits(type) == 4) return load_nibble(e);
  const Place from = place(e->buffer, e->args[0]);
  const std::optional<Value> value = memory_.load(from);
  return value ? *value : lacks(fmt::format("loads of {}", ir::name(type)), class_of_type(type));
}

// 4-bit elements, which are in tensors only, the lower half of a byte first.
Value Expressions::load_nibble(const ExprRef& e) {
  const Buffer& from = memory_.of(e->buffer);
  const Value at = code_.widened(of(e->args[0]), ir::is_signed(e->args[0]->type));
  const Value address = code_.add(from.base, code_.shift(at, Code::integer(1, 32), false, true));
  const Buffer bytes{from.space, DType::U8, from.base, {}};
  const Value byte = memory_.load_bits({&bytes, address, 0, 0});
  const Value odd = code_.bits("and", code_.narrowed(at), Code::integer(1, 32));
  const Value first = code_.mul(odd, Code::integer(4, 32)), four = Code::integer(4, 32);
  return code_.pure(Class::kB32, e->buffer->type.dtype == DType::I4 ? "bfe.s32" : "bfe.u32", {byte, first, four});
}

Value Expressions::cast(const ExprRef& e) {
  const DType to = e->cast_type.dtype, from = e->args[0]->type;
  const Value value = of(e->args[0]);
  if (to == DType::Bool) {
    if (from == DType::Bool) return value;
    return code_.compare(ir::is_float(from) ? "neu" : "ne", number_type(from), value,
                         ir::is_float(from) ? Code::number(0) : Code::integer(0, width(from)));
  }
  if (ir::is_float(to)) {
    Value number = value;
    if (from == DType::Bool)
      number = code_.select(value, Code::number(1), Code::number(0));
    else if (from != DType::F32)
      number = code_.pure(Class::kF32, fmt::format("cvt.rn.f32.{}", number_type(from)).c_str(), {value});
    if (to == DType::F32) return number;
    if (to == DType::BF16)
      return code_.pure(Class::kF32, "cvt.f32.bf16", {code_.pure(Class::kB16, "cvt.rn.bf16.f32", {number})});
    if (to == DType::F16)
      return code_.pure(Class::kF32, "cvt.f32.f16", {code_.pure(Class::kB16, "cvt.rn.f16.f32", {number})});
    return memory_.from_f8(memory_.to_f8(number, to), to);
  }
  const Class kind = class_of_type(to);
  if (from == DType::F32) {
    if (ir::bits(to) >= 32) {
      const std::string name = fmt::format("cvt.rzi.{}.f32", number_type(to));
      if (ir::bits(to) == 32) return code_.pure(kind, name.c_str(), {value});
      const Value is_number = code_.compare("num", "f32", value, value);
      return code_.select(is_number, code_.pure(kind, name.c_str(), {value}), Code::integer(0, 64));
    }
    const int bits = ir::bits(to);
    const int lo = ir::is_signed(to) ? -(1 << (bits - 1)) : 0, hi = ir::is_signed(to) ? (1 << (bits - 1)) - 1 : (1 << bits) - 1;
    const Value number = code_.pure(kind, "cvt.rzi.s32.f32", {value});
    return code_.pure(kind, "min.s32",
                      {code_.pure(kind, "max.s32", {number, Code::integer(lo, 32)}), Code::integer(hi, 32)});
  }
  if (from == DType::Bool) {
    const int bits = width(to);
    return code_.select(value, Code::integer(1, bits), Code::integer(0, bits));
  }
  if (ir::bits(to) == 64) return code_.widened(value, ir::is_signed(from));
  const Value narrow = code_.narrowed(value);
  if (ir::bits(to) == 32) return narrow;
  if (!ir::is_signed(to)) return code_.bits("and", narrow, Code::integer((1 << ir::bits(to)) - 1, 32));
  const Value up = Code::integer(32 - ir::bits(to), 32);
  return code_.shift(code_.shift(narrow, up, true, false), up, false, true);
}

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
    const Value yes = under(first, e->args[1]), no = under(otherwise, e->args[2]);
    return code_.select(first, yes, no);
  }
  std::vector<Value> args;
  for (const ExprRef& arg : e->args) args.push_back(of(arg));
  const Class kind = class_of_type(e->type);
  if (ir::is_comparison(op)) {
    constexpr const char* kNames[] = {"eq", "ne", "lt", "le", "gt", "ge"};
    const int which = static_cast<int>(op) - static_cast<int>(Op::kEq);
    if (type == DType::Bool) {
      if (which > 1) return lacks("an order of truths", kind);
      const Value differ = code_.pure(Class::kPred, "xor.pred", {code_.in_register(args[0]), code_.in_register(args[1])});
      return which ? differ : code_.opposite(differ);
    }
    return code_.compare(ir::is_float(type) && op == Op::kNe ? "neu" : kNames[which], number_type(type), args[0], args[1]);
  }
  if (op == Op::kNot) return code_.opposite(args[0]);
  if (is_integer(e->type)) {
    switch (op) {
      case Op::kNeg:
        return code_.sub(Code::integer(0, width(e->type)), args[0]);
      case Op::kAdd:
        return code_.add(args[0], args[1]);
      case Op::kSub:
        return code_.sub(args[0], args[1]);
      case Op::kMul:
        return code_.mul(args[0], args[1]);
      case Op::kBitNot:
        return code_.bits("xor", args[0], Code::integer(-1, width(e->type)));
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

// By zero gives 0, and the smallest number by -1 wraps.
Value Expressions::quotient(const ExprRef& e, const Value& a, const Value& b, bool rest) {
  const int bits = width(e->type);
  const Interval divisors = kernel_.ranges.of(e->args[1]);
  const bool natural = !ir::is_signed(e->type) ||
                       ((kernel_.ranges.of(e->args[0]).lo >= 0 || code_.natural(a)) && divisors.lo >= 0);
  if (b.constant && *b.constant > 0) {
    const auto divisor = static_cast<uint64_t>(*b.constant);
    if (a.constant && *a.constant >= 0) return Code::integer(rest ? *a.constant % *b.constant : *a.constant / *b.constant, bits);
    if (natural && code_.bits_of(a).most < divisor) return rest ? a : Code::integer(0, bits);
    if (natural && std::has_single_bit(divisor)) {
      const ExprRef& dividend = e->args[0];
      if (!rest && divisor == kGroupThreads && warp_group_ && dividend->kind == ExprKind::kVar &&
          dividend->var == kernel_.thread)
        return *warp_group_;
      return rest ? code_.bits("and", a, Code::integer(*b.constant - 1, bits))
                  : code_.shift(a, Code::integer(std::countr_zero(divisor), 32), false, false);
    }
  }
  const std::string name = fmt::format("{}.{}{}", rest ? "rem" : "div", natural ? 'u' : 's', bits);
  Value made = code_.pure(a.kind, name.c_str(), {a, b});
  if (divisors.lo >= 1 || (b.constant && *b.constant > 0)) return made;
  const Value zero = Code::integer(0, bits);
  if (!natural) {
    const Value back = code_.compare("eq", bits == 64 ? "s64" : "s32", b, Code::integer(-1, bits));
    made = code_.select(back, rest ? zero : code_.sub(zero, a), made);
  }
  return code_.select(code_.compare("eq", bits == 64 ? "s64" : "s32", b, zero), zero, made);
}

Value Expressions::rounded_up(const ExprRef& e, const Value& a, const Value& b) {
  const int bits = width(e->type);
  const char* type = number_type(e->type);
  const Value whole = quotient(e, a, b, false), rest = quotient(e, a, b, true), zero = Code::integer(0, bits);
  const Value more = kernel_.ranges.of(e->args[1]).lo >= 1 || !ir::is_signed(e->type)
                         ? code_.compare("gt", type, rest, zero)
                         : code_.both(code_.compare("ne", type, rest, zero),
                                      code_.compare("ge", type, code_.bits("xor", rest, b), zero));
  return code_.add(whole, code_.select(more, Code::integer(1, bits), zero));
}

}  // namespace kachel::lowering::ptx
