// Scalar expressions and element access. Whatever the program computes as an index, no access leaves its buffer: every
// axis is proved to be inside or guarded, and a guarded load yields its padding. See tile_lowering.h.
#include "lowering/lower/tile_lowering.h"
#include "lowering/planted.h"

namespace kachel::lowering {

using ir::DType;
using ir::ExprKind;
using ir::ExprRef;
using ir::Op;

bool TileLowering::in_registers(const ir::BufferRef& buffer) const {
  auto it = placements_.tiles.find(buffer.get());
  return it != placements_.tiles.end() && it->second.scope == ir::Scope::kRegister;
}

ir::BufferRef TileLowering::temporary(const std::string& name, DType type, ir::Scope scope, int64_t elements) {
  auto buffer = std::make_shared<ir::Buffer>(
      ir::Buffer{name, scope, ir::Direction::kInOut, {type, nullptr}, {int64(elements)}, {}});
  out_.buffers.push_back({buffer, elements});
  return buffer;
}

ExprRef TileLowering::convert(const ExprRef& value, DType to) const {
  // A store narrows to 8 bits and more by itself; 4-bit tiles are held one element a byte.
  if (value->type == ir::compute_type(to) && ir::bits(to) != 4) return value;
  ExprRef from = planted(Planted::kWrongConversion) ? ir::make_cast({DType::I8, nullptr}, value) : value;
  return ir::make_cast({to, nullptr}, from);
}

ExprRef TileLowering::index(const ExprRef& expr, const Site* site) {
  ExprRef value = scalar(expr, site);
  if (value->type != DType::I64) value = ir::make_cast({DType::I64, nullptr}, value);
  value = let("ix", value);
  if (const auto pair = pair_index(expr); pair && value->kind == ExprKind::kVar) pairs_[value->var.get()] = *pair;
  if (const auto groups = group_index(expr); groups && value->kind == ExprKind::kVar)
    groups_[value->var.get()] = *groups;
  return value;
}

// A cast of integers that all are numbers of the narrow type: rounding changes none.
bool TileLowering::is_exact(const ir::Expr& cast) const {
  if (cast.kind != ExprKind::kCast || ir::is_float(cast.args[0]->type)) return false;
  const DType to = cast.cast_type.dtype;
  const int64_t most = integers_of(to);
  if (!most) return false;
  const Interval range = out_.ranges.of(cast.args[0]);
  return range.lo >= -most && range.hi <= most;
}

ExprRef TileLowering::scalar(const ExprRef& expr, const Site* site) {
  const auto first = read_as_.find(expr.get());
  const ir::Expr* read = first == read_as_.end() ? expr.get() : first->second;
  if (const auto found = fetched_.find(read); found != fetched_.end()) return found->second(*site);
  switch (expr->kind) {
    case ExprKind::kInt:
    case ExprKind::kFloat:
    case ExprKind::kBool:
      return expr;
    case ExprKind::kVar: {
      auto it = values_.find(expr->var.get());
      return it == values_.end() ? expr : it->second;
    }
    case ExprKind::kLoad: {
      std::vector<ExprRef> indices;
      for (const ExprRef& arg : expr->args) indices.push_back(index(arg, site));
      const StatedBounds stated = stated_bounds(stated_, *expr);
      return load(expr->buffer, indices, site, nullptr, nullptr, &stated);
    }
    case ExprKind::kReduce:
      return inline_reduction(*expr, site);
    case ExprKind::kScan:
      status_ = internal("a prefix reduction inside of an expression");
      return expr;
    case ExprKind::kCast:
    case ExprKind::kApply:
      break;
  }
  if (const ExprRef load = padded_load(*expr)) return padded(*expr, *load, site);
  if (expr->kind == ExprKind::kApply && expr->op == Op::kSelect) return selected(*expr, site);
  auto copy = std::make_shared<ir::Expr>(*expr);
  for (ExprRef& arg : copy->args) arg = scalar(arg, site);
  if (is_exact(*copy)) copy->cast_type.dtype = DType::F32;
  return copy;
}

// What is chosen where a condition holds need not ask for it again.
ExprRef TileLowering::selected(const ir::Expr& select, const Site* site) {
  auto copy = std::make_shared<ir::Expr>(select);
  copy->args[0] = scalar(select.args[0], site);
  if (!target_.generic) stated_.push_back(select.args[0]);
  copy->args[1] = scalar(select.args[1], site);
  if (!target_.generic) stated_.pop_back();
  copy->args[2] = scalar(select.args[2], site);
  return copy;
}

// Bounds that are known to hold are left out.
ExprRef TileLowering::padded(const ir::Expr& select, const ir::Expr& load, const Site* site) {
  const auto first = read_as_.find(&load);
  const auto known = inside_.find(first == read_as_.end() ? &load : first->second);
  ExprRef inside;
  if (known != inside_.end()) {
    inside = known->second;
  } else {
    std::vector<ExprRef> indices;
    for (const ExprRef& arg : load.args) indices.push_back(index(arg, site));
    inside = in_bounds(load.buffer, indices, nullptr);
  }
  const ExprRef value = scalar(select.args[1], site);
  return inside ? ir::make_typed(Op::kSelect, {inside, value, scalar(select.args[2], site)}) : value;
}

ExprRef TileLowering::in_bounds(const ir::BufferRef& buffer, const std::vector<ExprRef>& indices, ExprRef guard,
                                const StatedBounds* stated) {
  for (size_t axis = 0; axis < indices.size(); ++axis) {
    const ExprRef& at = indices[axis];
    ExprRef limit = scalar(buffer->shape[axis], nullptr);
    if (!(stated && stated->below[axis]) && !out_.ranges.proves_nonnegative(at) && !planted(Planted::kNoLowerBound))
      guard = both(guard, ir::make_typed(Op::kGe, {at, int64(0)}));
    if (!(stated && stated->above[axis]) && !out_.ranges.proves_less(at, limit) && !planted(Planted::kNoUpperBound))
      guard = both(guard, ir::make_typed(planted(Planted::kBoundOffByOne) ? Op::kLe : Op::kLt, {at, limit}));
  }
  return guard;
}

namespace {

// The column of an element of a swizzled tile. Chunks and rows are powers of two.
ExprRef swizzled(const Layout::Swizzle& swizzle, const ir::BufferRef& buffer, const std::vector<ExprRef>& indices,
                 const ExprRef& column, int64_t mask) {
  auto constant = [](int64_t value) { return ir::make_int(value, DType::I32); };
  ExprRef row = constant(0);
  for (size_t axis = 0; axis + 1 < indices.size(); ++axis) {
    ExprRef at = ir::make_cast({DType::I32, nullptr}, indices[axis]);
    row = axis == 0 ? at
                    : ir::make_typed(Op::kAdd,
                                     {ir::make_typed(Op::kMul, {row, constant(buffer->shape[axis]->int_value)}), at});
  }
  if (swizzle.rows > 1) row = ir::make_typed(Op::kDiv, {row, constant(swizzle.rows)});
  // Chunk numbers are exchanged in place: the bits of the row, moved to where the chunk's are.
  ExprRef moved =
      ir::make_typed(Op::kMul, {ir::make_typed(Op::kBitAnd, {row, constant(mask)}), constant(swizzle.chunk)});
  return ir::make_typed(Op::kBitXor, {column, moved});
}

// Offset of a column within its row, which continues in the next slab.
ExprRef in_slab(const Layout& layout, const ExprRef& column, const std::function<ExprRef(const ExprRef&)>& within) {
  const int64_t width = layout.slab_columns(), columns = layout.shape().back();
  if (width == columns) return within(column);
  auto constant = [&](int64_t value) { return ir::make_int(value, column->type); };
  const ExprRef slab = ir::make_typed(Op::kDiv, {column, constant(width)});
  return ir::make_typed(Op::kAdd, {ir::make_typed(Op::kMul, {slab, constant(layout.elements() / columns * width)}),
                                   within(ir::make_typed(Op::kMod, {column, constant(width)}))});
}

}  // namespace

// Element offset: of a tensor through its strides, of a tile through its layout, of a register tile its slot.
ExprRef TileLowering::offset(const ir::BufferRef& buffer, const std::vector<ExprRef>& indices, const Site* site,
                             bool wrong_swizzle) {
  if (in_registers(buffer)) return site->layout ? register_of(buffer, indices, *site) : site->slot;
  const bool global = buffer->scope == ir::Scope::kGlobal;
  // A guarded offset of a tensor fits in 32 bits if the fact holds; a tile's always does.
  // The CPU's addresses are of 64 bits, and LLVM vectorises where no narrow sum can wrap.
  const DType type = !on_cpu() && (!global || index32_) ? DType::I32 : DType::I64;
  auto narrow = [&](const ExprRef& value) {
    if (value->type == type) return value;
    if (value->kind == ExprKind::kInt) return ir::make_int(value->int_value, type);
    return ir::make_cast({type, nullptr}, value);
  };
  const auto placement = placements_.tiles.find(buffer.get());
  if (placement != placements_.tiles.end() && placement->second.panel_width)
    return panel_offset(placement->second, indices);
  const Layout::Swizzle swizzle =
      placement == placements_.tiles.end() ? Layout::Swizzle{} : placement->second.layout.swizzle();
  int64_t below = 1;  // elements of a temporary's later axes: it is row-major
  ExprRef sum, rows;  // without the last axis
  for (size_t axis = indices.size(); axis-- > 0;) {
    size_t stride_axis = planted(Planted::kSwappedStrides) && global && indices.size() == 2 ? 1 - axis : axis;
    ExprRef stride;
    if (global) {
      stride = strides_.at(buffer.get())[stride_axis];
    } else {
      int64_t step = placement == placements_.tiles.end() ? below : placement->second.layout.axis_stride(axis);
      below *= buffer->shape[axis]->int_value;
      stride = int64(planted(Planted::kWrongTilePitch) && step > 1 ? step - 1 : step);
    }
    ExprRef at = narrow(indices[axis]);
    if (axis + 1 == indices.size() && placement != placements_.tiles.end())
      at = in_slab(placement->second.layout, at, [&](const ExprRef& column) {
        if (!swizzle.mask) return column;
        wrong_swizzle |= planted(Planted::kWrongSwizzle) && !site;
        return swizzled(swizzle, buffer, indices, column, swizzle.mask >> (wrong_swizzle ? 1 : 0));
      });
    if (ir::is_int(at, 0)) continue;
    ExprRef term = ir::is_int(stride, 1) ? at : ir::make_typed(Op::kMul, {at, narrow(stride)});
    sum = sum ? ir::make_typed(Op::kAdd, {term, sum}) : term;
    if (axis + 1 < indices.size()) rows = rows ? ir::make_typed(Op::kAdd, {term, rows}) : term;
  }
  const Layout::Gap gap = placement == placements_.tiles.end() ? Layout::Gap{} : placement->second.layout.gap();
  if (gap.every && sum) {
    // No row goes on behind a gap; the last index may go on behind a row (joined_at()).
    const int64_t columns = buffer->shape.back()->int_value;
    const Interval last = out_.ranges.of(indices.back());
    const bool in_row = gap.every % columns == 0 && last.lo >= 0 && last.hi < columns;
    const ExprRef before = !in_row ? sum : rows ? rows : ir::make_int(0, type);
    const ExprRef lines = ir::make_typed(Op::kDiv, {before, ir::make_int(gap.every, type)});
    sum = ir::make_typed(Op::kAdd, {sum, ir::make_typed(Op::kMul, {lines, ir::make_int(gap.by, type)})});
  }
  if (auto stage = stage_.find(buffer.get()); stage != stage_.end()) {
    ExprRef begin = ir::make_typed(
        Op::kMul,
        {stage->second,
         ir::make_int(placement->second.stage_elements() / (planted(Planted::kStageStride) ? 2 : 1), DType::I32)});
    sum = sum ? ir::make_typed(Op::kAdd, {begin, sum}) : begin;
  }
  return sum ? sum : ir::make_int(0, type);
}

ExprRef TileLowering::load(const ir::BufferRef& buffer, const std::vector<ExprRef>& indices, const Site* site,
                           ExprRef guard, ExprRef otherwise, const StatedBounds* stated) {
  guard = in_bounds(buffer, indices, guard, stated);
  const auto from = forwarded_.find(buffer.get());
  ExprRef value = from == forwarded_.end() ? ir::make_load(storage(buffer), {offset(buffer, indices, site)})
                                           : load_forwarded(from->second, indices, site);
  if (!guard) return value;
  if (!otherwise) {
    otherwise = ir::is_float(value->type)    ? ir::make_float(planted(Planted::kWrongPadding) ? 1.0 : 0.0)
                : value->type == DType::Bool ? ir::make_bool(false)
                                             : ir::make_int(0, value->type);
  }
  return ir::make_typed(Op::kSelect, {guard, value, otherwise});
}

}  // namespace kachel::lowering
