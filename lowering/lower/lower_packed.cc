// Regions that make 16-bit floats of 4 or 8 bits, two an instruction: w[i, j] = (T(q[i, j]) - zero) * scale.
//
// The language computes in f32 and rounds what is stored. A packed instruction rounds each of its results to T. The two
// agree where every operation but the last gives numbers that T has, as small integers are, and the last one, of two
// numbers of T, is rounded once either way: their product is exact in f32; their sum, if it is not, is so far from any
// tie of T that rounding it twice changes nothing. See tile_lowering.h.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <unordered_set>

#include "ir/numerics.h"
#include "ir/parallel.h"
#include "lowering/loop_ir/region_index.h"
#include "lowering/lower/nibble_table.h"
#include "lowering/lower/tile_lowering.h"
#include "lowering/planted.h"

namespace kachel::lowering {

using ir::DType;
using ir::ExprKind;
using ir::ExprRef;
using ir::Op;
using Kind = LoopIntrinsic::Kind;

namespace {

constexpr int kLeastArchitecture = 80;  // has fma of pairs of bf16

// Up to here all integers are numbers of the type.
int64_t integers_of(DType type) {
  return type == DType::F16 ? 1 << 11 : 1 << 8;
}
bool holds(DType type, const Interval& range) {
  return range.lo >= -integers_of(type) && range.hi <= integers_of(type);
}
// kUnpack puts integers into the mantissa of this number, from which it takes what is to be subtracted; of 8 bits, for
// which bf16 has no room beside another bit, it subtracts what is left of 128.
bool can_be_taken(DType type, const Interval& range, DType unpacked) {
  if (ir::is_float(unpacked)) return false;
  const int64_t offset = ir::is_signed(unpacked) ? int64_t{1} << (ir::bits(unpacked) - 1) : 0;
  const bool in_two = ir::bits(unpacked) == 8 && type == DType::BF16;
  const int64_t power = in_two ? offset - 128 : integers_of(type) / 2 + offset;
  return holds(type, {range.lo, range.lo}) && holds(type, {power + range.lo, power + std::max(range.hi, range.lo)});
}
// Of what is unpacked; all: no integers.
Interval range_of(DType unpacked) {
  if (ir::is_float(unpacked)) return {};
  const int64_t count = int64_t{1} << ir::bits(unpacked);
  return ir::is_signed(unpacked) ? Interval{-count / 2, count / 2 - 1} : Interval{0, count - 1};
}

// The largest power of two of f16; bf16 has all that f32 has. And the smallest one.
constexpr int64_t kMostPowerOfHalf = 15;
int64_t least_power_of(DType type) {
  return type == DType::BF16 ? -133 : -24;
}

// All that there is of a narrow type.
bool is_within(DType narrow, DType type) {
  return narrow == type || narrow == DType::F8E4M3 || narrow == DType::F8E5M2;
}

}  // namespace

class TileLowering::PackedForm {
 public:
  PackedForm(TileLowering* lowering, const ir::ForwardedRegion& region, const std::vector<RegionRead>& reads,
             const RegionIndexes& indexes, DType type)
      : lowering_(lowering), ranges_(lowering->out_.ranges), region_(region), indexes_(indexes), type_(type) {
    for (const RegionRead& read : reads) {
      if (read.value) reads_[read.value] = &read;
      width_ = std::max(width_, read.width);
    }
    for (const ir::LetStmt& let : region.lets) lets_[let.var.get()] = &let;
  }
  bool reads() const { return !reads_.empty(); }

  // `rounded`: the value is rounded to the type next. Else it is one of its numbers.
  std::optional<PackedValue> value(const ExprRef& expr, bool rounded) {
    using Form = PackedValue::Form;
    if (const auto read = reads_.find(expr.get()); read != reads_.end()) {
      const std::vector<double>& table = read->second->table;
      if (!table.empty() && !are_numbers(type_, table)) return std::nullopt;
      if (!table.empty()) return PackedValue{Form::kRead, nullptr, expr.get(), {}, {}, {}};
      return PackedValue{Form::kRead, nullptr, expr.get(), {}, {}, range_of(read->second->unpacked)};
    }
    if (is_alike(indexes_.inlined(expr))) return one(expr);
    if (const ir::LetStmt* let = let_of(*expr)) return value(let->value, rounded);
    if (expr->kind == ExprKind::kCast && expr->cast_type.dtype == DType::I32 && !ir::is_float(expr->args[0]->type)) {
      std::optional<PackedValue> integer = value(expr->args[0], false);
      return integer && integer->range.lo >= INT32_MIN && integer->range.hi <= INT32_MAX ? integer : std::nullopt;
    }
    if (expr->kind == ExprKind::kCast && ir::is_float(expr->cast_type.dtype)) {
      const DType to = expr->cast_type.dtype;
      if (to != DType::F32 && to != type_) return std::nullopt;
      if (!ir::is_float(expr->args[0]->type)) return value(expr->args[0], false);
      return value(expr->args[0], rounded || to == type_);
    }
    if (expr->kind != ExprKind::kApply || expr->type == DType::Bool) return std::nullopt;
    if (expr->op != Op::kAdd && expr->op != Op::kSub && expr->op != Op::kMul) return std::nullopt;
    PackedValue result{Form::kApply, nullptr, nullptr, expr->op, {}, {}};
    for (const ExprRef& arg : expr->args) {
      std::optional<PackedValue> operand = value(arg, false);
      if (!operand) return std::nullopt;
      result.args.push_back(std::move(*operand));
    }
    const Interval &a = result.args[0].range, &b = result.args[1].range;
    if (!a.full() && !b.full()) {
      // As the integers that they are.
      Ranges integers;
      const ir::VarRef left = make_local("a", DType::I64), right = make_local("b", DType::I64);
      integers.set(left, a), integers.set(right, b);
      result.range = integers.of(ir::make_typed(expr->op, {ir::make_var(left), ir::make_var(right)}));
    }
    const bool integers = !ir::is_float(expr->type);
    if ((!rounded || integers) && !holds(type_, result.range)) return std::nullopt;
    return result;
  }
  std::vector<const ir::LetStmt*> alike() const {
    std::vector<const ir::LetStmt*> lets;
    for (const ir::LetStmt& let : region_.lets)
      if (needed_.count(&let)) lets.push_back(&let);
    return lets;
  }

