// What becomes of regions that make 16-bit floats of integers of few bits (lower_packed.cc): neighbours together, in
// registers. See tile_lowering.h.
#include <algorithm>

#include "lowering/lower/tile_lowering.h"
#include "lowering/planted.h"

namespace kachel::lowering {

using ir::DType;
using ir::ExprRef;
using ir::Op;
using Form = PackedValue::Form;
using Kind = LoopIntrinsic::Kind;

namespace {

// kUnpack puts integers into the mantissa of a power of two, from which it takes what is to be subtracted; of 8 bits,
// for which bf16 has no room beside another bit, it subtracts what is left of 128.
bool can_be_taken(DType type, const Interval& range, DType unpacked, int bits) {
  if (ir::is_float(unpacked)) return false;
  const int64_t integers = integers_of(type);
  const auto holds = [integers](int64_t value) { return value >= -integers && value <= integers; };
  const int64_t offset = ir::is_signed(unpacked) ? int64_t{1} << (bits - 1) : 0;
  const bool in_two = bits == 8 && type == DType::BF16;
  const int64_t power = in_two ? offset - 128 : integers / 2 + offset;
  return holds(range.lo) && holds(power + range.lo) && holds(power + std::max(range.hi, range.lo));
}

DType word_of(const PackedValue& field) {
  return field.is_signed ? DType::I32 : DType::U32;
}

}  // namespace

// Neighbours that are worked on together.
struct TileLowering::Neighbours {
  const Site& first;
  int64_t width;
  const std::vector<HeldRead>& held;
  std::vector<std::pair<const PackedValue*, ir::BufferRef>> own;  // what each has computed for itself

