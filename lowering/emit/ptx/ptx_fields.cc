// Parts of words as numbers. A part below bit 23 that is put in place of a mantissa's bits is a float at once, without
// shifts and conversions, which have half of the rate of additions: with 0x4b000000 above its bits,
//
//   bits << first | 0x4b000000  is  2^23 + 2^first bits,  and  2^-first times that, less 2^(23 - first),  is  bits.
#include <cmath>

#include "lowering/emit/ptx/ptx_expr.h"

namespace kachel::lowering::ptx {
namespace {

constexpr int kMantissa = 23, kHalfWord = 16;
constexpr int64_t kOneAbove = 0x4b000000;  // 2^23 as a float
constexpr int64_t kMaskedAndFlipped = (0xf0 & 0xcc) ^ 0xaa;
constexpr int64_t kMostOffset = int64_t{1} << 22;

constexpr int64_t ones(int bits) {
  return (int64_t{1} << bits) - 1;
}

}  // namespace

void Code::note_field(const Value& made, const Field& field) {
  if (made.constant || made.kind != Class::kB32 || versions_.count(made.text)) return;
  const auto version = versions_.find(field.word.text);
  fields_.insert_or_assign(made.text, Part{field, version == versions_.end() ? -1 : version->second, epoch_});
}

std::optional<Code::Field> Code::field(const Value& value) const {
  if (value.constant || value.kind != Class::kB32) return std::nullopt;
  const Sum sum = split(value);
  const auto found = fields_.find(sum.base.text);
  if (found == fields_.end()) return std::nullopt;
  const auto& [field, version, epoch] = found->second;
  const auto now = versions_.find(field.word.text);
  if (now != versions_.end() && (now->second != version || epoch_ != epoch)) return std::nullopt;
  Field out = field;
  out.offset += sum.offset;
  if (std::abs(out.offset) > kMostOffset) return std::nullopt;
  return out;
}

void Code::note_shifted(const Value& made, const Value& from, int places) {
  const Field part = field(from).value_or(Field{from});
  if (part.offset == 0 && places < part.bits)
    note_field(made, {part.word, part.first + places, part.bits - places, part.flip >> places, 0});
}

void Code::note_masked(const Value& made, const Value& from, int bits) {
  const Field part = field(from).value_or(Field{from});
  if (part.offset == 0 && bits < 32)
    note_field(made, {part.word, part.first, std::min(part.bits, bits), part.flip & ones(bits), 0});
}

void Code::note_flipped(const Value& made, const Value& from, int64_t mask) {
  const std::optional<Field> part = field(from);
  if (part && part->offset == 0 && mask > 0 && mask >> part->bits == 0)
    note_field(made, {part->word, part->first, part->bits, part->flip ^ mask, 0});
}

std::optional<Value> Code::shifted_part(const Value& value, int places) {
  const std::optional<Field> part = field(value);
  if (!part || part->flip || part->offset || !versions_.count(part->word.text) || part->bits + places > 32)
    return std::nullopt;
  const int down = part->first - places;
  const Value moved = down == 0  ? part->word
                      : down > 0 ? pure(Class::kB32, "shr.u32", {part->word, integer(down, 32)})
                                 : pure(Class::kB32, "shl.b32", {part->word, integer(-down, 32)});
  return pure(Class::kB32, "and.b32", {moved, integer(ones(part->bits) << places, 32)});
}

std::optional<Value> Code::part_as_number(const Value& value, bool is_signed, double addend) {
  const std::optional<Field> part = field(value);
  if (part && part->offset < 0 && !is_signed) return std::nullopt;  // it may have wrapped
  if (!part || part->bits > kHalfWord || std::abs(addend) > kMostOffset || addend != std::floor(addend))
    return std::nullopt;
  // Of the upper half of the word, which others want too, or of the part alone.
  const bool in_half = part->first >= kHalfWord && part->first - kHalfWord + part->bits <= kMantissa;
  const int down = part->first + part->bits <= kMantissa ? 0 : in_half ? kHalfWord : part->first;
  const int first = part->first - down;
  const double less = static_cast<double>(part->offset) + addend - std::ldexp(1, kMantissa - first);
  const auto rest = static_cast<float>(less);
  if (static_cast<double>(rest) != less) return std::nullopt;
  const Value word = down ? pure(Class::kB32, "shr.u32", {part->word, integer(down, 32)}) : part->word;
  // (word & mask) ^ flip: as two instructions ptxas leaves it at two, with a literal each.
  const Value placed = pure(Class::kB32, "lop3.b32",
                            {word, integer(ones(part->bits) << first, 32), integer(kOneAbove | part->flip << first, 32),
                             integer(kMaskedAndFlipped, 32)});
  const Value number = pure(Class::kF32, "mov.b32", {placed});
  if (first == 0) return pure(Class::kF32, "add.f32", {number, Code::number(rest)});
  return pure(Class::kF32, "fma.rn.f32", {number, Code::number(std::ldexp(1.0f, -first)), Code::number(rest)});
}

}  // namespace kachel::lowering::ptx
