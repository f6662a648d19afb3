// Accumulators to a tile of 16-bit elements by stmatrix: a warp stores four matrices of 8 x 8 at once, 16 bytes a lane.
// See tile_lowering.h.
#include "lowering/machine.h"
#include "lowering/planted.h"
#include "lowering/tile_lowering.h"

namespace kachel::lowering {

using ir::DType;
using ir::ExprRef;
using ir::Op;
using Kind = LoopIntrinsic::Kind;

bool TileLowering::copy_matrices(const ir::CopyStmt& copy, const Slice& dst) {
  const ir::BufferRef &to = copy.dst.buffer, &fragment = copy.src.buffer;
  constexpr int64_t kNeighbours = 8;
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
  unrolled("matrices", layout.registers() / kNeighbours, [&](ExprRef number) {
    const ExprRef first = times(number, kNeighbours);
    for (int64_t pair = 0; converts && pair < kNeighbours; pair += 2) {
      LoopIntrinsic two{Kind::kConvertPair, {}, nullptr};
      two.type = type;
      two.operands = {{packed, plus(first, int32(pair)), 2, true},
                      {storage(fragment), plus(first, int32(pair)), 2, false}};
      emit({std::move(two)});
    }
    Site site;
    for (size_t axis = 0; axis < rows->shape().size(); ++axis) {
      ExprRef place;
      int64_t scale = 1;
      for (const FragmentLayout::Digit& part : rows->axes()[axis]) {
        if (part.in_thread)
          place = plus(place, times(digit_of(ir::make_var(out_.thread), part, rows->threads()), scale));
        else if (part.stride >= kNeighbours)
          place = plus(place, times(digit_of(first, part, layout.registers()), scale));
        scale *= part.radix;
      }
      if (axis == 0 && planted(Planted::kMatrixRow)) place = ir::make_typed(Op::kBitXor, {place, int32(8)});
      const ExprRef coord = let(axis == 0 ? "row" : "column", ir::make_cast({DType::I64, nullptr}, place));
      if (coord->kind == ir::ExprKind::kVar) {
        out_.ranges.set(coord->var, {0, rows->shape()[axis] - (axis ? kNeighbours : 1)});
        if (axis) out_.ranges.set_multiple(coord->var, kNeighbours);
      }
      site.coords.push_back(coord);
    }
    LoopIntrinsic write{Kind::kStoreMatrix, {}, nullptr};
    write.immediate = 4;
    write.type = type;
    ExprRef guard;  // none: the tile is whole
    write.operands = {{storage(to), vector_at(dst, site, &guard), kNeighbours, true},
                      {packed, first, kNeighbours, false}};
    emit({std::move(write)});
  });
  return true;
}

}  // namespace kachel::lowering