 private:
  const ir::LetStmt* let_of(const ir::Expr& expr) const {
    const auto it = expr.kind == ExprKind::kVar ? lets_.find(expr.var.get()) : lets_.end();
    return it == lets_.end() ? nullptr : it->second;
  }

  // Whether neighbours, of whom the first has a multiple of their number, agree in a value without names of the region.
  bool is_alike(const ExprRef& expr) {
    if (expr->kind == ExprKind::kVar) return !indexes_.follows(expr, region_.iters.back().var);
    if (expr->kind == ExprKind::kReduce) return false;
    if (expr->kind == ExprKind::kApply && expr->op == Op::kDiv && expr->args[1]->kind == ExprKind::kInt &&
        expr->args[1]->int_value > 0 && expr->args[1]->int_value % width_ == 0) {
      const std::optional<RegionIndex> at = indexes_.split(expr->args[0]);
      const bool follows = at && at->axis + 1 == region_.iters.size();
      const ExprRef base = follows && at->base ? lowering_->scalar(at->base, nullptr) : int64(0);
      if (follows && ranges_.proves_nonnegative(base) && ranges_.multiple_of(base) % width_ == 0) return true;
    }
    return std::all_of(expr->args.begin(), expr->args.end(), [this](const ExprRef& arg) { return is_alike(arg); });
  }

  std::optional<PackedValue> one(const ExprRef& expr) {
    PackedValue result{PackedValue::Form::kOne, expr, nullptr, {}, {}, {}};
    const ir::Expr* source = expr.get();
    while (const ir::LetStmt* let = let_of(*source)) source = let->value.get();
    bool is_number = false;
    if (source->kind == ExprKind::kLoad && ir::is_float(source->type)) {
      is_number = is_within(source->buffer->type.dtype, type_);
    } else if (source->kind == ExprKind::kFloat) {
      const double value = source->float_value;
      is_number = ir::decode_float(type_, ir::encode_float(type_, value)) == value;
      if (is_number && value == static_cast<double>(static_cast<int64_t>(value)))
        result.range = {static_cast<int64_t>(value), static_cast<int64_t>(value)};
    } else if (source->kind == ExprKind::kCast && ir::is_float(source->args[0]->type)) {
      is_number = is_within(source->cast_type.dtype, type_);
    } else if (source->kind == ExprKind::kApply && source->op == Op::kExp2) {
      const std::optional<Interval> power = whole(source->args[0]);
      is_number =
          power && power->lo >= least_power_of(type_) && (type_ == DType::BF16 || power->hi <= kMostPowerOfHalf);
    }
    const bool converted = source->kind == ExprKind::kCast && ir::is_float(source->cast_type.dtype);
    const ExprRef integer = converted ? source->args[0] : expr;
    if (!is_number && !ir::is_float(integer->type) && integer->type != DType::Bool) {
      result.range = ranges_.of(indexes_.inlined(integer));
      is_number = holds(type_, result.range);
    }
    if (!is_number) return std::nullopt;
    need(expr);
    return result;
  }
  // Between which integers it lies, if it is one: of f32, made of integers that f32 has.
  std::optional<Interval> whole(const ExprRef& expr) {
    constexpr int64_t kMost = 1 << 24;
    std::optional<Interval> range;
    if (const ir::LetStmt* let = let_of(*expr)) return whole(let->value);
    if (expr->kind == ExprKind::kFloat && expr->float_value == std::trunc(expr->float_value) &&
        std::abs(expr->float_value) <= kMost)
      range = Interval{static_cast<int64_t>(expr->float_value), static_cast<int64_t>(expr->float_value)};
    if (expr->kind == ExprKind::kCast && expr->cast_type.dtype == DType::F32 && !ir::is_float(expr->args[0]->type))
      range = ranges_.of(indexes_.inlined(expr->args[0]));
    if (expr->kind == ExprKind::kApply && (expr->op == Op::kAdd || expr->op == Op::kSub)) {
      const std::optional<Interval> a = whole(expr->args[0]), b = whole(expr->args[1]);
      if (a && b && expr->op == Op::kAdd) range = Interval{a->lo + b->lo, a->hi + b->hi};
      if (a && b && expr->op == Op::kSub) range = Interval{a->lo - b->hi, a->hi - b->lo};
    }
    return range && range->lo >= -kMost && range->hi <= kMost ? range : std::nullopt;
  }
  void need(const ExprRef& expr) {
    ir::visit(expr, [this](const ExprRef& node) {
      const ir::LetStmt* let = let_of(*node);
      if (let && needed_.insert(let).second) need(let->value);
    });
  }

