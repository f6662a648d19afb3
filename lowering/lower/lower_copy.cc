// Tile copies and fills, between any two scopes and with conversion. See tile_lowering.h.
#include "ir/print.h"
#include "lowering/lower/tile_lowering.h"
#include "lowering/planted.h"

namespace kachel::lowering {

using ir::AxisSpec;
using ir::DType;
using ir::ExprRef;
using ir::Op;

Slice TileLowering::slice(const ir::TileRef& ref) {
  Slice slice{&ref, {}, {}, nullptr, nullptr};
  for (const AxisSpec& axis : ref.axes) {
    slice.starts.push_back(axis.start ? index(extract_reductions(axis.start, {}, {}), nullptr) : nullptr);
    slice.gathers.push_back(axis.gather ? std::make_shared<Slice>(this->slice(*axis.gather)) : nullptr);
  }
  if (ref.within_first) {
    slice.within_first = index(extract_reductions(ref.within_first, {}, {}), nullptr);
    slice.within_length = index(extract_reductions(ref.within_length, {}, {}), nullptr);
  }
  return slice;
}

std::vector<int64_t> TileLowering::slice_shape(const ir::TileRef& ref) const {
  std::vector<int64_t> shape;
  for (size_t i = 0; i < ref.axes.size(); ++i) {
    const AxisSpec& axis = ref.axes[i];
    switch (axis.kind) {
      case AxisSpec::Kind::kIndex:
        break;
      case AxisSpec::Kind::kRange:
        shape.push_back(axis.extent->int_value);
        break;
      case AxisSpec::Kind::kWhole:
        shape.push_back(ref.buffer->shape[i]->int_value);
        break;
      case AxisSpec::Kind::kGather:
        shape.push_back(axis.gather ? slice_shape(*axis.gather).at(0) : axis.extent->int_value);
        break;
    }
  }
  return shape;
}

std::vector<ExprRef> TileLowering::element(const Slice& slice, const Site& site, ExprRef* guard) {
  std::vector<ExprRef> indices;
  size_t next = 0;
  bool bounded = false;
  for (size_t i = 0; i < slice.ref->axes.size(); ++i) {
    const AxisSpec& axis = slice.ref->axes[i];
    ExprRef at;
    switch (axis.kind) {
      case AxisSpec::Kind::kIndex:
        indices.push_back(axis.index ? let("place", index(axis.index, &site)) : slice.starts[i]);
        continue;
      case AxisSpec::Kind::kRange:
        at = site.coords[next];
        if (!ir::is_int(slice.starts[i], 0)) at = let("at", ir::make_typed(Op::kAdd, {slice.starts[i], at}));
        break;
      case AxisSpec::Kind::kWhole:
        at = site.coords[next];
        break;
      case AxisSpec::Kind::kGather: {
        if (!axis.gather) {  // further axes may depend on the row, too
          values_[axis.element.get()] = site.coords[next];
          at = let("place", index(axis.index, &site));
          break;
        }
        // An index outside of the index tensor's bounds reads as -1, which is outside of any tensor; what an index is
        // made of reads there as it does elsewhere.
        Site inner{{site.coords[next]}, nullptr};
        inner.inside = site.inside;
        ExprRef inside = site.inside;
        std::vector<ExprRef> where = element(*slice.gathers[i], inner, &inside);
        const ir::BufferRef& from = slice.gathers[i]->ref->buffer;
        ExprRef row = load(from, where, &site, inside,
                           axis.index ? padding(*axis.gather) : ir::make_int(-1, ir::compute_type(from->type.dtype)));
        if (axis.index) {
          values_[axis.element.get()] = let("named", row);
          row = scalar(axis.index, &site);
          values_.erase(axis.element.get());
        }
        if (row->type != DType::I64) row = ir::make_cast({DType::I64, nullptr}, row);
        at = let("row", row);
        break;
      }
    }
    ++next;
    if (!bounded && slice.within_first && !planted(Planted::kWithinIgnored)) {
      ExprRef past = ir::make_typed(Op::kSub, {at, slice.within_first});
      *guard = both(*guard, ir::make_typed(Op::kGe, {at, slice.within_first}));
      *guard = both(*guard, ir::make_typed(Op::kLt, {past, slice.within_length}));
    }
    bounded = true;
    indices.push_back(at);
  }
  return indices;
}

// What lies around the tensor, rounded as if it were stored there; null: 0.
ExprRef TileLowering::padding(const ir::TileRef& slice) {
  if (!slice.pad || planted(Planted::kPaddingIgnored)) return nullptr;
  return ir::make_cast({slice.buffer->type.dtype, nullptr}, slice.pad);
}

ExprRef TileLowering::load_element(const Slice& slice, const Site& site) {
  ExprRef guard;
  std::vector<ExprRef> indices = element(slice, site, &guard);
  return load(slice.ref->buffer, indices, &site, guard, padding(*slice.ref));
}

void TileLowering::statement(const ir::CopyStmt& copy) {
  comment(ir::print(copy.dst) + (copy.atomic == ir::AtomicOp::kNone ? " = " : " atomic= ") + ir::print(copy.src));
  Slice dst = slice(copy.dst), src = slice(copy.src);
  const ir::BufferRef& to = copy.dst.buffer;
  if (bulk_.plan && !bulk_.plan->by_threads.count(&copy)) return copy_bulk(copy, src);
  if (copy_parts(copy) || copy_part_of_registers(copy)) return;
  if (to->scope == ir::Scope::kGlobal && ir::bits(to->type.dtype) == 4) return copy_packed(dst, src);
  if (in_pairs(to)) return copy_pairs(copy, src);
  if (on_cpu() && !target_.generic && loop_depth_ == 0 && forward_copy(copy, src)) return;
  if (on_cpu() ? !target_.generic && copy_rows(copy, dst, src) : copy_vectors(copy, dst, src)) return;
  const ir::BufferRef& tile = in_registers(to) ? to : copy.src.buffer;
  each_of(tile, slice_shape(copy.dst), {}, [&](const Site& site) {
    ExprRef guard;
    std::vector<ExprRef> indices = element(dst, site, &guard);
    guard = in_bounds(to, indices, guard);
    if (!in_registers(to) && site.owner) guard = both(guard, site.owner);
    ExprRef value = convert(load_element(src, site), to->type.dtype);
    ExprRef at = offset(to, indices, &site);
    if (copy.atomic == ir::AtomicOp::kNone || planted(Planted::kAtomicLost))
      return store(storage(to), at, value, guard);
    LoopBlock body;
    body.push_back({LoopAtomic{storage(to), at, copy.atomic, value}});
    out_.float_atomics |= ir::is_float(to->type.dtype);
    if (guard)
      emit({LoopIf{guard, std::move(body), {}}});
    else
      emit(std::move(body[0]));
  });
}

// A 4-bit tensor is written a byte at a time by the one thread that owns both nibbles: slices start at even columns and
// are even (the verifier's rule), so no byte has two owners. A nibble outside of the tensor keeps its value.
void TileLowering::copy_packed(const Slice& dst, const Slice& src) {
  const ir::BufferRef& to = dst.ref->buffer;
  const DType type = to->type.dtype;
  std::vector<int64_t> shape = slice_shape(*dst.ref);
  std::vector<int64_t> pairs = shape;
  pairs.back() = (pairs.back() + 1) / 2;
  each(pairs, {}, false, [&](const Site& pair) {
    ExprRef guards[2], nibbles[2], first;
    for (int half = 0; half < 2; ++half) {
      Site site = pair;
      ExprRef column = ir::make_typed(Op::kMul, {pair.coords.back(), int64(2)});
      if (half) column = ir::make_typed(Op::kAdd, {column, int64(1)});
      site.coords.back() = let("column", column);
      ExprRef guard;
      std::vector<ExprRef> indices = element(dst, site, &guard);
      // The last column of an odd tile has no partner.
      if (half && shape.back() % 2)
        guard = both(guard, ir::make_typed(Op::kLt, {site.coords.back(), int64(shape.back())}));
      guard = in_bounds(to, indices, guard);
      guards[half] = guard ? let("inside", guard) : ir::make_bool(true);
      ExprRef value = ir::make_cast({type, nullptr}, load_element(src, site));
      nibbles[half] = let(half ? "high" : "low", ir::make_typed(Op::kBitAnd, {value, ir::make_int(15, DType::I32)}));
      if (!half) first = offset(to, indices, &site);
    }
    if (planted(Planted::kNibbleOrder)) std::swap(nibbles[0], nibbles[1]);
    ExprRef byte_at = ir::make_typed(Op::kDiv, {first, ir::make_int(2, first->type)});
    const ir::BufferRef& bytes = packed_.at(to.get());
    auto whole = [&] {
      ExprRef high = ir::make_typed(Op::kShl, {nibbles[1], ir::make_int(4, DType::I32)});
      store(bytes, byte_at, ir::make_typed(Op::kBitOr, {nibbles[0], high}), nullptr);
    };
    auto partly = [&](int half) {
      ExprRef old = ir::make_load(bytes, {byte_at});
      ExprRef keep = ir::make_typed(Op::kBitAnd, {old, ir::make_int(half ? 15 : 240, DType::I32)});
      ExprRef set = half ? ir::make_typed(Op::kShl, {nibbles[1], ir::make_int(4, DType::I32)}) : nibbles[0];
      store(bytes, byte_at, ir::make_typed(Op::kBitOr, {keep, set}), nullptr);
    };
    LoopBlock second_too = nested(whole), first_only = nested([&] { partly(0); }),
              second_only = nested([&] { partly(1); });
    LoopBlock with_first, without_first;
    with_first.push_back({LoopIf{guards[1], std::move(second_too), std::move(first_only)}});
    without_first.push_back({LoopIf{guards[1], std::move(second_only), {}}});
    emit({LoopIf{guards[0], std::move(with_first), std::move(without_first)}});
  });
}

void TileLowering::statement(const ir::FillStmt& fill) {
  comment(ir::print(fill.dst) + " = " + ir::print(fill.value));
  Slice dst = slice(fill.dst);
  const ir::BufferRef& to = fill.dst.buffer;
  ExprRef value = let("fill", convert(scalar(extract_reductions(fill.value, {}, {}), nullptr), to->type.dtype));
  if (in_pairs(to)) return store_pairs(to, slice_shape(fill.dst), [&](const Site&) { return value; });
  each_of(to, slice_shape(fill.dst), {}, [&](const Site& site) {
    ExprRef guard;
    std::vector<ExprRef> indices = element(dst, site, &guard);
    guard = in_bounds(to, indices, guard);
    store(storage(to), offset(to, indices, &site), value, guard);
  });
}

}  // namespace kachel::lowering
