// gemm by wgmma: a warp group multiplies 64 rows of A, from shared memory or from registers, by up to 256 columns of B from
// shared memory. The instructions run on by themselves; synchronise() knows when somebody has to wait for them.
//
// Operands lie in slabs (Layout::slabs). With k along the rows, one step of k is 32 bytes further within a slab; with k
// down the rows it is so many rows further. Source: PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions".
#include "lowering/gemm_choice.h"
#include "lowering/planted.h"
#include "lowering/tile_lowering.h"

namespace kachel::lowering {

using ir::DType;
using ir::ExprRef;
using ir::Op;

// The offset of the element (row, column) before the swizzle, where `first` is added to the row, or to the column: then it
// is a multiple of the slab's width.
ExprRef TileLowering::matrix_at(const ir::BufferRef& tile, const ExprRef& first, int64_t row, int64_t column,
                                bool first_row) {
  const Placement& placement = placements_.at(tile.get());
  const int64_t width = placement.layout.slab_columns(), rows = placement.layout.shape()[0];
  const int64_t slab = width * rows / (planted(Planted::kGroupSlab) ? 2 : 1);
  const int64_t fixed = column / width * slab + row * width + column % width;
  ExprRef at = first ? times(first, first_row ? width : rows) : nullptr;
  if (fixed || !at) at = plus(at, int32(fixed));
  if (auto stage = stage_.find(tile.get()); stage != stage_.end())
    at = plus(times(stage->second, placement.stage_elements()), at);
  return at;
}

void TileLowering::gemm_group(const ir::GemmStmt& gemm, const GemmChoice& choice) {
  const ir::BufferRef &a = gemm.a.buffer, &b = gemm.b.buffer, &c = gemm.c.buffer;
  const std::vector<int64_t> shape = tile_shape(c);
  const int64_t k_extent = tile_shape(a)[gemm.transpose_a ? 0 : 1], step = choice.mma->k;
  const int64_t rows = shape[0] / choice.warps_m, columns = shape[1] / choice.warps_n;  // of a warp group
  const int64_t width = group_columns(gemm, columns), down = rows / kGroupRows;
  const int64_t steps = k_extent / step - (planted(Planted::kGemmShortK) && k_extent > step ? 1 : 0);

  const ExprRef group = let("group", ir::make_typed(Op::kDiv, {ir::make_var(out_.thread), int32(kGroupThreads)}));
  auto part = [&](const char* name, const ExprRef& number, int64_t count, int64_t size) {
    return count == 1 ? ExprRef() : let(name, times(number, size));
  };
  const ExprRef row_group =
      choice.warps_n == 1 ? group : ir::make_typed(Op::kMod, {group, int32(choice.warps_m)});
  const ExprRef column_group =
      choice.warps_m == 1 ? group : ir::make_typed(Op::kDiv, {group, int32(choice.warps_m)});
  const ExprRef first_row = part("group_row", row_group, choice.warps_m, rows);
  const ExprRef first_column = part("group_column", column_group, choice.warps_n, columns);

  auto view = [&](const ir::BufferRef& tile, bool k_down) {
    const Placement& placement = placements_.at(tile.get());
    const int64_t bytes = ir::bits(placement.storage) / 8, slab = placement.layout.slab_columns() * bytes;
    return LoopIntrinsic::MatrixView{slab, 8 * slab, slab * placement.layout.shape()[0], k_down};
  };
  for (int64_t s = 0; s < steps; ++s)
    for (int64_t i = 0; i < down; ++i)
      for (int64_t j = 0; j < columns / width; ++j) {
        const int64_t k = (planted(Planted::kGroupStep) ? 0 : s) * step, m = i * kGroupRows, n = j * width;
        LoopIntrinsic mma{LoopIntrinsic::Kind::kGroupMma, {}, nullptr};
        mma.type = choice.mma->a;
        mma.type_b = choice.mma->b;
        mma.immediate = width;
        mma.accumulate = (gemm.accumulate && !planted(Planted::kGemmNoAccumulate)) || s > 0;
        mma.operands.push_back({storage(c), int32((i * columns + n) / 2), width / 2, true});
        if (choice.a_in_registers) {
          mma.operands.push_back({storage(a), int32(i * k_extent / 2 + k / 2), 8, false});
        } else {
          mma.view_a = view(a, gemm.transpose_a);
          mma.operands.push_back({storage(a),
                                  gemm.transpose_a ? matrix_at(a, first_row, k, m, false)
                                                   : matrix_at(a, first_row, m, k, true),
                                  kGroupRows * step, false});
        }
        mma.view_b = view(b, !gemm.transpose_b);
        mma.operands.push_back({storage(b),
                                gemm.transpose_b ? matrix_at(b, first_column, n, k, true)
                                                 : matrix_at(b, first_column, k, n, false),
                                width * step, false});
        emit({std::move(mma)});
      }
}

}  // namespace kachel::lowering
