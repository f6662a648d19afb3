// Regions that make 16-bit floats of integers of few bits, two an instruction: w[i, j] = (T(q[i, j]) - zero) * scale.
// What is chosen is here, what becomes of it in lower_packed_store.cc.
//
// The language computes in f32 and rounds what is stored. A packed instruction rounds each of its results to T. The two
// agree where every operation but the last gives numbers that T has, as small integers are, and the last one, of two
// numbers of T, is rounded once either way: their product is exact in f32; their sum, if it is not, is so far from any
// tie of T that rounding it twice changes nothing. See tile_lowering.h.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <numeric>
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
constexpr int64_t kMostFields = 8;      // neighbours that are worked on together, where no load says how many

bool holds(DType type, const Interval& range) {
  return range.lo >= -integers_of(type) && range.hi <= integers_of(type);
}
// Of what is unpacked; all: no integers.
Interval range_of(DType unpacked) {
  if (ir::is_float(unpacked)) return {};
  const int64_t count = int64_t{1} << ir::bits(unpacked);
  return ir::is_signed(unpacked) ? Interval{-count / 2, count / 2 - 1} : Interval{0, count - 1};
}

bool is_of_type(DType type, const Interval& range) {
  if (ir::bits(type) > 32) return true;
  const int64_t count = int64_t{1} << ir::bits(type), least = ir::is_signed(type) ? -count / 2 : 0;
  return range.lo >= least && range.hi < least + count;
}