  const HeldRead& held_of(const PackedValue& value) const {
    return *std::find_if(held.begin(), held.end(), [&](const HeldRead& one) { return one.read->value == value.read; });
  }
  const ir::BufferRef& own_of(const PackedValue& value) const {
    return std::find_if(own.begin(), own.end(), [&](const auto& one) { return one.first == &value; })->second;
  }
};

void TileLowering::collect_own(const PackedValue& value, DType type, Neighbours* of) {
  if (packed_in_front_.count(&value)) return;
  if (value.form == Form::kField)
    of->own.emplace_back(&value, temporary("fields", word_of(value), ir::Scope::kRegister, of->width));
  if (value.form == Form::kNumber)
    of->own.emplace_back(&value, temporary("numbers", type, ir::Scope::kRegister, of->width));
  for (const PackedValue& arg : value.args) collect_own(arg, type, of);
}

void TileLowering::make_own(const std::vector<const ir::LetStmt*>& lets, Neighbours* of, const EnterNeighbour& enter) {
  for (int64_t number = 0; number < of->width && !of->own.empty(); ++number) {
    const Site each = enter(int32(number));
    for (const ir::LetStmt* let : lets) values_[let->var.get()] = this->let(let->var->name, scalar(let->value, &each));
    for (const auto& [value, registers] : of->own) {
      const ExprRef own = scalar(value->expr, &each);
      const bool is_word = value->form == Form::kField;
      store(registers, int32(number), is_word ? ir::make_cast({word_of(*value), nullptr}, own) : own, nullptr);
    }
  }
  for (const ir::LetStmt* let : lets) values_.erase(let->var.get());
}

TileLowering::PackedBody TileLowering::packed_body(const PackedStore& form) {
  PackedBody made;
  made.body = [this, &form](const Site& site, int64_t width, const auto& held, const EnterNeighbour& enter) {
    Neighbours neighbours{site, width, held, {}};
    store_packed(form, &neighbours, enter);
  };
  if (form.in_front.empty()) return made;
  made.in_front = [this, &form](const Site& site, int64_t width, const auto& held, const EnterNeighbour& enter) {
    const DType type = form.store->buffer->type.dtype;
    Neighbours neighbours{site, width, held, {}};
    packed_in_front_.clear();
    for (const PackedValue* part : form.in_front) collect_own(*part, type, &neighbours);
    make_own(form.own_in_front, &neighbours, enter);
    for (const PackedValue* part : form.in_front)
      packed_in_front_.emplace(part, packed(*part, type, neighbours, nullptr));
  };
  return made;
}

void TileLowering::store_packed(const PackedStore& form, Neighbours* neighbours, const EnterNeighbour& enter) {
  const Site& site = neighbours->first;
  for (const ir::LetStmt* let : form.alike) {
    const ExprRef value = scalar(let->value, &site);
    if (!ir::is_float(value->type)) out_.ranges.set(let->var, out_.ranges.of(value));
    emit({LoopLet{let->var, value}});
  }
  const ir::BufferRef& tile = form.store->buffer;
  collect_own(form.value, tile->type.dtype, neighbours);
  make_own(form.own, neighbours, enter);
  values_[form.store->indices.back()->var.get()] = site.coords.back();
  const PackedOperand to{storage(tile), offset(tile, site.coords, &site), neighbours->width};
  packed(form.value, tile->type.dtype, *neighbours, &to);
}

// Into `to`, if it is given.
PackedOperand TileLowering::packed(const PackedValue& value, DType type, const Neighbours& of,
                                   const PackedOperand* to) {
  if (const auto made = packed_in_front_.find(&value); made != packed_in_front_.end()) return made->second;
  if (value.form == Form::kNumber && !to) return {of.own_of(value), int32(0), of.width};
  if (value.form == Form::kOne) {
    const PackedOperand one{temporary("one", DType::F32, ir::Scope::kRegister, 1), int32(0), 1};
    store(one.registers, one.at, convert(let("alike", scalar(value.expr, &of.first)), DType::F32), nullptr);
    return one;
  }
  const PackedOperand result =
      to ? *to : PackedOperand{temporary("pairs", type, ir::Scope::kRegister, of.width), int32(0), of.width};
  const auto unpacked = [&](const PackedValue& integers, const PackedOperand* less) {
    if (integers.form == Form::kRead) return unpack(result, of.held_of(integers), less);
    unpack_fields(result, integers, of.own_of(integers), less);
  };
  if (value.form == Form::kRead || value.form == Form::kField) return unpacked(value, nullptr), result;
  const PackedValue &left = value.args[0], &right = value.args[1];
  if (value.op == Op::kSub && right.form == Form::kOne && !right.range.full() && !packed_in_front_.count(&left)) {
    const bool field = left.form == Form::kField;
    const DType source = field ? word_of(left) : left.form == Form::kRead ? of.held_of(left).read->unpacked : type;
    if (can_be_taken(type, right.range, source, field ? left.bits : ir::bits(source))) {
      const PackedOperand less = packed(right, type, of, nullptr);
      unpacked(left, planted(Planted::kNothingTaken) ? nullptr : &less);
      return result;
    }
  }
  LoopIntrinsic math{Kind::kPackedMath, {}, nullptr};
  math.type = type;
  math.op = value.op;
  math.operands = {{result.registers, result.at, of.width, true}};
  for (const PackedValue& arg : value.args) {
    const PackedOperand operand = packed(arg, type, of, nullptr);
    math.operands.push_back({operand.registers, operand.at, operand.elements, false});
  }
  emit({std::move(math)});
  return result;
}

void TileLowering::unpack_fields(const PackedOperand& to, const PackedValue& field, const ir::BufferRef& words,
                                 const PackedOperand* less) {
  for (int64_t first = 0; first < to.elements; first += kMostUnpacked) {
    const int64_t count = std::min(kMostUnpacked, to.elements - first);
    LoopIntrinsic numbers{Kind::kUnpack, {}, nullptr};
    numbers.type = to.registers->type.dtype;
    numbers.type_b = word_of(field);
    numbers.immediate = planted(Planted::kShortField) && field.bits > 1 ? field.bits - 1 : field.bits;
    numbers.operands = {{to.registers, plus(to.at, int32(first)), count, true}, {words, int32(first), count, false}};
    if (less) numbers.operands.push_back({less->registers, less->at, 1, false});
    emit({std::move(numbers)});
  }
}

}  // namespace kachel::lowering
