// From the number of a tile to its place in the grid. See tile_lowering.h.
#include <algorithm>
#include <bit>

#include "lowering/lower/tile_lowering.h"
#include "lowering/machine/machine.h"
#include "lowering/planted.h"

namespace kachel::lowering {

using ir::DType;
using ir::ExprRef;
using ir::Op;
using ir::VarKind;

namespace {

ExprRef apply(Op op, const ExprRef& a, const ExprRef& b) {
  return ir::make_typed(op, {a, b});
}
ExprRef as_float(const ExprRef& value) {
  return ir::make_cast({DType::F32, nullptr}, value);
}
// a / b rounded down to an integer, I32.
ExprRef approximate_quotient(const ExprRef& a, const ExprRef& b) {
  const ExprRef quotient = apply(Op::kMul, a, ir::make_typed(Op::kRcp, {as_float(b)}, /*approx=*/true));
  return ir::make_cast({DType::I32, nullptr}, quotient);
}
// Of tiles, times Schedule::raster: numbers of the short form of a tile's place stay below.
constexpr int64_t kMostShort = int64_t{1} << 21;

}  // namespace

// Numbers a >= 0, b > 0. In the short form they are at most kMostShort, and the approximate quotient of a + 1/2 is
// exact when rounded down: it is off by at most 2^-22.4 of itself (rcp.approx 1 ulp, the product half of one), which is
// less than 0.4 / b, while (a + 1/2) / b is at least 0.5 / b away from an integer.
TileLowering::Division TileLowering::divided(const ExprRef& a, const ExprRef& b) {
  if (places_once_) return {apply(Op::kDiv, a, b), apply(Op::kMod, a, b)};
  if (!short_places_) {
    const ExprRef quotient = ir::make_typed(Op::kDiv, {a, b}, /*approx=*/true);  // to the emitter: rarely run
    return {quotient, apply(Op::kSub, a, apply(Op::kMul, quotient, b))};
  }
  const ExprRef middle = apply(Op::kAdd, as_float(a), ir::make_float(0.5));
  return division(a, b, approximate_quotient(middle, b));
}

// The same for a divisor that is mostly a constant.
TileLowering::Division TileLowering::divided_by_most(const ExprRef& a, const ExprRef& b, const ExprRef& most) {
  const ExprRef middle = apply(Op::kAdd, as_float(a), ir::make_float(0.5));
  const ExprRef usual = apply(Op::kEq, b, most);
  return division(a, b,
                  ir::make_typed(Op::kSelect, {usual, apply(Op::kDiv, a, most), approximate_quotient(middle, b)}));
}

// By a quotient that is known.
TileLowering::Division TileLowering::division(const ExprRef& a, const ExprRef& b, const ExprRef& quotient) {
  const ExprRef part = place("part", quotient);
  return {part, apply(Op::kSub, a, apply(Op::kMul, part, b))};
}

// An intermediate of a tile's place. The long form has no names where there is a short one too, so that none of it is
// evaluated there.
ExprRef TileLowering::place(const char* name, const ExprRef& value) {
  if (!short_places_) return places_once_ ? let(name, value) : value;
  const ExprRef named = let(name, value);
  if (named->kind == ir::ExprKind::kVar) out_.ranges.set(named->var, {0, kMostShort});
  return named;
}
ExprRef TileLowering::place_number(int64_t value) const {
  return short_places_ ? int32(value) : int64(value);
}
ExprRef TileLowering::place_number(const ExprRef& value) const {
  return short_places_ ? ir::make_cast({DType::I32, nullptr}, value) : value;
}

// Groups of whole rows of tiles; within a group column by column. What is left of `rest` counts the axes before. Where
// the grid has an order of its own, all axes but the last make the rows, and `rest` is the row.
std::vector<ExprRef> TileLowering::raster(const std::vector<ExprRef>& extents, const std::vector<size_t>& order,
                                          ExprRef* rest) {
  const size_t x = order.back(), y = order[order.size() - 2];
  const bool all = !schedule_.order.empty();
  ExprRef plane = *rest;
  if (order.size() > 2 && !all) {
    const ExprRef tiles = place("plane", apply(Op::kMul, extents[x], extents[y]));
    const Division planes = divided(*rest, tiles);
    plane = place("in_plane", planes.rest);
    *rest = place("rest", planes.quotient);
  }
  ExprRef most = place_number(schedule_.raster);
  if (schedule_.row_bytes) {
    const ExprRef bytes = apply(Op::kMax, index(schedule_.row_bytes, nullptr), int64(1));
    const auto held = static_cast<double>(machine_of(target_.architecture).l2_bytes * 3 / 4);
    const ExprRef fit = approximate_quotient(ir::make_float(held), bytes);
    const ExprRef fits = short_places_ ? fit : ir::make_cast({DType::I64, nullptr}, fit);
    most = place("most_rows", apply(Op::kMax, apply(Op::kMin, fits, most), place_number(1)));
  }
  const ExprRef group = place("group_tiles", apply(Op::kMul, extents[x], most));
  const Division groups = divided(plane, group);
  const ExprRef first = place("first_row", apply(Op::kMul, groups.quotient, most));
  const ExprRef in_group = place("in_group", groups.rest);
  const ExprRef all_rows = all ? divided(place_number(ir::make_var(out_.tiles)), extents[x]).quotient : extents[y];
  const ExprRef rows = place("rows", apply(Op::kMin, apply(Op::kSub, all_rows, first), most));
  // All groups but the last have as many rows, by which a shift divides.
  const bool shifts =
      short_places_ && most->kind == ir::ExprKind::kInt && std::has_single_bit(static_cast<uint64_t>(schedule_.raster));
  const Division columns = shifts ? divided_by_most(in_group, rows, most) : divided(in_group, rows);
  const ExprRef row = apply(Op::kAdd, first, columns.rest);
  std::vector<ExprRef> places(extents.size());
  places[x] = columns.quotient;
  if (all)
    *rest = place("row", row);
  else
    places[y] = row;
  return places;
}

// Tile `rest` counts grid points, the last axis of the order fastest.
std::vector<ExprRef> TileLowering::places_in_order(ExprRef rest, const std::vector<size_t>& order) {
  std::vector<ExprRef> extents = grid_extents_;
  for (ExprRef& extent : extents)
    if (extent) extent = place_number(extent);
  std::vector<ExprRef> places(order.size()), together;  // by axis: its place, where tiles are walked in groups of rows
  if (schedule_.raster > 1) together = raster(extents, order, &rest);
  for (size_t i = order.size(); i-- > 0;) {
    const size_t axis = order[i];
    const bool placed = !together.empty() && together[axis];
    const bool last = i == 0 || placed;  // of those that count `rest`
    const Division parts = last ? Division{nullptr, placed ? together[axis] : rest} : divided(rest, extents[axis]);
    ExprRef value = parts.rest;
    if (schedule_.backwards.count(axis))
      value = apply(Op::kSub, apply(Op::kSub, extents[axis], place_number(1)), value);
    if (planted(Planted::kGridOrder) && i > 0) value = apply(Op::kDiv, rest, extents[axis]);
    places[axis] = value;
    if (!last) rest = place("rest", parts.quotient);
  }
  return places;
}

// A block begins with this, one thread waiting for each step: exact divisions of 64 bits are half a microsecond. So on
// a GPU few tiles have a short form.
std::vector<ExprRef> TileLowering::places_of(const ExprRef& tile, const std::vector<size_t>& order) {
  places_once_ = on_cpu() || target_.generic || order.size() < 2;
  if (places_once_) return places_in_order(tile, order);
  short_places_ = true;
  const std::vector<ExprRef> few = places_in_order(place_number(tile), order);
  short_places_ = false;
  std::vector<ExprRef> places = places_in_order(tile, order);
  const ExprRef fits = apply(Op::kLt, ir::make_var(out_.tiles), int64(kMostShort / schedule_.raster));
  for (size_t axis = 0; axis < places.size(); ++axis)
    places[axis] = ir::make_typed(Op::kSelect, {fits, ir::make_cast({DType::I64, nullptr}, few[axis]), places[axis]});
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
    if (i == 0 && !in_raster && !schedule_.backwards.count(axis)) continue;  // nothing needs it
    ir::VarRef extent = make_local(kernel_.grid[axis].var->name + "_extent", DType::I64, VarKind::kScalar);
    out_.ranges.set(extent, {1, kMaxDim});
    out_.params.push_back({{Slot::Kind::kGrid, static_cast<int>(axis), 0}, extent, nullptr});
    grid_extents_[axis] = ir::make_var(extent);
  }
  const std::vector<ExprRef> places = places_of(ir::make_var(out_.tile), order);
  for (size_t i = order.size(); i-- > 0;) {
    const size_t axis = order[i];
    const ir::VarRef& var = kernel_.grid[axis].var;
    emit({LoopLet{var, places[axis]}});
    // A grid axis is as long as its extent can be.
    const Interval extent = out_.ranges.of(kernel_.grid[axis].extent);
    out_.ranges.set(var, {0, std::clamp<int64_t>(extent.hi, 1, kMaxDim) - 1});
    out_.ranges.set_limit(var, kernel_.grid[axis].extent);
  }
  if (schedule_.cluster > 1) compare_neighbours(order);
}

// Blocks of a cluster have neighbouring tiles.
void TileLowering::compare_neighbours(const std::vector<size_t>& order) {
  const ExprRef other = let("other_tile", apply(Op::kBitXor, ir::make_var(out_.tile), int64(1)));
  const ExprRef limit = planted(Planted::kClusterLastTile) ? int64(int64_t{1} << 62) : ir::make_var(out_.tiles);
  neighbour_ = let("neighbour", apply(Op::kLt, other, limit));
  const std::vector<ExprRef> others = places_of(other, order);
  for (size_t axis = 0; axis < others.size(); ++axis)
    alike_.push_back(let("alike", apply(Op::kEq, ir::make_var(kernel_.grid[axis].var), others[axis])));
}

}  // namespace kachel::lowering
