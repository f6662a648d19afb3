// Copies and fills of tiles that are held in pairs along k, see cpu_gemm.h: the values of an i16 pair go to one i32,
// and an odd last one has 0 beside it. See tile_lowering.h.
#include "lowering/lower/tile_lowering.h"
#include "lowering/machine/cpu_machine.h"
#include "lowering/planted.h"

namespace kachel::lowering {

using ir::DType;
using ir::ExprRef;
using ir::Op;

bool TileLowering::in_pairs(const ir::BufferRef& buffer) const {
  auto it = placements_.tiles.find(buffer.get());
  return it != placements_.tiles.end() && it->second.pair_axis >= 0;
}

// Stores `value`, of the coordinates of an element, at each place of the tile.
void TileLowering::store_pairs(const ir::BufferRef& tile, const std::vector<int64_t>& shape,
                               const std::function<ExprRef(const Site&)>& value) {
  const auto k = static_cast<size_t>(placements_.at(tile.get()).pair_axis);
  auto pair = [&](const std::vector<ExprRef>& coords, bool whole) {
    auto half = [&](int64_t which) {
      Site site{coords, nullptr};
      ExprRef first = ir::make_typed(Op::kMul, {coords[k], int64(2)});
      site.coords[k] = let("k", which ? ir::make_typed(Op::kAdd, {first, int64(1)}) : first);
      if (site.coords[k]->kind == ir::ExprKind::kVar) out_.ranges.set(site.coords[k]->var, {0, shape[k] - 1});
      return rounded(value(site), tile->type.dtype);
    };
    ExprRef low = ir::make_typed(Op::kBitAnd, {half(0), ir::make_int(65535, DType::I32)});
    ExprRef both = low;
    if (whole)
      both = ir::make_typed(Op::kBitOr, {low, ir::make_typed(Op::kShl, {half(1), ir::make_int(16, DType::I32)})});
    store(storage(tile), offset(tile, coords, nullptr), both, nullptr);
  };
  auto nest = [&](int64_t first, int64_t pairs, bool whole) {
    std::vector<int64_t> extents = shape;
    extents[k] = pairs;
    serial("i", int64(extents[0]), false, [&](ExprRef i) {
      serial("j", int64(extents[1]), false, [&](ExprRef j) {
        std::vector<ExprRef> coords{i, j};
        if (first) coords[k] = ir::make_typed(Op::kAdd, {coords[k], int64(first)});
        pair(coords, whole);
      });
    });
  };
  nest(0, shape[k] / 2, true);
  if (shape[k] % 2 && !planted(Planted::kPairTail)) nest(shape[k] / 2, 1, false);
}

// Blocks of `lanes` pairs transposed in registers; false where the copy is none of those.
bool TileLowering::transpose_pairs(const ir::CopyStmt& copy, const CpuSide& src) {
  const ir::BufferRef &to = copy.dst.buffer, &from = copy.src.buffer;
  const Placement& placement = placements_.at(to.get());
  const DType type = from->type.dtype;
  const int64_t lanes = cpu_machine(target_).lanes, columns = src.extents[0], depth = src.extents[1];
  if (placement.pair_axis != 1 || !placement.panel_width || to->type.dtype != type ||
      (type != DType::I8 && type != DType::U8) || from->scope != ir::Scope::kGlobal || !has_unit_stride(src) ||
      columns % lanes || depth % (2 * lanes))
    return false;
  serial("block", int64(columns / lanes), false, [&](ExprRef block) {
    ExprRef n = let("n", ir::make_typed(Op::kMul, {block, int64(lanes)}));
    serial("step", int64(depth / (2 * lanes)), false, [&](ExprRef step) {
      ExprRef pair = let("pair", ir::make_typed(Op::kMul, {step, int64(lanes)}));
      CpuSide source = src;
      set_coordinate(&source, 0, n);
      set_coordinate(&source, 1, ir::make_typed(Op::kMul, {pair, int64(2)}));
      emit({LoopTranspose{storage(to), storage(from), offset(to, {n, pair}, nullptr),
                          offset(from, source.indices, nullptr), int64(placement.panel_width),
                          strides_.at(from.get())[src.axis_of[0]], lanes}});
    });
  });
  return true;
}

void TileLowering::copy_pairs(const ir::CopyStmt& copy, const Slice& src) {
  const ir::BufferRef& to = copy.dst.buffer;
  const std::vector<int64_t> shape = slice_shape(copy.dst);
  LoopBlock edge = nested([&] {
    store_pairs(to, shape, [&](const Site& site) { return convert(load_element(src, site), to->type.dtype); });
  });
  bool gathers = false;
  for (const ir::AxisSpec& axis : copy.src.axes) gathers |= axis.gather != nullptr;
  CpuSide side;
  bool rows = false;
  LoopBlock bounds = nested([&] { rows = !gathers && bounds_of(src, &side); });
  if (!rows) {
    for (LoopStmt& stmt : edge) emit(std::move(stmt));
    return;
  }
  for (LoopStmt& stmt : bounds) emit(std::move(stmt));
  LoopBlock interior = nested([&] {
    if (transpose_pairs(copy, side)) return;
    store_pairs(to, shape, [&](const Site& site) {
      CpuSide here = side;
      for (size_t d = 0; d < site.coords.size(); ++d) set_coordinate(&here, d, site.coords[d]);
      return convert(ir::make_load(storage(copy.src.buffer), {offset(copy.src.buffer, here.indices, nullptr)}),
                     to->type.dtype);
    });
  });
  ExprRef inside = ir::make_bool(true);
  for (size_t d = 0; d < side.extents.size(); ++d) {
    inside = both(inside, ir::make_typed(Op::kEq, {side.low[d], int64(0)}));
    inside = both(inside, ir::make_typed(Op::kEq, {side.high[d], int64(side.extents[d])}));
  }
  emit({LoopIf{inside, std::move(interior), std::move(edge)}});
}

}  // namespace kachel::lowering
