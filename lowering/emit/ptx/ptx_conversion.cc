// Conversions between types, and quotients of integers.
#include <bit>

#include "lowering/emit/ptx/ptx_division.h"
#include "lowering/emit/ptx/ptx_expr.h"
#include "lowering/machine/machine.h"

namespace kachel::lowering::ptx {

using ir::DType;
using ir::ExprKind;
using ir::ExprRef;

// An integer that the type holds as it is, and a number that is added to it: 24 bits of f32 have room for all of them.
std::optional<Value> Expressions::integer_and_more(const ExprRef& e) {
  if ((e->op != ir::Op::kAdd && e->op != ir::Op::kSub) || e->type != DType::F32 ||
      e->args[1]->kind != ExprKind::kFloat || e->args[0]->kind != ExprKind::kCast ||
      e->args[0]->cast_type.dtype != DType::F32 || !ir::is_integer(e->args[0]->args[0]->type))
    return std::nullopt;
  const double more = e->args[1]->float_value;
  return code_.part_as_number(of(e->args[0]->args[0]), ir::is_signed(e->args[0]->args[0]->type),
                              e->op == ir::Op::kAdd ? more : -more);
}

Value Expressions::cast(const ExprRef& e) {
  const DType to = e->cast_type.dtype, from = e->args[0]->type;
  const Value value = of(e->args[0]);
  if (to == DType::Bool) {
    if (from == DType::Bool) return value;
    return code_.compare(ir::is_float(from) ? "neu" : "ne", number_type(from), value,
                         ir::is_float(from) ? Code::number(0) : Code::integer(0, width_of_type(from)));
  }
  if (ir::is_float(to)) {
    Value number = value;
    if (from == DType::Bool)
      number = code_.select(value, Code::number(1), Code::number(0));
    else if (const auto made =
                 ir::is_integer(from) ? code_.part_as_number(value, ir::is_signed(from), 0) : std::nullopt)
      number = *made;
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
    const int lo = ir::is_signed(to) ? -(1 << (bits - 1)) : 0,
              hi = ir::is_signed(to) ? (1 << (bits - 1)) - 1 : (1 << bits) - 1;
    const Value number = code_.pure(kind, "cvt.rzi.s32.f32", {value});
    return code_.pure(kind, "min.s32",
                      {code_.pure(kind, "max.s32", {number, Code::integer(lo, 32)}), Code::integer(hi, 32)});
  }
  if (from == DType::Bool) {
    const int bits = width_of_type(to);
    return code_.select(value, Code::integer(1, bits), Code::integer(0, bits));
  }
  if (ir::bits(to) == 64) return code_.widened(value, ir::is_signed(from));
  const Value narrow = code_.narrowed(value);
  if (ir::bits(to) == 32) return narrow;
  if (!ir::is_signed(to)) return code_.bits("and", narrow, Code::integer((1 << ir::bits(to)) - 1, 32));
  const Value up = Code::integer(32 - ir::bits(to), 32);
  return code_.shift(code_.shift(narrow, up, true, false), up, false, true);
}

// By zero gives 0, and the smallest number by -1 wraps.
Value Expressions::quotient(const ExprRef& e, const Value& a, const Value& b, bool rest) {
  const int bits = width_of_type(e->type);
  const Interval divisors = kernel_.ranges.of(e->args[1]);
  const bool natural =
      !ir::is_signed(e->type) || ((kernel_.ranges.of(e->args[0]).lo >= 0 || code_.natural(a)) && divisors.lo >= 0);
  if (b.constant && *b.constant > 0) {
    const auto divisor = static_cast<uint64_t>(*b.constant);
    if (a.constant && *a.constant >= 0)
      return Code::integer(rest ? *a.constant % *b.constant : *a.constant / *b.constant, bits);
    if (natural && code_.bits_of(a).most < divisor) return rest ? a : Code::integer(0, bits);
    if (natural && std::has_single_bit(divisor)) {
      const ExprRef& dividend = e->args[0];
      if (!rest && divisor == kGroupThreads && warp_group_ && dividend->kind == ExprKind::kVar &&
          dividend->var == kernel_.thread)
        return *warp_group_;
      return rest ? code_.bits("and", a, Code::integer(*b.constant - 1, bits))
                  : code_.shift(a, Code::integer(std::countr_zero(divisor), 32), false, false);
    }
    if (!natural && !rest && std::has_single_bit(divisor)) {  // ptxas calls a function for one of 64 bits
      const int places = std::countr_zero(divisor);
      Value dividend = a;
      if (places > 0 && kernel_.ranges.multiple_of(e->args[0]) % *b.constant != 0) {  // towards zero
        const Value sign = code_.shift(a, Code::integer(bits - 1, 32), false, true);
        dividend = code_.add(a, code_.shift(sign, Code::integer(bits - places, 32), false, false));
      }
      return code_.shift(dividend, Code::integer(places, 32), false, true);
    }
    const int64_t ends = kernel_.ranges.of(e->args[0]).hi;
    const uint64_t most = std::min(code_.bits_of(a).most, ends < 0 ? ~uint64_t{0} : static_cast<uint64_t>(ends));
    if (natural)
      if (const auto made = divided(&code_, a, most, divisor)) {
        if (!rest) return *made;
        // Not parted into a sum, whose base would be below 0.
        const Value left = code_.pure(a.kind, bits == 64 ? "sub.s64" : "sub.s32", {a, code_.mul(*made, b)});
        code_.at_most(left, divisor - 1);
        return left;
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
  const int bits = width_of_type(e->type);
  const char* type = number_type(e->type);
  const Value whole = quotient(e, a, b, false), rest = quotient(e, a, b, true), zero = Code::integer(0, bits);
  const Value more = kernel_.ranges.of(e->args[1]).lo >= 1 || !ir::is_signed(e->type)
                         ? code_.compare("gt", type, rest, zero)
                         : code_.both(code_.compare("ne", type, rest, zero),
                                      code_.compare("ge", type, code_.bits("xor", rest, b), zero));
  return code_.add(whole, code_.select(more, Code::integer(1, bits), zero));
}

}  // namespace kachel::lowering::ptx
