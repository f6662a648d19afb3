// Accumulators to a tensor of 16-bit floats, 16 bytes a store. See tile_lowering.h.
//
// A thread has two neighbouring columns of each tile of eight, so that a store of its own would touch 4 bytes. The four
// threads that share a row exchange four such tiles among them: then each has eight columns of one.
#include "lowering/lower/tile_lowering.h"
#include "lowering/planted.h"

namespace kachel::lowering {

using ir::DType;
using ir::ExprRef;
using Kind = LoopIntrinsic::Kind;

bool TileLowering::copy_quads(const ir::CopyStmt& copy, const Slice& dst) {
  const ir::BufferRef &to = copy.dst.buffer, &fragment = copy.src.buffer;
  constexpr int64_t kNeighbours = 8;
  if (to->scope != ir::Scope::kGlobal || ir::bits(to->type.dtype) != 16 || !ir::is_float(to->type.dtype) ||
      fragment->type.dtype != DType::F32 || vector_width(dst) < kNeighbours)
    return false;
  const FragmentLayout& layout = *placements_.at(fragment.get()).fragment;
  const std::optional<FragmentLayout> rows = layout.quad_rows();
  if (!rows) return false;

  const ir::BufferRef packed = temporary("packed", to->type.dtype, ir::Scope::kRegister, layout.registers());
  // Sixteen accumulators, four tiles of two rows, are two vectors of eight.
  unrolled("quad", layout.registers() / 16, [&](ExprRef quad) {
    const ExprRef first = times(quad, 16);
    for (int64_t row = 0; row < 2; ++row) {
      for (int64_t tile = 0; tile < 4; ++tile) {
        LoopIntrinsic pair{Kind::kConvertPair, {}, nullptr};
        pair.type = to->type.dtype;
        pair.operands = {{packed, plus(first, int32(kNeighbours * row + 2 * tile)), 2, true},
                         {storage(fragment), plus(first, int32(4 * tile + 2 * row)), 2, false}};
        emit({std::move(pair)});
      }
      if (planted(Planted::kDroppedExchange)) continue;
      LoopIntrinsic exchange{Kind::kQuadExchange, {}, nullptr};
      exchange.operands = {{packed, plus(first, int32(kNeighbours * row)), kNeighbours, true}};
      emit({std::move(exchange)});
    }
  });
  each_in(*rows, {"row", "column"}, kNeighbours, [&](const Site& site) {
    ExprRef guard;
    const ExprRef at = vector_at(dst, site, &guard);
    if (site.owner) guard = both(guard, site.owner);
    auto write = [&] {
      move(Kind::kCopyVector, storage(to), at, packed, register_of(*rows, {0, 1}, site), kNeighbours, nullptr);
    };
    if (!guard) return write();
    emit({LoopIf{guard, nested(write), {}}});
  });
  return true;
}

}  // namespace kachel::lowering
