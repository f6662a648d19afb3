#include "lowering/plan/gemm_layouts.h"

#include <algorithm>

namespace kachel::lowering {

FragmentLayout accumulator_layout(bool group, const std::vector<int64_t>& shape, const WarpGrid& grid) {
  return group ? FragmentLayout::group_accumulator(shape[0], shape[1], grid.m, grid.n)
               : FragmentLayout::accumulator(shape[0], shape[1], grid.m, grid.n).replicated(grid.k * grid.copies);
}

FragmentLayout right_operand_layout(const ir::GemmStmt& gemm, int64_t warps) {
  const std::vector<int64_t> shape = tile_shape(gemm.b.buffer);
  if (gemm.transpose_b) return FragmentLayout::right_operand(shape[0], shape[1], warps);
  return FragmentLayout::right_operand(shape[1], shape[0], warps).keep({1, 0});
}

FragmentLayout fma_layout(const ir::GemmStmt& gemm, int64_t threads, int64_t together) {
  const std::vector<int64_t> shape = tile_shape(gemm.c.buffer);
  const auto strip = [](bool k_down, int64_t extent) -> int64_t { return k_down && extent % 4 == 0 ? 4 : 1; };
  const int64_t columns = std::max(strip(!gemm.transpose_b, shape[1]), together);
  return FragmentLayout::outer_product(shape[0], shape[1], strip(gemm.transpose_a, shape[0]), columns, threads);
}

}  // namespace kachel::lowering
