#include "lowering/tile_ir/woven_value.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "ir/visit.h"

namespace kachel::lowering {
namespace {

using ir::DType;
using ir::ExprKind;
using ir::ExprRef;
using ir::Op;

ExprRef integer(int64_t value, DType type = DType::I64) {
  return ir::make_int(value, type);
}
bool is_op(const ir::Expr& expr, Op op) {
  return expr.kind == ExprKind::kApply && expr.op == op;
}

// Bits that are taken out of a word.
struct Field {
  ExprRef word;
  int64_t shift, mask;
};
std::optional<Field> field_of(const ExprRef& expr) {
  constexpr int64_t kMostShift = 31;
  Field field{expr, 0, -1};
  if (is_op(*expr, Op::kBitAnd) && expr->args[1]->kind == ExprKind::kInt)
    field.word = expr->args[0], field.mask = expr->args[1]->int_value;
  if (is_op(*field.word, Op::kShr) && field.word->args[1]->kind == ExprKind::kInt) {
    field.shift = field.word->args[1]->int_value;
    field.word = field.word->args[0];
  }
  if (field.shift < 0 || field.shift > kMostShift) return std::nullopt;
  if (field.mask < 0) {  // what is left of a word without a sign
    const bool load = field.word->kind == ExprKind::kLoad && !ir::is_signed(field.word->buffer->type.dtype);
    const int bits = load ? ir::bits(field.word->buffer->type.dtype) : 64;
    if (bits > 32 || field.shift >= bits) return std::nullopt;
    field.mask = (int64_t{1} << (bits - field.shift)) - 1;
  }
  return field;
}

// One expression for all parts of a weave.
class Merger {
 public:
  Merger(const Weave& weave, const RegionIndexes& indexes, const Ranges& ranges)
      : weave_(weave), indexes_(indexes), ranges_(ranges) {}

  // Null: there is none.
  ExprRef value(const std::vector<ExprRef>& parts) const {
    const ExprRef merged = one(parts);
    if (!merged) return nullptr;
    return ir::rewrite(merged, [&](const ExprRef& node) {
      return node->kind == ExprKind::kVar && node->var == weave_.from.var ? weave_.old() : node;
    });
  }

 private:
  ExprRef one(const std::vector<ExprRef>& parts) const {
    const ExprRef& first = parts[0];
    const auto all = [&](const auto& fn) { return std::all_of(parts.begin(), parts.end(), fn); };
    if (!all([&](const ExprRef& part) { return part->type == first->type; })) return nullptr;
    if (all([&](const ExprRef& part) { return ir::same(part, first); })) return of_group(first);
    if (const ExprRef index = woven_index(parts)) return index;
    if (all([](const ExprRef& part) { return part->kind == ExprKind::kInt; }))
      if (const ExprRef number = number_of(parts)) return number;
    if (!ir::is_float(first->type))
      if (const ExprRef bits = bits_of(parts)) return bits;
    const auto alike = [&](const ExprRef& part) {
      return part->kind == first->kind && part->args.size() == first->args.size() && part->op == first->op &&
             part->approx == first->approx && part->buffer == first->buffer &&
             part->cast_type.dtype == first->cast_type.dtype;
    };
    const bool plain =
        first->kind == ExprKind::kApply || first->kind == ExprKind::kCast || first->kind == ExprKind::kLoad;
    if (plain && all(alike))
      if (const ExprRef same_form = by_args(parts)) return same_form;
    ExprRef chosen = parts.back();
    for (size_t i = parts.size() - 1; i-- > 0;)
      chosen = ir::make_typed(
          Op::kSelect, {ir::make_typed(Op::kEq, {weave_.part(), integer(static_cast<int64_t>(i))}), parts[i], chosen});
    return chosen;
  }

  ExprRef by_args(const std::vector<ExprRef>& parts) const {
    const ExprRef& first = parts[0];
    std::vector<ExprRef> args;
    for (size_t i = 0; i < first->args.size(); ++i) {
      std::vector<ExprRef> of_parts;
      for (const ExprRef& part : parts) of_parts.push_back(part->args[i]);
      args.push_back(one(of_parts));
      if (!args.back()) return nullptr;
    }
    if (first->kind == ExprKind::kLoad) return ir::make_load(first->buffer, std::move(args));
    if (first->kind == ExprKind::kCast) return ir::make_cast(first->cast_type, args[0]);
    return ir::make_typed(first->op, std::move(args), first->approx);
  }

