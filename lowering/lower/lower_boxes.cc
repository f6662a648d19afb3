// Accumulators to a tensor by the copy engine, see box_stores.h and tile_lowering.h. A warp alone fills its boxes and
// starts their copies, so that no other warp waits. Source of the swizzle: PTX ISA, "Swizzling
// modes".
#include "lowering/lower/tile_lowering.h"
#include "lowering/planted.h"

namespace kachel::lowering {

using ir::DType;
using ir::ExprRef;
using ir::Op;
using Kind = LoopIntrinsic::Kind;

namespace {

constexpr int64_t kWarp = 32, kRows = 16, kNeighbours = 8;

ExprRef apply(Op op, const ExprRef& a, int64_t b) {
  return ir::make_typed(op, {a, int32(b)});
}

}  // namespace

bool TileLowering::store_boxes(const ir::CopyStmt& copy, const Slice& dst) {
  const auto chosen = placements_.boxes.find(&copy);
  if (chosen == placements_.boxes.end() || !chosen->second.columns) return false;
  const ir::BufferRef &to = copy.dst.buffer, &fragment = copy.src.buffer;
  const DType type = to->type.dtype;
  const FragmentLayout& layout = *placements_.at(fragment.get()).fragment;
  const FragmentLayout rows = *layout.matrix_rows();
  const int64_t width = chosen->second.columns, groups = width / kRows, elements = kRows * width;
  const int64_t buffers = chosen->second.buffers, warps = out_.threads / kWarp;  // of a team

  const ExprRef thread = ir::make_var(out_.thread);
  const ir::BufferRef boxes = temporary("boxes", type, ir::Scope::kShared, out_.teams * warps * buffers * elements);
  out_.buffers.back().of_warps = true;
  out_.buffers.back().alignment = 1024;  // eight rows of 128 bytes, as the swizzle counts them
  out_.float_atomics |= copy.atomic != ir::AtomicOp::kNone;
  const bool converts = fragment->type.dtype != type;
  const ir::BufferRef packed =
      converts ? temporary("packed", type, ir::Scope::kRegister, groups * kNeighbours) : storage(fragment);

  // A lane's row in a box, and which half of a group of columns its 16 bytes are.
  const ExprRef lane = let("lane", apply(Op::kMod, thread, kWarp)), row = let("row", apply(Op::kMod, lane, kRows));
  const ExprRef half = let("half", apply(Op::kDiv, lane, kRows));
  // Of rows of 128, 64 or 32 bytes: bits 4 to 6 of the address, as many as tell the chunks apart, are exchanged with 7
  // to 9.
  const int64_t chunks = width * ir::bits(type) / 128;  // of a row
  const auto turn_of = [chunks](const ExprRef& at) { return apply(Op::kMod, apply(Op::kDiv, at, 8 / chunks), chunks); };
  const ExprRef exchanged = let("exchanged", turn_of(row));
  const ExprRef before = out_.team ? times(ir::make_var(out_.team), warps) : nullptr;
  const ExprRef warp = plus(before, apply(Op::kDiv, thread, kWarp));
  const ExprRef first_box = let("box", times(warp, buffers * elements));

  // Where the warp's part of the tile begins, and the tile in the tensor.
  std::vector<ExprRef> starts, places;
  for (size_t axis = 0; axis < rows.shape().size(); ++axis) {
    ExprRef place;
    int64_t scale = 1;
    for (const FragmentLayout::Digit& digit : rows.axes()[axis]) {
      if (digit.in_thread && digit.stride >= kWarp)
        place = plus(place, times(digit_of(thread, digit, rows.threads()), scale));
      scale *= digit.radix;
    }
    places.push_back(place);
  }
  size_t next = 0;
  for (size_t axis = 0; axis < to->shape.size(); ++axis) {
    ExprRef start = box_coordinate(dst.starts[axis]);
    if (copy.dst.axes[axis].kind != ir::AxisSpec::Kind::kIndex)
      if (const ExprRef& place = places[next++]) start = let("at", plus(start, place));
    starts.push_back(start);
  }
  const int64_t map = map_of(dst, kRows, width);

  // Copies that may still read when a box is written again: those of the boxes since. The first box of a tile follows
  // the last one of the tile before.
  auto await = [&](int64_t copies) {
    if (!planted(Planted::kBoxNotAwaited)) emit(marker(Kind::kBulkStoreWait, copies));
  };
  const int64_t count = layout.registers() / (groups * kNeighbours);
  auto first_of = [&](const ExprRef& number) { return times(number, groups * kNeighbours); };
  auto box_of = [&](const ExprRef& number) {
    return plus(first_box, times(apply(Op::kMod, number, buffers), elements));
  };
  // Pairs as the lanes hold them: of each eight columns those of a row in four lanes, of that row and of the eighth one
  // after it.
  auto fill_wide = [&](const ExprRef& number) {
    const ExprRef first = first_of(number), box = box_of(number);
    in_threads(out_.threads, [&](const ExprRef& e) {
      const ExprRef at = apply(Op::kMod, e, kWarp), own = let("row", apply(Op::kDiv, at, 4)),
                    pair = apply(Op::kMod, at, 4);
      for (int64_t part = 0; part < 2 * groups; ++part)
        for (int64_t below = 0; below < 2; ++below) {
          const ExprRef down = below ? plus(own, int32(kNeighbours)) : own;
          const ExprRef of_row = plus(int32(2 * part), apply(Op::kDiv, pair, 2));
          const ExprRef chunk = ir::make_typed(Op::kBitXor, {of_row, turn_of(down)});
          const ExprRef column = plus(times(chunk, 4), times(apply(Op::kMod, pair, 2), 2));
          move(Kind::kCopyVector, boxes, plus(plus(box, times(down, width)), column), storage(fragment),
               plus(first, int32(4 * part + 2 * below)), 2, nullptr);
        }
    });
  };
  auto fill = [&](const ExprRef& number) {
    if (ir::bits(type) == 32) return fill_wide(number);
    const ExprRef first = first_of(number), box = box_of(number);
    for (int64_t pair = 0; converts && pair < groups * kNeighbours; pair += 2) {
      LoopIntrinsic two{Kind::kConvertPair, {}, nullptr};
      two.type = type;
      two.operands = {{packed, int32(pair), 2, true}, {storage(fragment), plus(first, int32(pair)), 2, false}};
      emit({std::move(two)});
    }
    for (int64_t group = 0; group < groups; ++group) {
      const ExprRef chunk = ir::make_typed(Op::kBitXor, {plus(half, int32(2 * group)), exchanged});
      LoopIntrinsic write{Kind::kStoreMatrix, {}, nullptr};
      write.immediate = 4;
      write.type = type;
      write.operands = {{boxes, plus(plus(box, times(row, width)), times(chunk, kNeighbours)), kNeighbours, true},
                        {packed, plus(converts ? int32(0) : first, int32(group * kNeighbours)), kNeighbours, false}};
      emit({std::move(write)});
    }
  };
  auto send = [&](const ExprRef& number) {
    const ExprRef first = first_of(number), box = box_of(number);
    LoopIntrinsic store{Kind::kBulkStore, {}, nullptr};
    store.immediate = map;
    store.adds = copy.atomic != ir::AtomicOp::kNone && !planted(Planted::kAtomicLost);
    store.operands = {{storage(to), int32(0), elements, true}, {boxes, box, elements, false}};
    size_t axis = 0;
    std::vector<ExprRef> coordinates;
    for (size_t i = 0; i < to->shape.size(); ++i) {
      ExprRef at = starts[i];
      if (copy.dst.axes[i].kind != ir::AxisSpec::Kind::kIndex) {
        int64_t scale = 1;
        for (const FragmentLayout::Digit& digit : rows.axes()[axis]) {
          if (!digit.in_thread && digit.stride >= kNeighbours)
            at = plus(at, times(digit_of(first, digit, layout.registers()), scale));
          scale *= digit.radix;
        }
        ++axis;
      }
      coordinates.push_back(at);
    }
    store.coordinates.assign(coordinates.rbegin(), coordinates.rend());
    emit({std::move(store)});
  };
  if (count == buffers) {  // one fence is waited for, not one after another
    await(0);
    unrolled("number", count, fill);
    unrolled("number", count, send);
    return true;
  }
  if (count % buffers) await((count - 1) % buffers);
  unrolled("number", count, [&](const ExprRef& number) {
    await(buffers - 1);
    fill(number);
    send(number);
  });
  return true;
}

}  // namespace kachel::lowering
