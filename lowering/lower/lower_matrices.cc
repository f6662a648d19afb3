// Fragments with the layout of accumulators to tiles of 16-bit elements and back, by stmatrix and ldmatrix: a warp
// moves four matrices of 8 x 8 at once, 16 bytes a lane. See tile_lowering.h.
#include "lowering/lower/tile_lowering.h"
#include "lowering/machine/machine.h"
#include "lowering/planted.h"
#include "lowering/tile_ir/tile_uses.h"

namespace kachel::lowering {

using ir::DType;
using ir::ExprRef;
using ir::Op;
using Kind = LoopIntrinsic::Kind;

namespace {

constexpr int64_t kNeighbours = 8;   // elements of a matrix's row
constexpr int64_t kMostLoaded = 64;  // registers of 16 bits, of a tile that a region reads

}  // namespace

Site TileLowering::matrix_row(const FragmentLayout& layout, const FragmentLayout& rows, const ExprRef& first) {
  Site site;
  for (size_t axis = 0; axis < rows.shape().size(); ++axis) {
    ExprRef place;
    int64_t scale = 1;
    for (const FragmentLayout::Digit& part : rows.axes()[axis]) {
      if (part.in_thread)
        place = plus(place, times(digit_of(ir::make_var(out_.thread), part, rows.threads()), scale));
      else if (part.stride >= kNeighbours)
        place = plus(place, times(digit_of(first, part, layout.registers()), scale));
      scale *= part.radix;
    }
    if (axis == 0 && planted(Planted::kMatrixRow)) place = ir::make_typed(Op::kBitXor, {place, int32(8)});
    const ExprRef coord = let(axis == 0 ? "row" : "column", ir::make_cast({DType::I64, nullptr}, place));
    if (coord->kind == ir::ExprKind::kVar) {
      out_.ranges.set(coord->var, {0, rows.shape()[axis] - (axis ? kNeighbours : 1)});
      if (axis) out_.ranges.set_multiple(coord->var, kNeighbours);
    }
    site.coords.push_back(coord);
  }
  return site;
}

// Whether a region over fragments of the layout may read the whole tile so.
bool TileLowering::suits_matrices(const ir::BufferRef& tile, const FragmentLayout& layout) {
  const DType type = tile->type.dtype;
  if (on_cpu() || target_.generic || tile->scope != ir::Scope::kShared || in_registers(tile) || ir::bits(type) != 16 ||
      placements_.at(tile.get()).storage != type || tile_shape(tile) != layout.shape() ||
      layout.registers() > kMostLoaded)
    return false;
  return layout.matrix_rows() && layout.replicas().empty() && vector_width(slice(whole_tile(tile))) >= kNeighbours;
}

ir::BufferRef TileLowering::load_matrices(const ir::BufferRef& tile, const FragmentLayout& layout) {
  const FragmentLayout rows = *layout.matrix_rows();
  const ir::BufferRef loaded =
      temporary(tile->name + "_part", tile->type.dtype, ir::Scope::kRegister, layout.registers());
  const ir::TileRef all = whole_tile(tile);
  const Slice from = slice(all);
  // No loop: products may be under way, and control flow around shared memory waits for them.
  for (int64_t at = 0; at < layout.registers(); at += kNeighbours) {
    const ExprRef first = int32(at);
    LoopIntrinsic read{Kind::kLoadMatrix, {}, nullptr};
    read.immediate = 4;
    read.type = tile->type.dtype;
    ExprRef guard;  // none: the tile is whole
    read.operands = {{loaded, first, kNeighbours, true},
                     {storage(tile), vector_at(from, matrix_row(layout, rows, first), &guard), kNeighbours, false}};
    emit({std::move(read)});
  }
  return loaded;
}

bool TileLowering::copy_matrices(const ir::CopyStmt& copy, const Slice& dst) {
  const ir::BufferRef &to = copy.dst.buffer, &fragment = copy.src.buffer;
  const DType type = to->type.dtype;
  const bool converts = ir::is_float(type) && fragment->type.dtype == DType::F32;
  if (!has_store_matrix(target_.architecture) || to->scope == ir::Scope::kGlobal || ir::bits(type) != 16 ||
      !is_whole(copy.dst) || !is_whole(copy.src) || !(converts || fragment->type.dtype == type) ||
      vector_width(dst) < kNeighbours)
    return false;
  const FragmentLayout& layout = *placements_.at(fragment.get()).fragment;
  const std::optional<FragmentLayout> rows = layout.matrix_rows();
  if (!rows || !layout.replicas().empty()) return false;

  const ir::BufferRef packed =
      converts ? temporary("packed", type, ir::Scope::kRegister, layout.registers()) : storage(fragment);
  const auto store_four = [&](const ExprRef& number) {
    const ExprRef first = times(number, kNeighbours);
    for (int64_t pair = 0; converts && pair < kNeighbours; pair += 2) {
      LoopIntrinsic two{Kind::kConvertPair, {}, nullptr};
      two.type = type;
      two.operands = {{packed, plus(first, int32(pair)), 2, true},
                      {storage(fragment), plus(first, int32(pair)), 2, false}};
      emit({std::move(two)});
    }
    LoopIntrinsic write{Kind::kStoreMatrix, {}, nullptr};
    write.immediate = 4;
    write.type = type;
    ExprRef guard;  // none: the tile is whole
    write.operands = {{storage(to), vector_at(dst, matrix_row(layout, *rows, first), &guard), kNeighbours, true},
                      {packed, first, kNeighbours, false}};
    emit({std::move(write)});
  };
  unrolled("matrices", layout.registers() / kNeighbours, store_four, {.disjoint = {storage(to)}});
  return true;
}

}  // namespace kachel::lowering