  // base + scale * j + constant, whose constants follow the parts.
  ExprRef woven_index(const std::vector<ExprRef>& parts) const {
    if (parts[0]->type != DType::I64) return nullptr;
    int64_t scale = 0, constant = 0;
    ExprRef base;
    for (size_t i = 0; i < parts.size(); ++i) {
      const std::optional<ScaledIndex> index = indexes_.scaled(parts[i]);
      if (!index || !follows(*index)) return nullptr;
      const bool same_base = i == 0 || (!base && !index->base) || (base && index->base && ir::same(base, index->base));
      if (i == 0) scale = index->scale, constant = index->constant, base = index->base;
      const int64_t step = weave_.neighbours ? scale / weave_.count() : scale * weave_.extent();
      if (!same_base || index->scale != scale || index->constant != constant + static_cast<int64_t>(i) * step)
        return nullptr;
    }
    if (weave_.neighbours && scale % weave_.count()) return nullptr;
    return sum(base, weave_.neighbours ? scale / weave_.count() : scale, constant);
  }
  bool follows(const ScaledIndex& index) const { return index.axis == weave_.iteration; }
  ExprRef sum(const ExprRef& base, int64_t scale, int64_t constant) const {
    ExprRef index = weave_.index();
    if (scale != 1) index = ir::make_typed(Op::kMul, {index, integer(scale)});
    if (base) index = ir::make_typed(Op::kAdd, {base, index});
    return constant ? ir::make_typed(Op::kAdd, {index, integer(constant)}) : index;
  }

  // Where neighbours share a quotient, (base + n * j) / d, it is (base + the new index) / d.
  ExprRef of_group(const ExprRef& expr) const {
    if (!weave_.neighbours) return expr;
    return ir::rewrite(expr, [&](const ExprRef& node) {
      if (!is_op(*node, Op::kDiv) || node->type != DType::I64 || node->args[1]->kind != ExprKind::kInt) return node;
      const int64_t count = weave_.count(), divisor = node->args[1]->int_value;
      const std::optional<ScaledIndex> index = indexes_.scaled(node->args[0]);
      if (!index || !follows(*index) || index->scale != count || divisor <= 0 || divisor % count ||
          index->constant % count || index->constant < 0)
        return node;
      if (index->base && (ranges_.multiple_of(index->base) % count || !ranges_.proves_nonnegative(index->base)))
        return node;
      return ir::make_typed(Op::kDiv, {sum(index->base, 1, index->constant), node->args[1]});
    });
  }

  // a, a + d, a + 2 d ...
  ExprRef number_of(const std::vector<ExprRef>& parts) const {
    std::vector<int64_t> values;
    for (const ExprRef& part : parts) values.push_back(part->int_value);
    return progression(values, parts[0]->type);
  }
  ExprRef progression(const std::vector<int64_t>& values, DType type) const {
    constexpr int64_t kMost = 1 << 30;  // in which no type of 32 bits wraps
    const int64_t step = values[1] - values[0];
    for (size_t i = 0; i < values.size(); ++i)
      if (std::abs(values[i]) > kMost || values[i] != values[0] + static_cast<int64_t>(i) * step) return nullptr;
    ExprRef number = ir::make_typed(Op::kMul, {weave_.part(), integer(step)});
    if (values[0]) number = ir::make_typed(Op::kAdd, {number, integer(values[0])});
    return type == DType::I64 ? number : ir::make_cast({type, nullptr}, number);
  }

  ExprRef bits_of(const std::vector<ExprRef>& parts) const {
    std::vector<int64_t> shifts;
    std::vector<ExprRef> words;
    int64_t mask = -1;
    for (const ExprRef& part : parts) {
      const std::optional<Field> field = field_of(part);
      if (!field || (mask >= 0 && field->mask != mask) || field->word->type != parts[0]->type) return nullptr;
      mask = field->mask;
      shifts.push_back(field->shift);
      words.push_back(field->word);
    }
    const ExprRef word = one(words);
    const ExprRef shift = progression(shifts, DType::I64);
    if (!word || !shift) return nullptr;
    return ir::make_typed(Op::kBitAnd, {ir::make_typed(Op::kShr, {word, shift}), integer(mask, parts[0]->type)});
  }

  const Weave& weave_;
  const RegionIndexes& indexes_;
  const Ranges& ranges_;
};

}  // namespace

ExprRef Weave::part() const {
  return ir::make_typed(neighbours ? Op::kMod : Op::kDiv, {index(), integer(neighbours ? count() : extent())});
}
ExprRef Weave::old() const {
  return ir::make_typed(neighbours ? Op::kDiv : Op::kMod, {index(), integer(neighbours ? count() : extent())});
}

ExprRef woven_value(const Weave& weave, const RegionIndexes& indexes, const Ranges& ranges,
                    const std::vector<ExprRef>& parts) {
  return Merger(weave, indexes, ranges).value(parts);
}

}  // namespace kachel::lowering
