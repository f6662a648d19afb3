// Copies by wide accesses: 16 bytes where the facts, the bounds and the layouts allow it, narrower where they do not.
// See tile_lowering.h.
#include <algorithm>
#include <map>
#include <numeric>

#include "ir/print.h"
#include "lowering/lower/tile_lowering.h"
#include "lowering/machine/machine.h"
#include "lowering/planted.h"

namespace kachel::lowering {

using ir::AxisSpec;
using ir::DType;
using ir::ExprRef;
using ir::Op;
using Kind = LoopIntrinsic::Kind;

namespace {

// Accesses of a thread between memory and memory, beyond which they are loops: a thousand take the assembler minutes.
constexpr int64_t kMostUnrolled = 256;

ExprRef or_pad(const ExprRef& value, const ExprRef& inside, const ExprRef& pad) {
  return pad && inside ? ir::make_typed(Op::kSelect, {inside, value, pad}) : value;
}

}  // namespace

void TileLowering::move(Kind kind, const ir::BufferRef& to, ExprRef to_index, const ir::BufferRef& from,
                        ExprRef from_index, int64_t elements, ExprRef guard) {
  LoopIntrinsic copy{kind, {}, std::move(guard)};
  copy.type = to->type.dtype;
  copy.operands = {{to, std::move(to_index), elements, true}, {from, std::move(from_index), elements, false}};
  emit({std::move(copy)});
}

// Between memory, by way of registers: what is read does not wait for what is written where `written` says. `pad`: of
// what is not read; null: 0.
void TileLowering::move_by_registers(const ir::BufferRef& to, const ExprRef& to_index, const ir::BufferRef& from,
                                     const ExprRef& from_index, int64_t elements, const ExprRef& read,
                                     const ExprRef& written, const ExprRef& pad) {
  ir::BufferRef raw = temporary("raw", storage_type(from->type.dtype), ir::Scope::kRegister, elements);
  const ExprRef zero = ir::make_int(0, DType::I32);
  const ExprRef inside = pad && read ? let("inside", read) : read;
  move(Kind::kCopyVector, raw, zero, storage(from), from_index, elements, both(written, inside));
  if (to->type.dtype != from->type.dtype || (pad && inside)) {
    const ir::BufferRef made = temporary("made", storage_type(to->type.dtype), ir::Scope::kRegister, elements);
    for (int64_t i = 0; i < elements; ++i) {
      const ExprRef at = ir::make_int(i, DType::I32);
      const ExprRef of = planted(Planted::kConvertedRest) ? ir::make_int(i % (elements / 2), DType::I32) : at;
      store(made, at, convert(or_pad(ir::make_load(raw, {of}), inside, pad), to->type.dtype), nullptr);
    }
    raw = made;
  }
  const auto write = [&] { move(Kind::kCopyVector, storage(to), to_index, raw, zero, elements, nullptr); };
  if (!written) return write();
  emit({LoopIf{written, nested(write), {}}});
}

// A vector is inside or outside of its row as a whole: where rows end and where slices begin are multiples of it.
int64_t TileLowering::vector_width(const Slice& slice) const {
  const ir::TileRef& ref = *slice.ref;
  const ir::BufferRef& buffer = ref.buffer;
  const AxisSpec& last = ref.axes.back();
  if (last.kind == AxisSpec::Kind::kIndex || last.kind == AxisSpec::Kind::kGather) return 1;
  const DType stored = buffer->scope == ir::Scope::kGlobal ? buffer->type.dtype : storage_type(buffer->type.dtype);
  if (ir::bits(stored) < 8) return 1;
  const int64_t bytes = ir::bits(stored) / 8;
  const bool one_axis = std::none_of(ref.axes.begin(), ref.axes.end() - 1,
                                     [](const AxisSpec& axis) { return axis.kind != AxisSpec::Kind::kIndex; });
  if (ref.within_first && one_axis) return 1;  // its bound may cut a vector
  int64_t width = 16 / bytes;
  if (buffer->scope == ir::Scope::kGlobal) {
    width = vector_bytes(kernel_, fact_mask_, buffer) / bytes;
  } else {
    const Layout& layout = placements_.at(buffer.get()).layout;
    for (size_t axis = 0; axis + 1 < ref.axes.size(); ++axis)
      while (layout.axis_stride(axis) % width) width /= 2;
    while (buffer->shape.back()->int_value % width) width /= 2;
  }
  const int64_t extent = slice_shape(ref).back();
  while (extent % width) width /= 2;
  if (slice.starts.back())
    while (out_.ranges.multiple_of(slice.starts.back()) % width) width /= 2;
  return width;
}

ExprRef TileLowering::vector_at(const Slice& slice, const Site& site, ExprRef* guard) {
  std::vector<ExprRef> indices = element(slice, site, guard);
  *guard = in_bounds(slice.ref->buffer, indices, *guard);
  return offset(slice.ref->buffer, indices, &site, planted(Planted::kCopySwizzle));
}

bool TileLowering::copy_vectors(const ir::CopyStmt& copy, const Slice& dst, const Slice& src) {
  if (store_boxes(copy, dst)) return true;
  const ir::BufferRef &to = copy.dst.buffer, &from = copy.src.buffer;
  if (on_cpu() || target_.generic) return false;
  const bool adds = copy.atomic != ir::AtomicOp::kNone;
  if (adds && !in_registers(from)) return false;
  const ExprRef pad = padding(copy.src);
  if (pad && storage_type(from->type.dtype) != from->type.dtype) return false;
  const bool to_register = in_registers(to), from_register = in_registers(from);
  if (to_register && from_register) return copy_registers(copy);
  if (ir::bits(to->type.dtype) < 8 || ir::bits(from->type.dtype) < 8) return false;
  const std::vector<int64_t> shape = slice_shape(copy.dst);

  if (!to_register && !from_register) {
    const bool converts = to->type.dtype != from->type.dtype;
    if ((converts || pad) && runs_ahead_) return false;
    const int64_t bytes = std::max(ir::bits(to->type.dtype), ir::bits(from->type.dtype)) / 8;
    const int64_t apart = std::min(vector_width(dst), vector_width(src));
    const int64_t width = std::max(apart, std::min(joined_width(dst), joined_width(src)));
    const auto at = [&](const Slice& side, const Site& site, ExprRef* guard) {
      return width > apart ? joined_at(side, site, guard) : vector_at(side, site, guard);
    };
    if (width * bytes < 4 || width < (converts ? 2 : 1)) return false;
    auto one = [&](const Site& site) {
      ExprRef from_guard, to_guard;
      ExprRef from_at = at(src, site, &from_guard), to_at = at(dst, site, &to_guard);
      if (planted(Planted::kVectorGuard)) from_guard = nullptr;
      if (planted(Planted::kNoZeroFill)) to_guard = both(to_guard, std::exchange(from_guard, nullptr));
      // What lies outside of the source is zero; what lies outside of the destination is not written.
      if (!runs_ahead_ && (converts || pad || to_guard || site.inside))
        return move_by_registers(to, to_at, from, from_at, width, from_guard, both(site.inside, to_guard), pad);
      auto emit_move = [&] {
        move(runs_ahead_ ? Kind::kCopyAsync : Kind::kCopyVector, storage(to), to_at, storage(from), from_at, width,
             from_guard);
      };
      if (!to_guard) return emit_move();
      emit({LoopIf{to_guard, nested(emit_move), {}}});
    };
    WalkOptions options;
    options.keeps_bounds = !runs_ahead_;
    options.most_unrolled = kMostUnrolled * width;
    const auto owned = [&](const Site& site) {
      if (!site.owner) return one(site);
      emit({LoopIf{site.owner, nested([&] { one(site); }), {}}});
    };
    std::vector<int64_t> walked = shape;
    if (width > apart) {
      walked.pop_back();
      walked.back() *= shape.back();
    }
    each_in(FragmentLayout::blocked(walked, width, copiers_), {"row", "column"}, width, owned, options);
    return true;
  }

  if (from_register && !adds && (copy_quads(copy, dst) || copy_matrices(copy, dst))) return true;
  const ir::BufferRef& fragment = to_register ? to : from;
  const ir::BufferRef& memory = to_register ? from : to;
  const FragmentLayout& layout = *placements_.at(fragment.get()).fragment;
  const int64_t most = most_stored(copy.atomic, memory->type.dtype, target_.architecture);
  int64_t width = std::gcd(layout.vector(), vector_width(to_register ? src : dst));  // a power of two
  while (width > most) width /= 2;
  if (width < 2) return false;
  out_.float_atomics |= adds;
  const bool pairs = !to_register && rounds_in_pairs(memory->type.dtype) && fragment->type.dtype == DType::F32;
  const DType stored = storage_type(memory->type.dtype);
  each_in(layout, {"row", "column"}, width, [&](const Site& site) {
    const ExprRef slot = offset(fragment, fragment_indices(site), &site);
    auto slot_at = [&](int64_t i) { return i ? ir::make_typed(Op::kAdd, {slot, ir::make_int(i, DType::I32)}) : slot; };
    ExprRef guard;
    const ExprRef at = vector_at(to_register ? src : dst, site, &guard);
    const bool converts = fragment->type.dtype != memory->type.dtype || stored != memory->type.dtype || pad;
    const ir::BufferRef raw = converts ? temporary("raw", stored, ir::Scope::kRegister, width) : storage(fragment);
    auto raw_at = [&](int64_t i) { return ir::make_int(i, DType::I32); };
    if (to_register) {
      if (pad && guard) guard = let("inside", guard);
      move(Kind::kCopyVector, raw, converts ? raw_at(0) : slot, storage(memory), at, width, guard);
      for (int64_t i = 0; converts && i < width; ++i) {
        const ExprRef value = or_pad(ir::make_load(raw, {raw_at(i)}), guard, pad);
        store(storage(fragment), slot_at(i), convert(value, fragment->type.dtype), nullptr);
      }
      return;
    }
    for (int64_t i = 0; converts && i < width; i += pairs ? 2 : 1) {
      if (!pairs) {
        store(raw, raw_at(i), convert(ir::make_load(storage(fragment), {slot_at(i)}), memory->type.dtype), nullptr);
        continue;
      }
      LoopIntrinsic pair{Kind::kConvertPair, {}, nullptr};
      pair.type = memory->type.dtype;
      pair.operands = {{raw, raw_at(i), 2, true}, {storage(fragment), slot_at(i), 2, false}};
      emit({std::move(pair)});
    }
    if (site.owner) guard = both(guard, site.owner);
    auto write = [&] {
      move(adds && !planted(Planted::kAtomicLost) ? Kind::kAddVector : Kind::kCopyVector, storage(memory), at, raw,
           converts ? raw_at(0) : slot, width, nullptr);
    };
    if (!guard) return write();
    emit({LoopIf{guard, nested(write), {}}});
  });
  return true;
}

// A part of the last axis of what registers hold: to others of the thread, or to memory by whoever holds it.
bool TileLowering::copy_part_of_registers(const ir::CopyStmt& copy) {
  const ir::BufferRef &to = copy.dst.buffer, &from = copy.src.buffer;
  if (!in_registers(from) || is_whole(copy.src) || !placements_.at(from.get()).fragment) return false;
  const int64_t first = *start_of_part(copy.src), extent = tile_shape(to).back();
  const FragmentLayout& held = *placements_.at(from.get()).fragment;
  if (in_registers(to)) {
    const FragmentLayout& layout = *placements_.at(to.get()).fragment;
    std::map<std::vector<int64_t>, int64_t> registers;  // of a thread; all have the same
    for (int64_t i = 0; i < held.registers(); ++i) registers.emplace(held.coordinates(0, i), i);
    for (int64_t i = 0; i < layout.registers(); ++i) {
      std::vector<int64_t> place = layout.coordinates(0, i);
      place.back() += planted(Planted::kMovedPart) ? 0 : first;
      const ExprRef value = ir::make_load(storage(from), {ir::make_int(registers.at(place), DType::I32)});
      store(storage(to), ir::make_int(i, DType::I32), convert(value, to->type.dtype), nullptr);
    }
    return true;
  }
  each_of(from, tile_shape(from), {}, [&](const Site& site) {
    std::vector<ExprRef> place = site.coords;
    const ExprRef start = ir::make_int(first, place.back()->type), size = ir::make_int(extent, place.back()->type);
    place.back() = let("at", ir::make_typed(Op::kSub, {place.back(), start}));
    ExprRef guard = both(ir::make_typed(Op::kGe, {place.back(), ir::make_int(0, place.back()->type)}),
                         ir::make_typed(Op::kLt, {place.back(), size}));
    if (site.owner) guard = both(guard, site.owner);
    const ExprRef value = ir::make_load(storage(from), {offset(from, site.coords, &site)});
    store(storage(to), offset(to, place, &site), convert(value, to->type.dtype), guard);
  });
  return true;
}

// Both sides have one layout, so elements keep their registers.
bool TileLowering::copy_registers(const ir::CopyStmt& copy) {
  const ir::BufferRef &to = copy.dst.buffer, &from = copy.src.buffer;
  if (!placements_.at(to.get()).fragment) return false;
  const FragmentLayout& layout = *placements_.at(to.get()).fragment;
  const int64_t word = 32 / ir::bits(to->type.dtype);  // elements
  if (to->type.dtype == from->type.dtype && word > 1 && layout.registers() % word == 0) {
    unrolled("word", layout.registers() / word, [&](const ExprRef& number) {
      const ExprRef first = times(number, word);
      move(Kind::kCopyVector, storage(to), first, storage(from), first, word, nullptr);
    });
    return true;
  }
  const bool pairs = rounds_in_pairs(to->type.dtype) && from->type.dtype == DType::F32 && layout.vector() % 2 == 0;
  unrolled("r", layout.registers() / (pairs ? 2 : 1), [&](ExprRef number) {
    if (!pairs) {
      ExprRef value = ir::make_load(storage(from), {number});
      return store(storage(to), number, convert(value, to->type.dtype), nullptr);
    }
    ExprRef first = ir::make_typed(Op::kMul, {number, ir::make_int(2, DType::I32)});
    if (planted(Planted::kSwappedPair)) {
      const ExprRef second = ir::make_typed(Op::kAdd, {first, ir::make_int(1, DType::I32)});
      store(storage(to), first, ir::make_load(storage(from), {second}), nullptr);
      return store(storage(to), second, ir::make_load(storage(from), {first}), nullptr);
    }
    LoopIntrinsic pair{Kind::kConvertPair, {}, nullptr};
    pair.type = to->type.dtype;
    pair.operands = {{storage(to), first, 2, true}, {storage(from), first, 2, false}};
    emit({std::move(pair)});
  });
  return true;
}

}  // namespace kachel::lowering
