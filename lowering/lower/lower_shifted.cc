// Copies by the producer's threads from rows that begin anywhere: 16 bytes of shared memory come from the two aligned
// 16 bytes of a tensor that they lie in, shifted in registers. A round is as many copies as a thread has registers for,
// all of whose loads are issued before the first result is stored. See tile_lowering.h.
//
// Aligned 16 bytes with an element of a tensor in them never begin outside of the tensor's allocation, but may end
// there. So they are loaded where the row goes on for 32 bytes, and its end is copied an element at a time.
#include <algorithm>

#include "ir/print.h"
#include "lowering/lower/tile_lowering.h"
#include "lowering/planted.h"

namespace kachel::lowering {

using ir::DType;
using ir::ExprRef;
using ir::Op;
using Kind = LoopIntrinsic::Kind;

namespace {

constexpr int64_t kBytes = 16, kLoaded = 2 * kBytes;
constexpr int64_t kMostCopies = 8;        // of a thread and a round
constexpr int64_t kRegistersBeside = 56;  // for addresses and bounds
constexpr int64_t kRegistersOfCopy = kLoaded / 4;

int64_t ceildiv(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

}  // namespace

ShiftedPlace TileLowering::shifted_place(const Slice& src, const Site& site, int64_t width) {
  auto zero = [] { return ir::make_int(0, DType::I64); };
  auto within = [&](const ExprRef& value) {
    const ExprRef clamped =
        ir::make_typed(Op::kMin, {ir::make_typed(Op::kMax, {value, zero()}), ir::make_int(width, DType::I64)});
    return ir::make_cast({DType::I32, nullptr}, clamped);
  };
  const ir::BufferRef& from = src.ref->buffer;
  ExprRef guard;
  const std::vector<ExprRef> indices = element(src, site, &guard);
  guard = in_bounds(from, {indices.begin(), indices.end() - 1}, guard);
  const ExprRef column = let("column", indices.back());
  const ExprRef left = let("left", ir::make_typed(Op::kSub, {scalar(from->shape.back(), nullptr), column}));
  ShiftedPlace place;
  place.at = offset(from, indices, &site);
  place.first = ir::make_int(0, DType::I32);
  place.end = planted(Planted::kShiftedEnd) ? ir::make_int(width, DType::I32) : within(left);
  if (guard) {
    guard = let("inside", guard);
    place.end = ir::make_typed(Op::kSelect, {guard, place.end, ir::make_int(0, DType::I32)});
  }
  place.whole = both(guard, ir::make_typed(Op::kGe, {left, ir::make_int(2 * width, DType::I64)}));
  if (!out_.ranges.proves_nonnegative(column)) {
    place.first = let("first", within(ir::make_typed(Op::kSub, {zero(), column})));
    place.whole = both(place.whole, ir::make_typed(Op::kGe, {column, zero()}));
  }
  place.whole = let("whole", place.whole);
  return place;
}

void TileLowering::copy_shifted(const std::vector<const ir::CopyStmt*>& copies) {
  struct Sides {
    const ir::CopyStmt* copy;
    Slice dst, src;
  };
  struct Part {  // of the rows of a tile
    const Sides* sides;
    ExprRef first;  // null: 0
    FragmentLayout layout;
    ir::BufferRef loaded;
  };
  std::vector<Part> round;
  int64_t held = 0;
  auto width_of = [](const Part& part) { return kBytes * 8 / ir::bits(part.sides->copy->dst.buffer->type.dtype); };
  auto each_of_part = [&](const Part& part, const std::function<void(const Site&, const ExprRef&)>& body) {
    each_in(part.layout, {"row", "column"}, width_of(part), [&](Site site) {
      std::vector<size_t> axes(site.coords.size());
      for (size_t axis = 0; axis < axes.size(); ++axis) axes[axis] = axis;
      const ExprRef number = times(register_of(part.layout, axes, site), 2);
      auto run = [&] {
        if (part.first) site.coords[0] = let("row", ir::make_typed(Op::kAdd, {site.coords[0], part.first}));
        body(site, number);
      };
      if (!site.owner) return run();
      emit({LoopIf{site.owner, nested(run), {}}});
    });
  };
  auto flush = [&] {
    for (Part& part : round) {
      const DType type = part.sides->copy->dst.buffer->type.dtype;
      part.loaded = temporary("loaded", type, ir::Scope::kRegister, 2 * part.layout.registers());
      each_of_part(part, [&](const Site& site, const ExprRef& number) {
        const int64_t width = width_of(part);
        const ShiftedPlace place = shifted_place(part.sides->src, site, width);
        LoopIntrinsic load{Kind::kLoadShifted, {}, place.whole};
        load.operands = {{part.loaded, number, 2 * width, true},
                         {storage(part.sides->src.ref->buffer), place.at, width, false}};
        emit({std::move(load)});
      });
    }
    for (const Part& part : round)
      each_of_part(part, [&](const Site& site, const ExprRef& number) {
        const int64_t width = width_of(part);
        const ShiftedPlace place = shifted_place(part.sides->src, site, width);
        ExprRef whole_tile;
        const ExprRef to = vector_at(part.sides->dst, site, &whole_tile);
        LoopIntrinsic store{Kind::kStoreShifted, {}, place.whole};
        store.operands = {{storage(part.sides->copy->dst.buffer), to, width, true},
                          {part.loaded, number, 2 * width, false},
                          {storage(part.sides->src.ref->buffer), place.at, width, false}};
        store.coordinates = {place.first, place.end};
        emit({std::move(store)});
      });
    round.clear();
    held = 0;
  };
  const int registers = schedule_.roles.back().registers;
  const int64_t most =
      registers ? std::clamp((registers - kRegistersBeside) / kRegistersOfCopy, int64_t{1}, kMostCopies) : kMostCopies;
  std::vector<Sides> sides;
  for (const ir::CopyStmt* copy : copies) {
    comment(ir::print(copy->dst) + " = " + ir::print(copy->src));
    sides.push_back({copy, slice(copy->dst), slice(copy->src)});
  }
  for (const Sides& both_sides : sides) {
    const ir::BufferRef& to = both_sides.copy->dst.buffer;
    std::vector<int64_t> shape = slice_shape(both_sides.copy->dst);
    const int64_t width = kBytes * 8 / ir::bits(to->type.dtype), rows = shape[0];
    auto share = [&] { return ceildiv(product(shape) / width, out_.copiers); };
    while (shape.size() > 1 && share() > most && shape[0] % 2 == 0) shape[0] /= 2;
    auto part_at = [&](const ExprRef& first) {
      round.push_back({&both_sides, first, FragmentLayout::blocked(shape, width, out_.copiers), nullptr});
      held += share();
    };
    if (shape[0] == rows) {
      if (held && held + share() > most) flush();
      part_at(nullptr);
      continue;
    }
    flush();
    LoopFor parts;
    parts.var = make_local("part", DType::I64, ir::VarKind::kLoop);
    parts.begin = int64(0);
    parts.end = int64(rows / shape[0]);
    out_.ranges.set(parts.var, {0, rows / shape[0] - 1});
    parts.body = nested([&] {
      part_at(let("first", times(ir::make_var(parts.var), shape[0])));
      flush();
    });
    emit({std::move(parts)});
  }
  flush();
}

}  // namespace kachel::lowering
