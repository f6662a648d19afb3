// Integers and predicates: constants are folded, sums keep their constant apart, and what is known of a result's bits
// takes the place of instructions.
#include <algorithm>
#include <bit>
#include <cstring>

#include "lowering/emit/ptx/ptx_code.h"

namespace kachel::lowering::ptx {
namespace {

int width(const Value& value) {
  return value.kind == Class::kB64 ? 64 : 32;
}
int64_t wrapped(int64_t value, int bits) {
  return bits == 64 ? value : static_cast<int32_t>(static_cast<uint32_t>(value));
}
int64_t plus(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}
int64_t times(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
}

Code::Bits sum_of(const Code::Bits& a, const Code::Bits& b, int size) {
  const uint64_t all = size == 64 ? ~uint64_t{0} : 0xffffffff;
  return {a.most <= all - b.most ? a.most + b.most : all, std::min(a.zeros, b.zeros)};
}
Code::Bits product_of(const Code::Bits& a, const Code::Bits& b, int size) {
  const uint64_t all = size == 64 ? ~uint64_t{0} : 0xffffffff;
  const bool fits = a.most == 0 || b.most <= all / a.most;
  return {fits ? a.most * b.most : all, std::min(a.zeros + b.zeros, size)};
}

// The least number of ones alone that is no smaller.
uint64_t all_ones(uint64_t most) {
  return std::bit_width(most) == 64 ? ~uint64_t{0} : std::bit_ceil(most + 1) - 1;
}
// Bits that may be set.
uint64_t mask_of(const Code::Bits& bits) {
  return bits.zeros < 64 ? all_ones(bits.most) & (~uint64_t{0} << bits.zeros) : 0;
}
uint64_t unsigned_of(int64_t value, int size) {
  return static_cast<uint64_t>(value) & (size == 64 ? ~uint64_t{0} : 0xffffffff);
}

Code::Bits either_of(const Code::Bits& a, const Code::Bits& b) {
  return {all_ones(a.most | b.most), std::min(a.zeros, b.zeros)};
}

template <class T>
bool holds(std::string_view op, T a, T b) {
  if (op == "eq") return a == b;
  if (op == "ne") return a != b;
  if (op == "lt") return a < b;
  if (op == "le") return a <= b;
  return op == "gt" ? a > b : a >= b;
}

}  // namespace

Code::Sum Code::split(const Value& value) const {
  if (value.constant) return {integer(0, width(value)), *value.constant};
  const auto sum = sums_.find(value.text);
  return sum == sums_.end() ? Sum{value, 0} : sum->second;
}

std::optional<Code::Flip> Code::flipped(const Value& value) const {
  const auto flip = flips_.find(value.text);
  return flip == flips_.end() ? std::nullopt : std::optional(flip->second);
}

Code::Bits Code::bits_of(const Value& value) const {
  const uint64_t all = width(value) == 64 ? ~uint64_t{0} : 0xffffffff;
  if (value.constant) {
    const uint64_t plain = static_cast<uint64_t>(*value.constant) & all;
    return {plain, plain ? std::countr_zero(plain) : width(value)};
  }
  const auto known = bits_.find(value.text);
  return known == bits_.end() ? Bits{all, 0} : Bits{std::min(known->second.most, all), known->second.zeros};
}

bool Code::natural(const Value& value) const {
  return bits_of(value).most <= (width(value) == 64 ? uint64_t{INT64_MAX} : uint64_t{INT32_MAX});
}

Value Code::noted(const Value& made, Bits bits) {
  if (!made.constant && !versions_.count(made.text)) bits_.insert_or_assign(made.text, bits);
  return made;
}

Value Code::add(const Value& a, const Value& b) {
  const int size = width(a);
  if (a.constant && b.constant) return integer(plus(*a.constant, *b.constant), size);
  if (a.constant) return add(b, a);
  const char* instruction = size == 64 ? "add.s64" : "add.s32";
  const Sum left = split(a), right = split(b);
  if (b.constant) {
    const int64_t offset = wrapped(plus(left.offset, *b.constant), size);
    if (offset == 0) return left.base;
    const Value made = pure(a.kind, instruction, {left.base, integer(offset, size)});
    noted(made, sum_of(bits_of(a), bits_of(b), size));
    if (!versions_.count(left.base.text)) sums_.insert_or_assign(made.text, Sum{left.base, offset});
    return made;
  }
  if (left.offset || right.offset)
    return add(add(left.base, right.base), integer(plus(left.offset, right.offset), size));
  // (x ^ mask) + y = (x + y) ^ mask, where y has zeros for the mask and below
  for (const auto& [flip, other] : {std::pair{flipped(a), b}, std::pair{flipped(b), a}})
    if (flip && static_cast<uint64_t>(flip->mask) >> std::min(bits_of(other).zeros, 63) == 0)
      return bits("xor", add(flip->base, other), integer(flip->mask, size));
  return noted(pure(a.kind, instruction, a.text < b.text ? std::vector{a, b} : std::vector{b, a}),
               sum_of(bits_of(a), bits_of(b), size));
}

Value Code::sub(const Value& a, const Value& b) {
  const int size = width(a);
  if (b.constant) return add(a, integer(times(*b.constant, -1), size));
  if (a.text == b.text) return integer(0, size);
  const Sum left = split(a), right = split(b);
  if (!a.constant && (left.offset || right.offset))
    return add(sub(left.base, right.base), integer(plus(left.offset, times(right.offset, -1)), size));
  return pure(a.kind, size == 64 ? "sub.s64" : "sub.s32", {a, b});
}

Value Code::mul(const Value& a, const Value& b) {
  const int size = width(a);
  if (a.constant && b.constant) return integer(times(*a.constant, *b.constant), size);
  if (a.constant) return mul(b, a);
  const char* instruction = size == 64 ? "mul.lo.s64" : "mul.lo.s32";
  if (!b.constant) return noted(pure(a.kind, instruction, {a, b}), product_of(bits_of(a), bits_of(b), size));
  if (b.is(0)) return b;
  if (b.is(1)) return a;
  const Sum sum = split(a);
  if (sum.offset) return add(mul(sum.base, b), integer(times(sum.offset, *b.constant), size));
  const auto factor = static_cast<uint64_t>(*b.constant);
  const Bits known = product_of(bits_of(a), bits_of(b), size);
  if (!std::has_single_bit(factor)) return noted(pure(a.kind, instruction, {a, b}), known);
  if (const std::optional<Value> placed = shifted_part(a, std::countr_zero(factor))) return noted(*placed, known);
  const Value shifts = integer(std::countr_zero(factor), 32);
  if (const auto flip = flipped(a); flip && known.most <= unsigned_of(-1, size) >> 1)
    return bits("xor", mul(flip->base, b), integer(times(flip->mask, *b.constant), size));
  return noted(pure(a.kind, size == 64 ? "shl.b64" : "shl.b32", {a, shifts}), known);
}

Value Code::bits(const char* op, const Value& a, const Value& b) {
  const int size = width(a);
  const bool is_and = !std::strcmp(op, "and"), is_or = !std::strcmp(op, "or");
  if (a.constant && b.constant) {
    const int64_t x = *a.constant, y = *b.constant;
    return integer(is_and ? x & y : is_or ? x | y : x ^ y, size);
  }
  if (a.constant) return bits(op, b, a);
  if (b.is(0)) return is_and ? b : a;
  if (b.is(-1) && is_and) return a;
  if (!is_and && !is_or) return exclusive(a, b);
  const Bits x = bits_of(a), y = bits_of(b);
  if (is_and && b.constant && std::has_single_bit(y.most + 1)) {  // modulo a power of two
    const int64_t offset = split(a).offset, within = offset & *b.constant;
    if (x.most <= y.most) return a;
    if (offset != within) return bits(op, add(split(a).base, integer(within, size)), b);
    if (bits_of(split(a).base).zeros >= std::countr_one(y.most)) return integer(within, size);
  }
  const Value made = pure(a.kind, fmt::format("{}.b{}", op, size).c_str(), {a, b});
  if (is_and && b.constant && std::has_single_bit(y.most + 1)) note_masked(made, a, std::countr_one(y.most));
  return noted(made, is_and ? Bits{std::min(x.most, y.most), std::max(x.zeros, y.zeros)} : either_of(x, y));
}

// (x + c) ^ y, where x has no bits of c, so that the sum is x | c: what c has outside of y is added to the result, and
// the rest of it exchanged behind the others.
Value Code::exclusive(const Value& a, const Value& b) {
  const int size = width(a);
  for (const auto& [sum, other] : {std::pair{split(a), b}, std::pair{split(b), a}}) {
    const uint64_t offset = unsigned_of(sum.offset, size), within = offset & mask_of(bits_of(other));
    if (sum.offset <= 0 || sum.base.constant || other.constant || offset & mask_of(bits_of(sum.base))) continue;
    const Value rest = exclusive(sum.base, other);
    const Value changed = within ? exclusive(rest, integer(static_cast<int64_t>(within), size)) : rest;
    return add(changed, integer(static_cast<int64_t>(offset - within), size));
  }
  if (const auto flip = flipped(a); flip && b.constant) {
    const int64_t mask = flip->mask ^ *b.constant;
    return mask ? exclusive(flip->base, integer(mask, size)) : flip->base;
  }
  const Value made = noted(pure(a.kind, size == 64 ? "xor.b64" : "xor.b32", {a, b}), either_of(bits_of(a), bits_of(b)));
  if (b.constant) note_flipped(made, a, *b.constant);
  if (b.constant && *b.constant > 0 && !versions_.count(a.text))
    flips_.insert_or_assign(made.text, Flip{a, *b.constant});
  return made;
}

// base + offset >> n as (result's base >> n) + result's offset, where that says more of it: what of the offset is below
// 2^n stays with the base unless that has zeros there, to which it adds nothing that is carried.
std::optional<Code::Sum> Code::shifted_sum(const Sum& sum, int n, int size) {
  const Bits base = bits_of(sum.base);
  const uint64_t limit = size == 64 ? INT64_MAX : INT32_MAX, unit = uint64_t{1} << n;
  const auto offset = static_cast<uint64_t>(sum.offset);
  if (sum.offset <= 0 || offset > limit || base.most > limit - offset) return std::nullopt;
  uint64_t low = offset % unit;
  if (low < uint64_t{1} << std::min(base.zeros, n)) low = 0;
  if (low == offset) return std::nullopt;
  return Sum{add(sum.base, integer(static_cast<int64_t>(low), size)), static_cast<int64_t>(offset >> n)};
}

Value Code::shift(const Value& a, const Value& amount, bool left, bool is_signed) {
  const int size = width(a);
  // Amounts count as 64-bit numbers without a sign; the instruction's do as 32-bit ones, and saturate.
  Value by = amount;
  if (by.constant && static_cast<uint64_t>(*by.constant) >= static_cast<uint64_t>(size)) {
    // ptxas 13.0 takes one of a 64-bit number modulo 64.
    if (left || !is_signed) return integer(0, size);
    by = integer(size - 1, 32);
  }
  if (by.kind == Class::kB64) by = narrowed(by.constant ? by : pure(Class::kB64, "min.u64", {by, integer(64, 64)}));
  if (by.constant) {
    const int64_t n = *by.constant;
    if (n == 0) return a;
    if (left) return mul(a, integer(static_cast<int64_t>(uint64_t{1} << n), size));
    if (a.constant) {
      const uint64_t plain = size == 64 ? static_cast<uint64_t>(*a.constant) : static_cast<uint32_t>(*a.constant);
      return integer(is_signed ? *a.constant >> n : static_cast<int64_t>(plain >> n), size);
    }
    const Bits known = bits_of(a);
    const bool unsigned_too = !is_signed || natural(a);
    if (unsigned_too && known.most >> n == 0) return integer(0, size);
    if (const std::optional<Sum> parts = unsigned_too ? shifted_sum(split(a), static_cast<int>(n), size) : std::nullopt)
      return add(shift(parts->base, by, false, false), integer(parts->offset, size));
    const Value made = pure(a.kind, fmt::format("shr.{}{}", unsigned_too ? 'u' : 's', size).c_str(), {a, by});
    if (unsigned_too) note_shifted(made, a, static_cast<int>(n));
    return noted(made, unsigned_too ? Bits{known.most >> n, std::max(known.zeros - static_cast<int>(n), 0)} : Bits{});
  }
  return pure(a.kind, fmt::format("{}{}", left ? "shl.b" : is_signed ? "shr.s" : "shr.u", size).c_str(), {a, by});
}

Value Code::widened(const Value& a, bool is_signed) {
  if (a.kind == Class::kB64) return a;
  if (a.constant) return integer(is_signed ? *a.constant : static_cast<uint32_t>(*a.constant), 64);
  const Bits known = bits_of(a);
  const bool unsigned_too = !is_signed || natural(a);
  const Value made = pure(Class::kB64, unsigned_too ? "cvt.u64.u32" : "cvt.s64.s32", {a});
  noted(made, unsigned_too ? known : Bits{~uint64_t{0}, known.zeros});
  if (!versions_.count(a.text)) narrow_.insert_or_assign(made.text, a);
  return made;
}

Value Code::narrowed(const Value& a) {
  if (a.kind != Class::kB64) return a;
  if (a.constant) return integer(*a.constant, 32);
  const Sum sum = split(a);
  if (sum.offset) return add(narrowed(sum.base), integer(sum.offset, 32));
  const auto known = narrow_.find(a.text);
  return known != narrow_.end() ? known->second : noted(pure(Class::kB32, "cvt.u32.u64", {a}), bits_of(a));
}

Value Code::both(const Value& a, const Value& b) {
  if (a.constant) return a.is(0) ? a : b;
  if (b.constant) return b.is(0) ? b : a;
  return a.text == b.text ? a : pure(Class::kPred, "and.pred", {a, b});
}

Value Code::either(const Value& a, const Value& b) {
  if (a.constant) return a.is(0) ? b : a;
  if (b.constant) return b.is(0) ? a : b;
  return a.text == b.text ? a : pure(Class::kPred, "or.pred", {a, b});
}

Value Code::opposite(const Value& a) {
  return a.constant ? truth(a.is(0)) : pure(Class::kPred, "not.pred", {a});
}

Value Code::compare(const char* op, const char* type, const Value& a, const Value& b) {
  if (a.constant && b.constant) {
    const bool is_signed = type[0] == 's' || type[0] == 'b';
    const int64_t mask = width(a) == 64 ? -1 : int64_t{0xffffffff};
    return truth(is_signed
                     ? holds(op, *a.constant, *b.constant)
                     : holds(op, static_cast<uint64_t>(*a.constant & mask), static_cast<uint64_t>(*b.constant & mask)));
  }
  // ptxas 13.0 takes an order that all numbers of an operand's range have for true of NaN, too: |x| >= 0. It does not
  // take the opposite of it for false.
  constexpr std::pair<std::string_view, const char*> kOpposites[] = {
      {"lt", "setp.geu.f32"}, {"le", "setp.gtu.f32"}, {"gt", "setp.leu.f32"}, {"ge", "setp.ltu.f32"}};
  if (type == std::string_view("f32"))
    for (const auto& [order, fails] : kOpposites)
      if (op == order) return opposite(pure(Class::kPred, fails, {a, b}));
  return pure(Class::kPred, fmt::format("setp.{}.{}", op, type).c_str(), {a, b});
}

// ptxas 13.0 takes the result of its instruction for positive; that of the least number is not.
Value Code::magnitude(const Value& a) {
  const Value sign = shift(a, integer(width(a) - 1, 32), false, true);
  return sign.is(0) ? a : sub(bits("xor", a, sign), sign);
}

// ptxas 13.0 makes one VIMNMX3 of two signed extrema of registers (sm_90), and loses the sign of what is negated there.
Value Code::extremum(bool minimum, const char* type, const Value& a, const Value& b) {
  const bool is_signed = type[0] == 's';
  if (a.constant && b.constant && is_signed) return (*a.constant < *b.constant) == minimum ? a : b;
  const std::string name = minimum ? "min." : "max.";
  if (type != std::string_view("s32") || a.constant || b.constant) return pure(a.kind, (name + type).c_str(), {a, b});
  if (natural(a) && natural(b)) return pure(a.kind, (name + "u32").c_str(), {a, b});
  return select(compare(minimum ? "lt" : "gt", type, a, b), a, b);
}

Value Code::select(const Value& condition, const Value& yes, const Value& no) {
  if (condition.constant) return condition.is(0) ? no : yes;
  if (yes.text == no.text) return yes;
  const auto guard = guards_.find(yes.text);
  const bool is_zero = no.is(0) || (no.kind == Class::kF32 && no.text == number(0).text);
  if (guard != guards_.end() && guard->second.guard == condition.text &&
      (guard->second.rest.empty() ? is_zero : guard->second.rest == no.text))
    return yes;
  if (yes.kind == Class::kPred) return either(both(condition, yes), both(opposite(condition), no));
  const Value made = pure(yes.kind,
                          yes.kind == Class::kF32   ? "selp.f32"
                          : yes.kind == Class::kB64 ? "selp.b64"
                          : yes.kind == Class::kB16 ? "selp.b16"
                                                    : "selp.b32",
                          {yes, no, condition});
  if (yes.kind != Class::kB32 && yes.kind != Class::kB64) return made;
  const Bits a = bits_of(yes), b = bits_of(no);
  return noted(made, {std::max(a.most, b.most), std::min(a.zeros, b.zeros)});
}

}  // namespace kachel::lowering::ptx
