// Tile copies on the CPU, row by row. The bounds of both sides are intervals of the copy's coordinates, so that they
// are worked out once a copy and not once an element: rows are split into padding, elements and padding, and a copy
// that lies inside of its tensors takes a nest without bounds, whose loops have constant counts. See tile_lowering.h.
#include "ir/instantiate.h"
#include "lowering/lower/tile_lowering.h"
#include "lowering/machine/cpu_machine.h"
#include "lowering/planted.h"

namespace kachel::lowering {

using ir::AxisSpec;
using ir::DType;
using ir::ExprRef;
using ir::Op;

namespace {

ExprRef folded(Op op, const ExprRef& a, const ExprRef& b) {
  return ir::fold(apply(op, a, b));
}
ExprRef clamp(const ExprRef& value, const ExprRef& low, const ExprRef& high) {
  return folded(Op::kMin, folded(Op::kMax, value, low), high);
}

}  // namespace

// False where index arithmetic might wrap, which intervals cannot express.
bool TileLowering::bounds_of(const Slice& slice, CpuSide* side) {
  constexpr int64_t kTame = int64_t{1} << 60;
  auto tame = [&](const ExprRef& expr) {
    Interval range = out_.ranges.of(expr);
    return range.lo >= -kTame && range.hi <= kTame;
  };
  const ir::TileRef& ref = *slice.ref;
  side->slice = &slice;
  side->extents = slice_shape(ref);
  side->indices.resize(ref.axes.size());
  ExprRef present;
  for (size_t i = 0; i < ref.axes.size(); ++i) {
    const AxisSpec& axis = ref.axes[i];
    const ExprRef limit = scalar(ref.buffer->shape[i], nullptr), start = slice.starts[i] ? slice.starts[i] : int64(0);
    if (axis.kind == AxisSpec::Kind::kIndex) {
      side->indices[i] = start;
      if (!out_.ranges.proves_nonnegative(start) && !planted(Planted::kNoLowerBound))
        present = both(present, folded(Op::kGe, start, int64(0)));
      if (!out_.ranges.proves_less(start, limit) && !planted(Planted::kNoUpperBound))
        present = both(present, folded(planted(Planted::kBoundOffByOne) ? Op::kLe : Op::kLt, start, limit));
      continue;
    }
    const int64_t extent = side->extents[side->axis_of.size()];
    const bool first = side->axis_of.empty();
    side->axis_of.push_back(i);
    ExprRef low = int64(0), high = int64(extent);
    bool whole = true;
    if (axis.kind == AxisSpec::Kind::kRange) {
      if (!tame(start)) return false;
      if (!out_.ranges.proves_nonnegative(start) && !planted(Planted::kNoLowerBound)) {
        low = folded(Op::kMax, low, folded(Op::kSub, int64(0), start));
        whole = false;
      }
      if (!planted(Planted::kNoUpperBound) &&
          !out_.ranges.proves_less(folded(Op::kAdd, start, int64(extent - 1)), limit)) {
        ExprRef last = planted(Planted::kBoundOffByOne) ? folded(Op::kAdd, limit, int64(1)) : limit;
        high = folded(Op::kMin, high, folded(Op::kSub, last, start));
        whole = false;
      }
    }
    if (first && slice.within_first && !planted(Planted::kWithinIgnored) && axis.kind != AxisSpec::Kind::kGather) {
      if (!tame(slice.within_first) || !tame(slice.within_length)) return false;
      ExprRef from = folded(Op::kSub, slice.within_first, start);
      low = folded(Op::kMax, low, from);
      high = folded(Op::kMin, high, folded(Op::kAdd, from, slice.within_length));
      whole = false;
    }
    side->low.push_back(low), side->high.push_back(high), side->whole.push_back(whole);
  }
  if (present) {
    side->high[0] = ir::make_typed(Op::kSelect, {present, side->high[0], side->low[0]});
    side->whole[0] = false;
  }
  for (size_t d = 0; d < side->extents.size(); ++d) {
    side->low[d] = let("low", clamp(side->low[d], int64(0), int64(side->extents[d])));
    side->high[d] = let("high", clamp(side->high[d], side->low[d], int64(side->extents[d])));
  }
  auto placement = placements_.tiles.find(ref.buffer.get());
  if (placement != placements_.tiles.end()) side->panel_width = placement->second.panel_width;
  return true;
}

void TileLowering::set_coordinate(CpuSide* side, size_t coordinate, const ExprRef& value) {
  const Slice& slice = *side->slice;
  const size_t i = side->axis_of[coordinate];
  if (slice.ref->axes[i].kind != AxisSpec::Kind::kGather) {
    const bool from_start = slice.starts[i] && !ir::is_int(slice.starts[i], 0);
    side->indices[i] = from_start ? let("at", folded(Op::kAdd, slice.starts[i], value)) : value;
    return;
  }
  // As in element(): an index outside of the index tensor's bounds reads as -1, which is outside of any tensor.
  Site site{{value}, nullptr};
  ExprRef inside;
  std::vector<ExprRef> where = element(*slice.gathers[i], site, &inside);
  const ir::BufferRef& from = slice.gathers[i]->ref->buffer;
  ExprRef row = load(from, where, &site, inside, ir::make_int(-1, ir::compute_type(from->type.dtype)));
  if (row->type != DType::I64) row = ir::make_cast({DType::I64, nullptr}, row);
  row = let("row", row);
  side->indices[i] = row;
  ExprRef limit = scalar(slice.ref->buffer->shape[i], nullptr), guard;
  if (!planted(Planted::kNoLowerBound)) guard = both(guard, ir::make_typed(Op::kGe, {row, int64(0)}));
  if (!planted(Planted::kNoUpperBound))
    guard = both(guard, ir::make_typed(planted(Planted::kBoundOffByOne) ? Op::kLe : Op::kLt, {row, limit}));
  if (coordinate == 0 && slice.within_first && !planted(Planted::kWithinIgnored)) {
    guard = both(guard, ir::make_typed(Op::kGe, {row, slice.within_first}));
    guard = both(guard,
                 ir::make_typed(Op::kLt, {ir::make_typed(Op::kSub, {row, slice.within_first}), slice.within_length}));
  }
  if (guard) side->present = both(side->present, let("present", guard));
}

// Coordinates first .. first + width of the last axis.
void TileLowering::copy_strip(const CpuSide& dst, const CpuSide& src, const ExprRef& first, int64_t width,
                              bool interior) {
  const ir::BufferRef &to = dst.slice->ref->buffer, &from = src.slice->ref->buffer;
  const size_t last = dst.extents.size() - 1;
  auto element_loop = [&](const ExprRef& begin, const ExprRef& end, const std::function<ExprRef(ExprRef)>& value) {
    LoopFor loop;
    loop.var = make_local("j", DType::I64, ir::VarKind::kLoop);
    loop.begin = begin, loop.end = end;
    out_.ranges.set(loop.var, {0, width - 1});
    loop.body = nested([&] {
      ExprRef j = ir::make_var(loop.var), at = ir::is_int(first, 0) ? j : ir::make_typed(Op::kAdd, {first, j});
      CpuSide here = dst;
      set_coordinate(&here, last, at);
      ExprRef place;
      if (dst.panel_width && placements_.at(to.get()).panel_axis == last) {
        // The strip is a panel or a part of one.
        here.indices[dst.axis_of[last]] = first;
        place = ir::make_typed(Op::kAdd, {offset(to, here.indices, nullptr), j});
      } else {
        place = offset(to, here.indices, nullptr);
      }
      store(storage(to), place, value(at), nullptr);
    });
    emit({std::move(loop)});
  };
  // begin .. end, all inside of both sides.
  auto copy = [&](const ExprRef& begin, const ExprRef& end, const std::function<ExprRef(ExprRef)>& copied) {
    if (!dst.streams) return element_loop(begin, end, copied);
    LoopBlock stream = nested([&] {
      CpuSide target = dst, source = src;
      ExprRef at = folded(Op::kAdd, first, begin);
      set_coordinate(&target, last, at), set_coordinate(&source, last, at);
      emit({LoopStream{storage(to), storage(from), offset(to, target.indices, nullptr),
                       offset(from, source.indices, nullptr), folded(Op::kSub, end, begin)}});
    });
    LoopBlock plain = nested([&] { element_loop(begin, end, copied); });
    emit({LoopIf{dst.streams, std::move(stream), std::move(plain)}});
  };
  auto copied = [&](const ExprRef& at) {
    CpuSide here = src;
    set_coordinate(&here, last, at);
    return convert(ir::make_load(storage(from), {offset(from, here.indices, nullptr)}), to->type.dtype);
  };
  ExprRef pad;
  if (src.slice->ref->pad && !planted(Planted::kPaddingIgnored))
    pad = ir::make_cast({from->type.dtype, nullptr}, src.slice->ref->pad);
  else if (DType type = ir::compute_type(from->type.dtype); ir::is_float(type))
    pad = ir::make_float(planted(Planted::kWrongPadding) ? 1.0 : 0.0);
  else
    pad = type == DType::Bool ? ir::make_bool(false) : ir::make_int(0, type);
  pad = convert(ir::fold(pad), to->type.dtype);
  auto padded = [&](const ExprRef&) { return pad; };

  if (interior) {
    LoopBlock there = nested([&] { copy(int64(0), int64(width), copied); });
    if (src.present) {
      LoopBlock absent = nested([&] { element_loop(int64(0), int64(width), padded); });
      emit({LoopIf{src.present, std::move(there), std::move(absent)}});
    } else {
      for (LoopStmt& stmt : there) emit(std::move(stmt));
    }
    return;
  }
  auto within = [&](const ExprRef& bound, const ExprRef& low, const ExprRef& high) {
    return let("edge", clamp(folded(Op::kSub, bound, first), low, high));
  };
  const ExprRef all = int64(width);
  ExprRef begin = within(dst.low[last], int64(0), all), end = within(dst.high[last], begin, all);
  ExprRef from_begin = within(src.low[last], begin, end), from_end = within(src.high[last], from_begin, end);
  if (src.present) from_end = let("edge", ir::make_typed(Op::kSelect, {src.present, from_end, from_begin}));
  element_loop(begin, from_begin, padded);
  copy(from_begin, from_end, copied);
  element_loop(from_end, end, padded);
}

void TileLowering::copy_nest(CpuSide dst, CpuSide src, size_t axis, bool interior) {
  const size_t last = dst.extents.size() - 1;
  if (axis < last) {
    LoopFor loop;
    loop.var = make_local("i" + std::to_string(axis), DType::I64, ir::VarKind::kLoop);
    loop.begin = interior ? int64(0) : dst.low[axis];
    loop.end = interior ? int64(dst.extents[axis]) : dst.high[axis];
    out_.ranges.set(loop.var, {0, dst.extents[axis] - 1});
    loop.body = nested([&] {
      ExprRef at = ir::make_var(loop.var);
      set_coordinate(&dst, axis, at);
      set_coordinate(&src, axis, at);
      if (!interior && !src.whole[axis]) {
        ExprRef inside =
            both(ir::make_typed(Op::kGe, {at, src.low[axis]}), ir::make_typed(Op::kLt, {at, src.high[axis]}));
        src.present = let("present", both(src.present, inside));
      }
      LoopBlock rows = nested([&] { copy_nest(dst, src, axis + 1, interior); });
      if (dst.present) {
        emit({LoopIf{dst.present, std::move(rows), {}}});
      } else {
        for (LoopStmt& stmt : rows) emit(std::move(stmt));
      }
      dst.present = nullptr;
    });
    emit({std::move(loop)});
    return;
  }
  const int64_t extent = dst.extents[last];
  const bool panels = dst.panel_width && placements_.at(dst.slice->ref->buffer.get()).panel_axis == last;
  const int64_t width = panels ? std::min(dst.panel_width, extent) : extent, strips = extent / width;
  if (strips == 1) {
    copy_strip(dst, src, int64(0), width, interior);
  } else {
    serial("strip", int64(strips), false, [&](ExprRef strip) {
      copy_strip(dst, src, let("first", ir::make_typed(Op::kMul, {strip, int64(width)})), width, interior);
    });
  }
  if (int64_t rest = extent % width; rest && !planted(Planted::kPanelTail))
    copy_strip(dst, src, int64(strips * width), rest, interior);
}

// Whether the tensor that is written is larger than the caches; null if its rows cannot be streamed.
ExprRef TileLowering::streams(const CpuSide& dst, const CpuSide& src) {
  const ir::BufferRef &to = dst.slice->ref->buffer, &from = src.slice->ref->buffer;
  const int64_t bytes = ir::bits(to->type.dtype) / 8;
  if (!target_.streaming_stores || to->scope != ir::Scope::kGlobal || bytes < 1 || storage(from)->type != to->type ||
      dst.extents.back() * bytes < kStreamRowBytes || !has_unit_stride(dst) || !has_unit_stride(src))
    return nullptr;
  ExprRef size = int64(bytes);
  for (const ExprRef& extent : to->shape) size = folded(Op::kMul, size, scalar(extent, nullptr));
  return let("streams", folded(Op::kGe, size, int64(kStreamBytes)));
}

// The elements along the last coordinate are neighbours in memory.
bool TileLowering::has_unit_stride(const CpuSide& side) const {
  const ir::BufferRef& buffer = side.slice->ref->buffer;
  const size_t axis = side.axis_of.back();
  if (buffer->scope == ir::Scope::kGlobal) return ir::is_int(strides_.at(buffer.get())[axis], 1);
  return !side.panel_width &&
         (buffer->shape[axis]->int_value == 1 || placements_.at(buffer.get()).layout.axis_stride(axis) == 1);
}

bool TileLowering::copy_rows(const ir::CopyStmt& copy, const Slice& dst_slice, const Slice& src_slice) {
  if (copy.atomic != ir::AtomicOp::kNone) return false;
  CpuSide dst, src;
  bool rows = false;
  LoopBlock bounds = nested([&] { rows = bounds_of(dst_slice, &dst) && bounds_of(src_slice, &src); });
  if (!rows || dst.extents.empty() || copy.dst.axes[dst.axis_of.back()].kind == AxisSpec::Kind::kGather ||
      copy.src.axes[src.axis_of.back()].kind == AxisSpec::Kind::kGather)
    return false;
  for (LoopStmt& stmt : bounds) emit(std::move(stmt));
  ExprRef inside;
  for (const CpuSide* side : {&dst, &src})
    for (size_t d = 0; d < side->extents.size(); ++d) {
      if (side->whole[d]) continue;
      inside = both(inside, folded(Op::kEq, side->low[d], int64(0)));
      inside = both(inside, folded(Op::kEq, side->high[d], int64(side->extents[d])));
    }
  dst.streams = streams(dst, src);
  note_ahead(copy);
  LoopBlock interior = nested([&] {
    if (!copy_transposed(dst, src)) copy_nest(dst, src, 0, true);
  });
  if (!inside) {
    for (LoopStmt& stmt : interior) emit(std::move(stmt));
    return true;
  }
  LoopBlock edge = nested([&] { copy_nest(dst, src, 0, false); });
  emit({LoopIf{inside, std::move(interior), std::move(edge)}});
  return true;
}

ExprRef TileLowering::rounded(const ExprRef& value, DType to) {
  auto exact = [&](const ExprRef& expr) {
    if (expr->kind == ir::ExprKind::kLoad) return expr->buffer->type.dtype == to;
    if (expr->kind == ir::ExprKind::kCast) return expr->cast_type.dtype == to;
    return ir::is_const(expr) && ir::is_float(expr->type) && expr->float_value == 0;
  };
  return exact(value) ? value : ir::make_cast({to, nullptr}, value);
}

}  // namespace kachel::lowering
