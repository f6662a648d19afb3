// From the number of a tile to its place in the grid. See tile_lowering.h.
#include <algorithm>

#include "lowering/machine.h"
#include "lowering/planted.h"
#include "lowering/tile_lowering.h"

namespace kachel::lowering {

using ir::DType;
using ir::ExprRef;
using ir::Op;
using ir::VarKind;

// Of numbers that are at most Schedule::raster times the number of tiles. They nearly always fit in 32 bits, where a GPU
// divides in a fraction of the time.
ExprRef TileLowering::part_of_tile(Op op, const ExprRef& a, const ExprRef& b) {
  const ExprRef wide = ir::make_typed(op, {a, b});
  if (on_cpu() || target_.generic) return wide;
  auto narrow = [](const ExprRef& value) { return ir::make_cast({DType::I32, nullptr}, value); };
  const ExprRef fits = ir::make_typed(Op::kLt, {ir::make_var(out_.tiles), int64((int64_t{1} << 31) / schedule_.raster)});
  const ExprRef small = ir::make_cast({DType::I64, nullptr}, ir::make_typed(op, {narrow(a), narrow(b)}));
  return ir::make_typed(Op::kSelect, {fits, small, wide});
}

// Groups of whole rows of tiles; within a group column by column. What is left of `rest` counts the axes before. Where the
// grid has an order of its own, all axes but the last make the rows, and `rest` is the row.
std::vector<ExprRef> TileLowering::raster(const std::vector<ExprRef>& extents, const std::vector<size_t>& order,
                                          ExprRef* rest) {
  const size_t x = order.back(), y = order[order.size() - 2];
  const bool all = !schedule_.order.empty();
  auto apply = [&](Op op, const ExprRef& a, const ExprRef& b) {
    return op == Op::kDiv || op == Op::kMod ? part_of_tile(op, a, b) : ir::make_typed(op, {a, b});
  };
  ExprRef plane = *rest;
  if (order.size() > 2 && !all) {
    const ExprRef tiles = let("plane", apply(Op::kMul, extents[x], extents[y]));
    plane = let("in_plane", apply(Op::kMod, *rest, tiles));
    *rest = let("rest", apply(Op::kDiv, *rest, tiles));
  }
  ExprRef most = int64(schedule_.raster);
  if (schedule_.row_bytes) {
    const ExprRef bytes = apply(Op::kMax, index(schedule_.row_bytes, nullptr), int64(1));
    const ExprRef fit = ir::make_typed(Op::kDiv, {int64(machine_of(target_.architecture).l2_bytes * 3 / 4), bytes});
    most = let("most_rows", apply(Op::kMax, apply(Op::kMin, fit, most), int64(1)));
  }
  const ExprRef group = let("group_tiles", apply(Op::kMul, extents[x], most));
  const ExprRef first = let("first_row", apply(Op::kMul, apply(Op::kDiv, plane, group), most));
  const ExprRef in_group = let("in_group", apply(Op::kMod, plane, group));
  const ExprRef all_rows = all ? let("all_rows", part_of_tile(Op::kDiv, ir::make_var(out_.tiles), extents[x])) : extents[y];
  const ExprRef rows = let("rows", apply(Op::kMin, apply(Op::kSub, all_rows, first), most));
  const ExprRef row = apply(Op::kAdd, first, apply(Op::kMod, in_group, rows));
  std::vector<ExprRef> places(extents.size());
  places[x] = apply(Op::kDiv, in_group, rows);
  if (all)
    *rest = let("row", row);
  else
    places[y] = row;
  return places;
}

// The tile index counts grid points, the last axis of the order fastest.
void TileLowering::open_grid() {
  out_.tile = make_local("tile", DType::I64, VarKind::kGrid);
  out_.tiles = make_local("tiles", DType::I64, VarKind::kScalar);
  out_.ranges.set(out_.tile, {0, int64_t{1} << 62});
  out_.params.push_back({{Slot::Kind::kBlocks, 0, 0}, out_.tiles, nullptr});
  std::vector<size_t> order = schedule_.order;
  for (size_t i = 0; order.size() < kernel_.grid.size(); ++i) order.push_back(i);
  std::vector<ExprRef> extents(kernel_.grid.size());
  for (size_t i = 0; i < order.size(); ++i) {
    const size_t axis = order[i];
    const bool in_raster = schedule_.raster > 1 && i + 2 >= order.size();
    if (i == 0 && !in_raster && !schedule_.backwards.count(axis)) continue;  // nothing needs it
    ir::VarRef extent = make_local(kernel_.grid[axis].var->name + "_extent", DType::I64, VarKind::kScalar);
    out_.ranges.set(extent, {1, kMaxDim});
    out_.params.push_back({{Slot::Kind::kGrid, static_cast<int>(axis), 0}, extent, nullptr});
    extents[axis] = ir::make_var(extent);
  }
  grid_extents_ = extents;
  ExprRef rest = ir::make_var(out_.tile);
  std::vector<ExprRef> together;  // by axis: its place, where tiles are walked in groups of rows
  if (schedule_.raster > 1) together = raster(extents, order, &rest);
  for (size_t i = order.size(); i-- > 0;) {
    const size_t axis = order[i];
    const ir::VarRef& var = kernel_.grid[axis].var;
    const bool placed = !together.empty() && together[axis];
    ExprRef value = placed ? together[axis] : i == 0 ? rest : part_of_tile(Op::kMod, rest, extents[axis]);
    if (schedule_.backwards.count(axis))
      value = ir::make_typed(Op::kSub, {ir::make_typed(Op::kSub, {extents[axis], int64(1)}), value});
    if (planted(Planted::kGridOrder) && i > 0) value = ir::make_typed(Op::kDiv, {rest, extents[axis]});
    emit({LoopLet{var, value}});
    // A grid axis is as long as its extent can be.
    const Interval extent = out_.ranges.of(kernel_.grid[axis].extent);
    out_.ranges.set(var, {0, std::clamp<int64_t>(extent.hi, 1, kMaxDim) - 1});
    out_.ranges.set_limit(var, kernel_.grid[axis].extent);
    if (i > 0 && !placed) rest = let("rest", part_of_tile(Op::kDiv, rest, extents[axis]));
  }
}

}  // namespace kachel::lowering
