#include "lowering/tile_ir/woven_stores.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>

#include "ir/visit.h"
#include "lowering/loop_ir/range.h"
#include "lowering/loop_ir/region_index.h"
#include "lowering/planted.h"
#include "lowering/tile_ir/tile_uses.h"

namespace kachel::lowering {
namespace {

using ir::DType;
using ir::ExprKind;
using ir::ExprRef;
using ir::Op;

constexpr size_t kMostStores = 32;  // as many as a word of 32 bits has elements

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

// Of one region: the axis along which its assignments differ, and how.
struct Weave {
  std::vector<const ir::AssignStmt*> parts;  // in the order of their elements
  size_t axis = 0, iteration = 0;            // of the tile; which of the region's variables goes along it
  ir::IterVar from;                          // that variable
  bool neighbours = true;                    // n * j + part, else part * extent + j
  ir::VarRef to;                             // the new one
  int64_t count() const { return static_cast<int64_t>(parts.size()); }
  int64_t extent() const { return from.extent->int_value; }
  ExprRef index() const { return ir::make_var(to); }
  ExprRef part() const {
    return ir::make_typed(neighbours ? Op::kMod : Op::kDiv, {index(), integer(neighbours ? count() : extent())});
  }
  ExprRef old() const {
    return ir::make_typed(neighbours ? Op::kDiv : Op::kMod, {index(), integer(neighbours ? count() : extent())});
  }
};

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

class Weaver {
 public:
  explicit Weaver(const ir::Kernel& kernel) {
    for (const ir::VarRef& dim : kernel.dims) ranges_.set(dim, {0, kMaxDim});
    note_dimensions(kernel, &ranges_);
    for (const ir::IterVar& axis : kernel.grid)
      ranges_.set(axis.var, {0, axis.extent->kind == ExprKind::kInt ? axis.extent->int_value : kMaxDim});
    ir::for_each_stmt(kernel.body, [this](const ir::Stmt& stmt) {
      if (const auto* gemm = std::get_if<ir::GemmStmt>(&stmt.node))
        operands_.insert({gemm->a.buffer.get(), gemm->b.buffer.get()});
    });
  }

  ir::Block block(ir::Block body) {
    for (ir::Stmt& stmt : body) {
      if (const auto* let = std::get_if<ir::LetStmt>(&stmt.node)) ranges_.set_value(let->var, let->value);
      if (const auto* loop = std::get_if<ir::ForStmt>(&stmt.node))
        if (ranges_.proves_nonnegative(loop->begin)) ranges_.set(loop->var, {0, kMaxDim});
      if (auto* region = std::get_if<ir::ParallelStmt>(&stmt.node)) weave(region);
      replace_blocks(&stmt, [this](const ir::Block& inner) { return block(inner); });
    }
    return body;
  }

 private:
  void weave(ir::ParallelStmt* region) {
    std::vector<const ir::AssignStmt*> parts;
    RegionIndexes indexes(region->iters);
    BufferSet read;
    bool plain = true, takes_bits = false;
    for (const ir::Stmt& stmt : region->body) {
      const auto* let = std::get_if<ir::LetStmt>(&stmt.node);
      const auto* assign = std::get_if<ir::AssignStmt>(&stmt.node);
      if (let) indexes.name(*let);
      if (assign) parts.push_back(assign);
      plain &= let || (assign && assign->op == ir::AssignOp::kSet && assign->atomic == ir::AtomicOp::kNone);
      ir::for_each_expr(stmt, [&](const ExprRef& expr) {
        note_loads(expr, &read);
        ir::visit(expr, [&](const ExprRef& node) {
          takes_bits |= (is_op(*node, Op::kBitAnd) || is_op(*node, Op::kShr)) && loads(node->args[0], indexes);
          plain &= node->kind != ExprKind::kReduce && node->kind != ExprKind::kScan;
        });
      });
    }
    if (!plain || !takes_bits || parts.size() < 2 || parts.size() > kMostStores) return;
    const ir::BufferRef tile = parts[0]->buffer;
    const bool one_tile =
        std::all_of(parts.begin(), parts.end(), [&](const auto* part) { return part->buffer == tile; });
    if (!one_tile || !operands_.count(tile.get()) || read.count(tile.get())) return;
    const std::optional<Weave> weave = weave_of(*region, parts, indexes);
    if (!weave) return;
    std::vector<ExprRef> values;
    for (const ir::AssignStmt* part : weave->parts) {
      values.push_back(indexes.inlined(part->value));
      if (!indexes.is_written_out(values.back())) return;
    }
    const ExprRef value = Merger(*weave, indexes, ranges_).value(values);
    if (!value) return;
    ir::AssignStmt all = *weave->parts[0];
    all.indices[weave->axis] = weave->index();
    all.value = value;
    region->iters[weave->iteration] = {weave->to, tile->shape[weave->axis]};
    const ir::Loc loc = region->body.front().loc;
    region->body.clear();
    region->body.push_back({loc, std::move(all)});
  }

