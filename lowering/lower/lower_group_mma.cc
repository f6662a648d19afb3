// gemm by wgmma: a warp group multiplies 64 rows of A, from shared memory or from registers, by up to 256 columns of B
// from shared memory. The instructions run on by themselves; synchronise() knows when somebody has to wait for them.
//
// Operands lie in slabs (Layout::slabs). With k along the rows, one step of k is 32 bytes further within a slab; with k
// down the rows it is so many rows further. Source: PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions".
#include <algorithm>

#include "ir/numerics.h"
#include "lowering/lower/tile_lowering.h"
#include "lowering/plan/gemm_choice.h"
#include "lowering/plan/operand_slices.h"
#include "lowering/planted.h"

namespace kachel::lowering {

using ir::DType;
using ir::ExprRef;
using ir::Op;

// The offset of the element (row, column) of a slice before the swizzle, where `first` is added to the row, or to the
// column: then it is a multiple of the slab's width.
ExprRef TileLowering::matrix_at(const ir::TileRef& ref, const ExprRef& first, int64_t row, int64_t column,
                                bool first_row) {
  const ir::BufferRef& tile = ref.buffer;
  const Placement& placement = placements_.at(tile.get());
  const int64_t width = placement.layout.slab_columns(), rows = placement.layout.shape()[0];
  const int64_t slab = width * rows / (planted(Planted::kGroupSlab) ? 2 : 1);
  const int64_t fixed = column / width * slab + row * width + column % width;
  ExprRef at = first ? times(first, first_row ? width : rows) : nullptr;
  if (fixed || !at) at = plus(at, int32(fixed));
  const OperandSlice slice = *operand_slice(ref);
  const auto start = [&](size_t axis) {
    return let("start", ir::make_cast({DType::I32, nullptr}, scalar(slice.starts[axis], nullptr)));
  };
  if (slice.starts[0]) at = plus(at, times(start(0), width));
  if (const ExprRef from = slice.starts[1] ? start(1) : nullptr) {
    const bool whole = column % width == 0 && out_.ranges.multiple_of(from) % width == 0;
    if (whole) {
      at = plus(at, times(from, rows));
    } else {
      // Its steps begin within slabs.
      const ExprRef step = plus(from, int32(column % width));
      at = plus(at, int32(-(column % width)));
      at = plus(at, plus(times(ir::make_typed(Op::kDiv, {step, int32(width)}), slab),
                         ir::make_typed(Op::kMod, {step, int32(width)})));
    }
  }
  if (auto stage = stage_.find(tile.get()); stage != stage_.end())
    at = plus(times(stage->second, placement.stage_elements()), at);
  return at;
}

void TileLowering::gemm_group(const ir::GemmStmt& gemm, const GemmChoice& choice) {
  const ir::BufferRef &a = gemm.a.buffer, &b = gemm.b.buffer, &c = gemm.c.buffer;
  const std::vector<int64_t> shape = tile_shape(c);
  const int64_t k_extent = operand_slice(gemm.a)->shape[gemm.transpose_a ? 0 : 1], step = choice.mma->k;
  const int64_t rows = shape[0] / choice.warps_m, columns = shape[1] / choice.warps_n;  // of a warp group
  const int64_t width = group_columns(gemm, columns);
  const int64_t steps = k_extent / step - (planted(Planted::kGemmShortK) && k_extent > step ? 1 : 0);

  const ExprRef group = let("group", ir::make_typed(Op::kDiv, {ir::make_var(out_.thread), int32(kGroupThreads)}));
  auto part = [&](const char* name, const ExprRef& number, int64_t count, int64_t size) {
    return count == 1 ? ExprRef() : let(name, times(number, size));
  };
  const ExprRef row_group = choice.warps_n == 1 ? group : ir::make_typed(Op::kMod, {group, int32(choice.warps_m)});
  const ExprRef column_group = choice.warps_m == 1 ? group : ir::make_typed(Op::kDiv, {group, int32(choice.warps_m)});
  const ExprRef first_row = part("group_row", row_group, choice.warps_m, rows);
  const ExprRef first_column = part("group_column", column_group, choice.warps_n, columns);

  const ir::BufferRef held = choice.a_in_registers ? left_registers(gemm) : nullptr;
  auto view = [&](const ir::BufferRef& tile, bool k_down) {
    const Placement& placement = placements_.at(tile.get());
    const int64_t bytes = ir::bits(placement.storage) / 8, slab = placement.layout.slab_columns() * bytes;
    return LoopIntrinsic::MatrixView{slab, 8 * slab, slab * placement.layout.shape()[0], k_down};
  };
  // One instruction: rows from m on, columns from n on, step s of k; its sums go to `sums` from `sums_at` on.
  auto multiply = [&](int64_t m, int64_t n, int64_t s, const ir::BufferRef& sums, int64_t sums_at, bool accumulate) {
    const int64_t k = (planted(Planted::kGroupStep) ? 0 : s) * step;
    LoopIntrinsic mma{LoopIntrinsic::Kind::kGroupMma, {}, nullptr};
    mma.type = choice.mma->a;
    mma.type_b = choice.mma->b;
    mma.immediate = width;
    mma.accumulate = accumulate;
    mma.operands.push_back({sums, int32(sums_at), width / 2, true});
    if (choice.a_in_registers) {
      mma.operands.push_back({held, int32(m / kGroupRows * k_extent / 2 + k / 2), step / 2, false});
    } else {
      mma.view_a = view(a, gemm.transpose_a);
      mma.operands.push_back(
          {storage(a),
           gemm.transpose_a ? matrix_at(gemm.a, first_row, k, m, false) : matrix_at(gemm.a, first_row, m, k, true),
           kGroupRows * step, false});
    }
    mma.view_b = view(b, !gemm.transpose_b);
    mma.operands.push_back(
        {storage(b),
         gemm.transpose_b ? matrix_at(gemm.b, first_column, n, k, true) : matrix_at(gemm.b, first_column, k, n, false),
         width * step, false});
    emit({std::move(mma)});
  };
  const bool adds = gemm.accumulate && !planted(Planted::kGemmNoAccumulate);
  if (!choice.in_runs) {
    for (int64_t s = 0; s < steps; ++s)
      for (int64_t m = 0; m < rows; m += kGroupRows)
        for (int64_t n = 0; n < columns; n += width)
          multiply(m, n, s, storage(c), (m / kGroupRows * columns + n) / 2, adds || s > 0);
    return;
  }
  // Runs of k: each is added up from 0 on by the tensor cores, in less than f32, and then added to C.
  const int64_t run = ir::kF8Run / step;
  const ir::BufferRef sums = temporary("run", DType::F32, ir::Scope::kRegister, width / 2);
  for (int64_t first = 0; first < steps; first += run)
    for (int64_t m = 0; m < rows; m += kGroupRows)
      for (int64_t n = 0; n < columns; n += width) {
        for (int64_t s = first; s < std::min(first + run, steps); ++s)
          multiply(m, n, s, sums, 0, s > first && !planted(Planted::kRunRestarts));
        unrolled("r", width / 2, [&](const ExprRef& r) {
          const ExprRef at = plus(r, int32((m / kGroupRows * columns + n) / 2)), sum = ir::make_load(sums, {r});
          const bool both = adds || first > 0;
          store(storage(c), at, both ? ir::make_typed(Op::kAdd, {ir::make_load(storage(c), {at}), sum}) : sum, nullptr);
        });
      }
}

}  // namespace kachel::lowering
