// From the number of a tile to its place in the grid. See tile_lowering.h.
#include <algorithm>

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

// Groups of whole rows of tiles; within a group column by column. What is left of `rest` counts the axes before.
std::vector<ExprRef> TileLowering::raster(const std::vector<ExprRef>& extents, ExprRef* rest) {
  const size_t x = extents.size() - 1, y = x - 1;
  auto apply = [&](Op op, const ExprRef& a, const ExprRef& b) {
    return op == Op::kDiv || op == Op::kMod ? part_of_tile(op, a, b) : ir::make_typed(op, {a, b});
  };
  ExprRef plane = *rest;
  if (y > 0) {
    const ExprRef tiles = let("plane", apply(Op::kMul, extents[x], extents[y]));
    plane = let("in_plane", apply(Op::kMod, *rest, tiles));
    *rest = let("rest", apply(Op::kDiv, *rest, tiles));
  }
  const ExprRef group = let("group_tiles", apply(Op::kMul, extents[x], int64(schedule_.raster)));
  const ExprRef first = let("first_row", apply(Op::kMul, apply(Op::kDiv, plane, group), int64(schedule_.raster)));
  const ExprRef rows =
      let("rows", apply(Op::kMin, apply(Op::kSub, extents[y], first), int64(schedule_.raster)));
  const ExprRef in_group = let("in_group", apply(Op::kMod, plane, group));
  std::vector<ExprRef> places(extents.size());
  places[y] = apply(Op::kAdd, first, apply(Op::kMod, in_group, rows));
  places[x] = apply(Op::kDiv, in_group, rows);
  return places;
}

// The tile index counts grid points, last axis fastest.
void TileLowering::open_grid() {
  out_.tile = make_local("tile", DType::I64, VarKind::kGrid);
  out_.tiles = make_local("tiles", DType::I64, VarKind::kScalar);
  out_.ranges.set(out_.tile, {0, int64_t{1} << 62});
  out_.params.push_back({{Slot::Kind::kBlocks, 0, 0}, out_.tiles, nullptr});
  std::vector<ExprRef> extents(kernel_.grid.size());
  for (size_t i = 0; i < kernel_.grid.size(); ++i) {
    const bool in_raster = schedule_.raster > 1 && i + 2 >= kernel_.grid.size();
    if (i == 0 && !in_raster && !schedule_.backwards.count(i)) continue;  // nothing needs it
    ir::VarRef extent = make_local(kernel_.grid[i].var->name + "_extent", DType::I64, VarKind::kScalar);
    out_.ranges.set(extent, {1, kMaxDim});
    out_.params.push_back({{Slot::Kind::kGrid, static_cast<int>(i), 0}, extent, nullptr});
    extents[i] = ir::make_var(extent);
  }
  grid_extents_ = extents;
  ExprRef rest = ir::make_var(out_.tile);
  std::vector<ExprRef> together;  // by axis: its place, where tiles are walked in groups of rows
  if (schedule_.raster > 1) together = raster(extents, &rest);
  for (size_t i = kernel_.grid.size(); i-- > 0;) {
    const ir::VarRef& var = kernel_.grid[i].var;
    const bool placed = !together.empty() && together[i];
    ExprRef value = placed ? together[i] : i == 0 ? rest : part_of_tile(Op::kMod, rest, extents[i]);
    if (schedule_.backwards.count(i))
      value = ir::make_typed(Op::kSub, {ir::make_typed(Op::kSub, {extents[i], int64(1)}), value});
    if (planted(Planted::kGridOrder) && i > 0) value = ir::make_typed(Op::kDiv, {rest, extents[i]});
    emit({LoopLet{var, value}});
    // A grid axis is as long as its extent can be.
    const Interval extent = out_.ranges.of(kernel_.grid[i].extent);
    out_.ranges.set(var, {0, std::clamp<int64_t>(extent.hi, 1, kMaxDim) - 1});
    out_.ranges.set_limit(var, kernel_.grid[i].extent);
    if (i > 0 && !placed) rest = let("rest", part_of_tile(Op::kDiv, rest, extents[i]));
  }
}

}  // namespace kachel::lowering