  TileLowering* lowering_;
  const Ranges& ranges_;
  const ir::ForwardedRegion& region_;
  const RegionIndexes& indexes_;
  const DType type_;
  int64_t width_ = 1;
  std::unordered_map<const ir::Expr*, const RegionRead*> reads_;
  std::unordered_map<const ir::Var*, const ir::LetStmt*> lets_;
  std::unordered_set<const ir::LetStmt*> needed_;
};

std::optional<PackedStore> TileLowering::packed_store(const ir::ForwardedRegion& region,
                                                      const std::vector<RegionRead>& reads,
                                                      const RegionIndexes& indexes, const FragmentLayout& layout) {
  if (on_cpu() || target_.architecture < kLeastArchitecture || region.stores.size() != 1) return std::nullopt;
  const ir::GuardedStore& only = region.stores[0];
  const ir::BufferRef& tile = only.store.buffer;
  if (only.guard || only.store.atomic != ir::AtomicOp::kNone || !is_half(tile->type.dtype) || !in_registers(tile))
    return std::nullopt;
  bool own = only.store.indices.size() == region.iters.size() && !layout.ragged(region.iters.size() - 1);
  for (size_t axis = 0; own && axis < region.iters.size(); ++axis) {
    const ExprRef& at = only.store.indices[axis];
    own = at->kind == ExprKind::kVar && at->var == region.iters[axis].var;
  }
  PackedForm form(this, region, reads, indexes, tile->type.dtype);
  if (!own || !form.reads()) return std::nullopt;
  std::optional<PackedValue> value = form.value(only.store.value, true);
  if (!value || value->form == PackedValue::Form::kOne) return std::nullopt;
  return PackedStore{&only.store, std::move(*value), form.alike()};
}

void TileLowering::store_packed(const PackedStore& form, const Site& site, int64_t width,
                                const std::vector<HeldRead>& held) {
  for (const ir::LetStmt* let : form.alike) {
    const ExprRef value = scalar(let->value, &site);
    if (!ir::is_float(value->type)) out_.ranges.set(let->var, out_.ranges.of(value));
    emit({LoopLet{let->var, value}});
  }
  const ir::BufferRef& tile = form.store->buffer;
  const PackedOperand to{storage(tile), offset(tile, site.coords, &site), width};
  packed(form.value, tile->type.dtype, site, width, held, &to);
}

// Into `to`, if it is given.
PackedOperand TileLowering::packed(const PackedValue& value, DType type, const Site& site, int64_t width,
                                   const std::vector<HeldRead>& held, const PackedOperand* to) {
  if (value.form == PackedValue::Form::kOne) {
    const PackedOperand one{temporary("one", DType::F32, ir::Scope::kRegister, 1), int32(0), 1};
    store(one.registers, one.at, convert(let("alike", scalar(value.expr, &site)), DType::F32), nullptr);
    return one;
  }
  const PackedOperand result =
      to ? *to : PackedOperand{temporary("pairs", type, ir::Scope::kRegister, width), int32(0), width};
  const auto held_of = [&](const PackedValue& read) -> const HeldRead& {
    return *std::find_if(held.begin(), held.end(), [&](const HeldRead& one) { return one.read->value == read.read; });
  };
  if (value.form == PackedValue::Form::kRead) {
    unpack(result, held_of(value), nullptr);
    return result;
  }
  const PackedValue &left = value.args[0], &right = value.args[1];
  if (value.op == Op::kSub && left.form == PackedValue::Form::kRead && right.form == PackedValue::Form::kOne &&
      !right.range.full() && can_be_taken(type, right.range, held_of(left).read->unpacked)) {
    const PackedOperand less = packed(right, type, site, width, held, nullptr);
    unpack(result, held_of(left), planted(Planted::kNothingTaken) ? nullptr : &less);
    return result;
  }
  LoopIntrinsic math{Kind::kPackedMath, {}, nullptr};
  math.type = type;
  math.op = value.op;
  math.operands = {{result.registers, result.at, width, true}};
  for (const PackedValue& arg : value.args) {
    const PackedOperand operand = packed(arg, type, site, width, held, nullptr);
    math.operands.push_back({operand.registers, operand.at, operand.elements, false});
  }
  emit({std::move(math)});
  return result;
}

}  // namespace kachel::lowering
