// Sums of products that turn, see plan/turned_sums.h: of each 8 x 8 elements of a warp the lanes exchange theirs, and a
// pair of registers becomes another pair.
#include "lowering/lower/tile_lowering.h"
#include "lowering/planted.h"

namespace kachel::lowering {

using ir::ExprRef;

// Registers of one matrix, and how the pairs of a thread follow each other: of `from` 8 columns after 8 rows, of which
// there are two, then further ones of each; of `to` the other way round.
void TileLowering::turn(const Turn& turn) {
  using Kind = LoopIntrinsic::Kind;
  constexpr int64_t kPair = 2, kQuad = 4;
  const ir::BufferRef &to = turn.to, &from = turn.from;
  const FragmentLayout& held = *placements_.at(from.get()).fragment;
  const int64_t across = held.axes()[1][2].radix, columns = kQuad * across;  // registers of 16 rows
  unrolled("matrix", held.registers() / kPair, [&](const ExprRef& number) {
    const auto digit = [&](int64_t by, int64_t of) {
      return ir::make_typed(ir::Op::kMod, {ir::make_typed(ir::Op::kDiv, {number, int32(by)}), int32(of)});
    };
    const ExprRef below = digit(1, 2), beside = digit(2, 2), further = digit(4, across / 2);
    const ExprRef down = digit(2 * across, held.registers() / columns);
    const auto at = [&](const ExprRef& two, const ExprRef& four) {
      return plus(plus(times(two, 2), times(four, 4)), plus(times(further, 8), times(down, columns)));
    };
    LoopIntrinsic matrix{planted(Planted::kNotTurned) ? Kind::kCopyVector : Kind::kTurnMatrix, {}, nullptr};
    matrix.type = to->type.dtype;
    matrix.operands = {{storage(to), at(beside, below), kPair, true}, {storage(from), at(below, beside), kPair, false}};
    emit({std::move(matrix)});
  });
}

}  // namespace kachel::lowering
