// From the number of a tile to its place in the grid. See tile_lowering.h.
#include <algorithm>
#include <limits>

#include "lowering/lower/tile_lowering.h"
#include "lowering/machine/machine.h"
#include "lowering/plan/l2_priority.h"
#include "lowering/planted.h"

namespace kachel::lowering {

using ir::DType;
using ir::ExprRef;
using ir::Op;
using ir::VarKind;

namespace {

ExprRef round_up_div(const ExprRef& a, const ExprRef& b) {
  return apply(Op::kDiv, apply(Op::kSub, apply(Op::kAdd, a, b), ir::make_int(1, a->type)), b);
}
ExprRef from_end(const ExprRef& extent, const ExprRef& place) {
  return apply(Op::kSub, apply(Op::kSub, extent, ir::make_int(1, extent->type)), place);
}
ExprRef as_float(const ExprRef& value) {
  return ir::make_cast({DType::F32, nullptr}, value);
}

}  // namespace

// Places are counted in 32 bits on a GPU, whose grids have fewer than 2^31 tiles: a block begins with these divisions,
// one thread waiting for each step, and with 64 bits they took half a microsecond.
DType TileLowering::place_type() const {
  return on_cpu() || target_.generic ? DType::I64 : DType::U32;
}
ExprRef TileLowering::place_number(int64_t value) const {
  return ir::make_int(value, place_type());
}
// A name for an intermediate of a place, which is at least `least`.
ExprRef TileLowering::place(const char* name, const ExprRef& value, int64_t least) {
  const ExprRef narrow = value->type == place_type() ? value : ir::make_cast({place_type(), nullptr}, value);
  const ExprRef named = let(name, narrow);
  if (named->kind == ir::ExprKind::kVar && place_type() == DType::U32)
    out_.ranges.set(named->var, {least, std::numeric_limits<int32_t>::max()});
  return named;
}

Division TileLowering::divided(const ExprRef& a, const ExprRef& b) {
  if (place_type() == DType::I64) return {apply(Op::kDiv, a, b), apply(Op::kMod, a, b)};
  const ExprRef part = place("part", apply(Op::kDiv, a, b));
  return {part, apply(Op::kSub, a, apply(Op::kMul, part, b))};
}

// Groups of whole rows of tiles; within a group column by column. What is left of `rest` counts the axes before. Where
// the grid has an order of its own, all axes but the last make the rows, and `rest` is the row: columns go backwards
// there because their tiles are of unequal length, the longest last (or forwards, if it is first). Groups are even
// then, and every second one goes the other way, the last one as said, so that tiles near each other are of like length
// across groups too.
std::vector<ExprRef> TileLowering::raster(const std::vector<ExprRef>& extents, const std::vector<size_t>& order,
                                          ExprRef* rest) {
  const size_t x = order.back(), y = order[order.size() - 2];
  const bool all = !schedule_.order.empty();
  ExprRef plane = *rest;
  if (order.size() > 2 && !all) {
    const ExprRef tiles = place("plane", apply(Op::kMul, extents[x], extents[y]), 1);
    const Division planes = divided(*rest, tiles);
    plane = place("in_plane", planes.rest);
    *rest = planes.quotient;
  }
  const ExprRef all_rows =
      all ? divided(place("all_tiles", ir::make_var(out_.tiles)), extents[x]).quotient : extents[y];
  ExprRef most = place_number(schedule_.raster);
  if (schedule_.row_bytes) {
    const ExprRef bytes = apply(Op::kMax, index(schedule_.row_bytes, nullptr), int64(1));
    const auto held = static_cast<double>(machine_of(target_.architecture).l2_bytes * 3 / 4);
    const ExprRef rows = apply(Op::kMul, ir::make_float(held), ir::make_typed(Op::kRcp, {as_float(bytes)}, true));
    const ExprRef fit = apply(Op::kMax, ir::make_cast({DType::I32, nullptr}, rows), int32(1));
    most = place("most_rows", apply(Op::kMin, fit, int32(schedule_.raster)), 1);
  }
  if (all) most = place("even_rows", round_up_div(all_rows, place("groups", round_up_div(all_rows, most), 1)), 1);
  const ExprRef together = apply(Op::kMin, most, all_rows);  // so that their tiles are as few as all
  const ExprRef group = place("group_tiles", apply(Op::kMul, extents[x], together), 1);
  const Division groups = divided(plane, group);
  const ExprRef first = place("first_row", apply(Op::kMul, groups.quotient, most));
  const ExprRef in_group = place("in_group", groups.rest);
  const ExprRef rows = place("rows", apply(Op::kMin, apply(Op::kSub, all_rows, first), most), 1);
  // All groups but the last have as many rows, by which a shift divides where it is a power of two.
  ExprRef column = apply(Op::kDiv, in_group, rows);
  if (most->kind == ir::ExprKind::kInt && place_type() == DType::U32)
    column = ir::make_typed(Op::kSelect, {apply(Op::kEq, rows, most), apply(Op::kDiv, in_group, most), column});
  column = place("column", column);
  const ExprRef row = apply(Op::kAdd, first, apply(Op::kSub, in_group, apply(Op::kMul, column, rows)));
  std::vector<ExprRef> places(extents.size());
  if (!all) {
    places[x] = column;
    places[y] = row;
    return places;
  }
  *rest = place("row", row);
  const ExprRef groups_after =
      apply(Op::kDiv, apply(Op::kSub, all_rows, apply(Op::kAdd, first, place_number(1))), most);
  const ExprRef forwards = apply(Op::kEq, apply(Op::kMod, groups_after, place_number(2)), place_number(1));
  const ExprRef back = from_end(extents[x], column);
  const bool falls = schedule_.forwards.count(x) != 0;
  places[x] = ir::make_typed(Op::kSelect, {forwards, falls ? back : column, falls ? column : back});
  return places;
}

// Tile number `tile` counts grid points, or the clusters that cover the grid, the last axis of the order fastest. The
// places are I64.
std::vector<ExprRef> TileLowering::places_of(const ExprRef& tile, const std::vector<size_t>& order) {
  std::vector<ExprRef> extents(order.size());
  for (size_t axis = 0; axis < order.size(); ++axis) {
    if (!grid_extents_[axis]) continue;
    extents[axis] = place("extent", grid_extents_[axis], 1);
    if (!clusters_along(axis)) continue;
    const ExprRef filled = apply(Op::kAdd, extents[axis], place_number(schedule_.cluster[axis] - 1));
    extents[axis] = place("clusters", apply(Op::kDiv, filled, place_number(schedule_.cluster[axis])), 1);
  }
  ExprRef rest = place("number", tile);
  std::vector<ExprRef> places(order.size()), together;  // by axis: its place, where tiles are walked in groups of rows
  if (schedule_.raster > 1) together = raster(extents, order, &rest);
  for (size_t i = order.size(); i-- > 0;) {
    const size_t axis = order[i];
    const bool placed = !together.empty() && together[axis];
    const bool last = i == 0 || placed;  // of those that count `rest`
    const Division parts = last ? Division{nullptr, placed ? together[axis] : rest} : divided(rest, extents[axis]);
    ExprRef value = parts.rest;
    if (schedule_.backwards.count(axis) && !placed) value = from_end(extents[axis], value);
    if (planted(Planted::kGridOrder) && i > 0) value = apply(Op::kDiv, rest, extents[axis]);
    places[axis] = value->type == DType::I64 ? value : ir::make_cast({DType::I64, nullptr}, value);
    if (!last) rest = parts.quotient;
  }
  return places;
}

void TileLowering::open_grid() {
  out_.tile = make_local("tile", DType::I64, VarKind::kGrid);
  out_.tiles = make_local("tiles", DType::I64, VarKind::kScalar);
  out_.ranges.set(out_.tile, {0, int64_t{1} << 62});
  out_.params.push_back({{Slot::Kind::kBlocks, 0, 0}, out_.tiles, nullptr});
  std::vector<size_t> order = schedule_.order;
  for (size_t i = 0; order.size() < kernel_.grid.size(); ++i) order.push_back(i);
  grid_extents_.assign(kernel_.grid.size(), nullptr);
  for (size_t i = 0; i < order.size(); ++i) {
    const size_t axis = order[i];
    const bool in_raster = schedule_.raster > 1 && i + 2 >= order.size();
    if (i == 0 && !in_raster && !schedule_.is_uneven(axis) && !counts_readers(axis) && !clusters_along(axis)) continue;
    ir::VarRef extent = make_local(kernel_.grid[axis].var->name + "_extent", DType::I64, VarKind::kScalar);
    out_.ranges.set(extent, {1, kMaxDim});
    out_.params.push_back({{Slot::Kind::kGrid, static_cast<int>(axis), 0}, extent, nullptr});
    grid_extents_[axis] = ir::make_var(extent);
  }
  const std::vector<ExprRef> places =
      schedule_.cluster.empty() ? places_of(ir::make_var(out_.tile), order) : places_in_cluster(order);
  for (size_t i = order.size(); i-- > 0;) {
    const size_t axis = order[i];
    const ir::VarRef& var = kernel_.grid[axis].var;
    emit({LoopLet{var, places[axis]}});
    // A grid axis is as long as its extent can be.
    const Interval extent = out_.ranges.of(kernel_.grid[axis].extent);
    out_.ranges.set(var, {0, std::clamp<int64_t>(extent.hi, 1, kMaxDim) - 1});
    out_.ranges.set_limit(var, kernel_.grid[axis].extent);
  }
  decide_l2_policies();
}

// The block's place in its cluster along an axis, I32.
ExprRef TileLowering::rank_along(size_t axis) const {
  const ExprRef part = apply(Op::kDiv, ir::make_var(out_.rank), int32(rank_step(schedule_.cluster, axis)));
  return apply(Op::kMod, part, int32(schedule_.cluster[axis]));
}

// A cluster's tiles are a rectangle of the grid. Beyond its edge stands the last tile once more.
std::vector<ExprRef> TileLowering::places_in_cluster(const std::vector<size_t>& order) {
  const ExprRef number = apply(Op::kDiv, ir::make_var(out_.tile), int64(blocks_of(schedule_.cluster)));
  std::vector<ExprRef> places = places_of(number, order);
  ExprRef real;
  for (size_t axis = 0; axis < places.size(); ++axis) {
    if (!clusters_along(axis)) continue;
    const ExprRef first = apply(Op::kMul, places[axis], int64(schedule_.cluster[axis]));
    const ExprRef rank = ir::make_cast({DType::I64, nullptr}, rank_along(axis));
    const ExprRef at = let("at", apply(Op::kAdd, first, rank));
    real = both(real, apply(Op::kLt, at, grid_extents_[axis]));
    if (!planted(Planted::kSpareTileFar))
      places[axis] = apply(Op::kMin, at, apply(Op::kSub, grid_extents_[axis], int64(1)));
    else
      places[axis] = at;
  }
  out_.real = make_local("real", DType::Bool, VarKind::kLoop);
  emit({LoopLet{out_.real, real}});
  return places;
}

// Whether the number of tiles along the axis decides what the L2 keeps.
bool TileLowering::counts_readers(size_t axis) const {
  return std::any_of(schedule_.reread.begin(), schedule_.reread.end(), [axis](const Reread& reread) {
    return std::count(reread.near.begin(), reread.near.end(), axis) ||
           std::count(reread.far.begin(), reread.far.end(), axis);
  });
}

// Policies of createpolicy.fractional with fraction 1, as CUTLASS's TMA::CacheHintSm90 has them: opaque to the PTX ISA.
void TileLowering::decide_l2_policies() {
  constexpr int64_t kEvictNormal = 0x1000000000000000, kEvictFirst = 0x12F0000000000000,
                    kEvictLast = 0x14F0000000000000;
  auto tiles = [this](const std::vector<size_t>& axes, const ExprRef& limit) -> ExprRef {
    ExprRef all;
    for (size_t axis : axes) all = all ? apply(Op::kMul, all, grid_extents_[axis]) : grid_extents_[axis];
    return all ? apply(Op::kLe, all, limit) : nullptr;
  };
  std::vector<ExprRef> streams;
  ExprRef any = ir::make_bool(false);
  for (const Reread& reread : schedule_.reread) {
    const ExprRef few = both(tiles(reread.near, int64(kMostReadersOfStream)), tiles(reread.far, int64(1)));
    streams.push_back(few ? let("stream", few) : ir::make_bool(true));
    any = apply(Op::kOr, any, streams.back());
  }
  if (streams.empty()) return;
  const ExprRef others = let("others", ir::make_typed(Op::kSelect, {any, int64(kEvictLast), int64(kEvictNormal)}));
  for (size_t i = 0; i < streams.size(); ++i)
    l2_policies_[schedule_.reread[i].copy] =
        let("policy", ir::make_typed(Op::kSelect, {streams[i], int64(kEvictFirst), others}));
}

}  // namespace kachel::lowering