// Integers of so many bits, with a sign or not, are between those of the range.
int bits_of(const Interval& range) {
  const auto bits = [](int64_t value) { return static_cast<int>(std::bit_width(static_cast<uint64_t>(value))); };
  return range.lo < 0 ? 1 + std::max(bits(~range.lo), bits(std::max<int64_t>(range.hi, 0)))
                      : std::max(bits(range.hi), 1);
}
// LoopIntrinsic::kUnpack
int most_bits_of(DType type) {
  return type == DType::F16 ? 10 : 7;
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
             const RegionIndexes& indexes, DType type, int64_t most)
      : lowering_(lowering), ranges_(lowering->out_.ranges), region_(region), indexes_(indexes), type_(type) {
    for (const RegionRead& read : reads) {
      if (read.value) reads_[read.value] = &read;
      loads_[read.load] = &read;
      for (const auto& [load, place] : read.window) loads_[load] = &read;
      width_ = std::max(width_, read.width);
    }
    if (reads_.empty()) width_ = std::max(width_, most);
    for (const ir::LetStmt& let : region.lets) lets_[let.var.get()] = &let;
  }
  int64_t width() const { return width_; }

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
    if (expr->kind == ExprKind::kLoad && ir::is_float(expr->type)) return number(expr);
    std::optional<PackedValue> result = computed(expr, rounded);
    return result || ir::is_float(expr->type) ? result : field(expr);
  }
  // Names that what value() has found needs: of the first of neighbours; and of each of them.
  std::vector<const ir::LetStmt*> alike() const { return in_order(needed_); }
  std::vector<const ir::LetStmt*> own() const { return in_order(own_); }

  // The largest parts of what value() has found that follow the last axis alone: what a column has one of (a scale, a
  // zero point) is made once for its rows. Nothing where that is all of it.
  void part_by_columns(PackedStore* store) {
    if (region_.iters.size() < 2 || is_of_column(store->value)) return;
    collect_columns(store->value, &store->in_front);
    for (const ir::LetStmt* let : store->own)
      if (is_of_column(let->value)) store->own_in_front.push_back(let);
  }

 private:
  bool is_last(size_t axis) const { return axis + 1 == region_.iters.size(); }
  bool is_of_column(const RegionRead& read) const {
    return !read.words && !read.axes.empty() &&
           std::all_of(read.axes.begin(), read.axes.end(), [this](size_t axis) { return is_last(axis); });
  }
  // Names that a read's indices have but its axes do not follow are not asked for.
  bool is_of_column(const ExprRef& expr) {
    if (expr->kind == ExprKind::kReduce) return false;
    if (const auto read = loads_.find(expr.get()); read != loads_.end()) return is_of_column(*read->second);
    if (const ir::LetStmt* let = let_of(*expr)) {
      if (const auto known = of_column_.find(let); known != of_column_.end()) return known->second;
      const bool found = is_of_column(let->value);
      of_column_.emplace(let, found);
      return found;
    }
    for (size_t axis = 0; expr->kind == ExprKind::kVar && axis < region_.iters.size(); ++axis)
      if (region_.iters[axis].var == expr->var) return is_last(axis);
    return std::all_of(expr->args.begin(), expr->args.end(), [this](const ExprRef& arg) { return is_of_column(arg); });
  }
  bool is_of_column(const PackedValue& value) {
    using Form = PackedValue::Form;
    switch (value.form) {
      case Form::kOne:
        return value.expr->kind == ExprKind::kInt || value.expr->kind == ExprKind::kFloat;
      case Form::kRead: {
        const RegionRead& read = *reads_.at(value.read);
        return !read.once && is_of_column(read);
      }
      case Form::kField:
      case Form::kNumber:
        return is_of_column(value.expr);
      case Form::kApply:
        return std::all_of(value.args.begin(), value.args.end(),
                           [this](const PackedValue& arg) { return is_of_column(arg); });
    }
    return false;
  }
  void collect_columns(const PackedValue& value, std::vector<const PackedValue*>* parts) {
    if (value.form == PackedValue::Form::kOne) return;
    if (is_of_column(value)) return parts->push_back(&value);
    for (const PackedValue& arg : value.args) collect_columns(arg, parts);
  }

  std::optional<PackedValue> computed(const ExprRef& expr, bool rounded) {
    using Form = PackedValue::Form;
    if (expr->kind == ExprKind::kCast && expr->cast_type.dtype == DType::I32 && !ir::is_float(expr->args[0]->type)) {
      std::optional<PackedValue> integer = value(expr->args[0], false);
      return integer && is_of_type(DType::I32, integer->range) ? integer : std::nullopt;
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
    if (integers && !is_of_type(expr->type, result.range)) return std::nullopt;
    return result;
  }
  // An integer of few bits, which each neighbour computes for itself, but for a mask: that is for pairs.
  std::optional<PackedValue> field(const ExprRef& expr) {
    if (expr->type == DType::Bool || ir::bits(expr->type) > 32) return std::nullopt;
    PackedValue result{PackedValue::Form::kField, expr, nullptr, {}, {}, ranges_.of(indexes_.inlined(expr))};
    result.bits = bits_of(result.range);
    result.is_signed = result.range.lo < 0;
    if (result.bits > most_bits_of(type_) || !is_of_type(expr->type, result.range)) return std::nullopt;
    const bool masks = expr->kind == ExprKind::kApply && expr->op == Op::kBitAnd &&
                       ir::is_int(expr->args[1], (int64_t{1} << result.bits) - 1);
    if (masks) result.expr = expr->args[0];
    need(expr, &own_);
    return result;
  }
  std::optional<PackedValue> number(const ExprRef& load) {
    if (!is_within(load->buffer->type.dtype, type_)) return std::nullopt;
    need(load, &own_);
    return PackedValue{PackedValue::Form::kNumber, load, nullptr, {}, {}, {}};
  }

  using Names = std::unordered_set<const ir::LetStmt*>;
  std::vector<const ir::LetStmt*> in_order(const Names& names) const {
    std::vector<const ir::LetStmt*> lets;
    for (const ir::LetStmt& let : region_.lets)
      if (names.count(&let)) lets.push_back(&let);
    return lets;
  }
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
    need(expr, &needed_);
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
  void need(const ExprRef& expr, Names* names) {
    ir::visit(expr, [&](const ExprRef& node) {
      const ir::LetStmt* let = let_of(*node);
      if (let && names->insert(let).second) need(let->value, names);
    });
  }

  TileLowering* lowering_;
  const Ranges& ranges_;
  const ir::ForwardedRegion& region_;
  const RegionIndexes& indexes_;
  const DType type_;
  int64_t width_ = 1;
  std::unordered_map<const ir::Expr*, const RegionRead*> reads_, loads_;  // by what the registers hold; by loads
  std::unordered_map<const ir::Var*, const ir::LetStmt*> lets_;
  Names needed_, own_;
  std::unordered_map<const ir::LetStmt*, bool> of_column_;  // what has been found of names, which may be used often
};

namespace {

// Whether it is made of integers of few bits.
bool has_integers(const PackedValue& value) {
  using Form = PackedValue::Form;
  return value.form == Form::kRead || value.form == Form::kField ||
         std::any_of(value.args.begin(), value.args.end(), has_integers);
}

}  // namespace

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
  const int64_t most = std::gcd(layout.vector(), kMostFields);
  PackedForm form(this, region, reads, indexes, tile->type.dtype, most);
  if (!own || form.width() == 1) return std::nullopt;
  std::optional<PackedValue> value = form.value(only.store.value, true);
  if (!value || !has_integers(*value)) return std::nullopt;
  PackedStore store{&only.store, std::move(*value), form.alike(), form.own(), form.width(), {}, {}};
  form.part_by_columns(&store);
  return store;
}

}  // namespace kachel::lowering