  static bool loads(const ExprRef& expr, const RegionIndexes& indexes) {
    bool found = false;
    ir::visit(indexes.inlined(expr), [&](const ExprRef& node) { found |= node->kind == ExprKind::kLoad; });
    return found;
  }

  static std::optional<Weave> weave_of(const ir::ParallelStmt& region, const std::vector<const ir::AssignStmt*>& parts,
                                       const RegionIndexes& indexes) {
    const size_t rank = region.iters.size();
    if (parts[0]->indices.size() != rank) return std::nullopt;
    Weave weave;
    std::vector<bool> used(rank);
    size_t differing = 0;
    for (size_t axis = 0; axis < rank; ++axis) {
      const ExprRef& first = parts[0]->indices[axis];
      const bool alike = std::all_of(parts.begin(), parts.end(),
                                     [&](const ir::AssignStmt* part) { return ir::same(part->indices[axis], first); });
      const std::optional<ScaledIndex> index = indexes.scaled(indexes.inlined(first));
      if (!index || used[index->axis]) return std::nullopt;
      used[index->axis] = true;
      if (!alike) weave.axis = axis, weave.iteration = index->axis, ++differing;
      const bool whole = index->scale == 1 && !index->constant && !index->base &&
                         ir::same(region.iters[index->axis].extent, parts[0]->buffer->shape[axis]);
      if (alike && !whole) return std::nullopt;
    }
    if (differing != 1) return std::nullopt;
    weave.from = region.iters[weave.iteration];
    const auto count = static_cast<int64_t>(parts.size());
    if (count * weave.extent() != parts[0]->buffer->shape[weave.axis]->int_value) return std::nullopt;
    weave.parts.assign(parts.size(), nullptr);
    for (const ir::AssignStmt* part : parts) {
      const std::optional<ScaledIndex> index = indexes.scaled(indexes.inlined(part->indices[weave.axis]));
      if (!index || index->axis != weave.iteration || index->base) return std::nullopt;
      const bool neighbours = index->scale == count;
      if (part == parts[0]) weave.neighbours = neighbours;
      const int64_t step = neighbours ? 1 : weave.extent(), at = index->constant / step;
      if (neighbours != weave.neighbours || (!neighbours && index->scale != 1) || index->constant % step || at < 0 ||
          at >= count || weave.parts[static_cast<size_t>(at)])
        return std::nullopt;
      weave.parts[static_cast<size_t>(at)] = part;
    }
    if (planted(Planted::kNibbleOrder)) std::reverse(weave.parts.begin(), weave.parts.end());
    weave.to = std::make_shared<ir::Var>(*weave.from.var);
    return weave;
  }

  Ranges ranges_;
  BufferSet operands_;
};

}  // namespace

ir::Kernel woven_stores(const ir::Kernel& kernel) {
  ir::Kernel out = kernel;
  out.body = Weaver(kernel).block(kernel.body);
  return out;
}

}  // namespace kachel::lowering
