#include "lowering/gemm_choice.h"

#include <fmt/format.h>

namespace kachel::lowering {

std::optional<WarpGrid> warp_grid(int64_t rows, int64_t columns, int64_t warps, bool rows_only) {
  std::optional<WarpGrid> best;
  for (int64_t m = 1; m <= warps; ++m) {
    if (warps % m || (rows_only && m != warps)) continue;
    const WarpGrid grid{m, warps / m};
    if (rows % (kMmaRows * grid.m) || columns % (kMmaColumns * grid.n)) continue;
    // Each warp reads its rows of A and its columns of B.
    if (!best || rows / grid.m + columns / grid.n < rows / best->m + columns / best->n) best = grid;
  }
  return best;
}

GemmChoice choose_gemm(const ir::GemmStmt& gemm, const Target& target, bool a_in_registers) {
  GemmChoice choice;
  choice.a_in_registers = a_in_registers;
  const ir::BufferRef &a = gemm.a.buffer, &b = gemm.b.buffer, &c = gemm.c.buffer;
  for (const ir::TileRef* ref : {&gemm.a, &gemm.b, &gemm.c})
    if (!is_whole(*ref) || ref->buffer->shape.size() != 2) {
      choice.reason = fmt::format("a slice of {} is used", ref->buffer->name);
      return choice;
    }
  const char* reason = "";
  const MmaShape* mma = find_mma(target.architecture, a->type.dtype, b->type.dtype, c->type.dtype,
                                 gemm.precision == ir::Precision::kTf32, &reason);
  if (!mma) {
    choice.reason = reason;
    return choice;
  }
  const std::vector<int64_t> shape = tile_shape(c);
  const int64_t k = tile_shape(a)[gemm.transpose_a ? 0 : 1];
  if (shape[0] % kMmaRows || shape[1] % kMmaColumns || k % mma->k)
    choice.reason = fmt::format("{} x {} x {} is no multiple of the instruction's {} x {} x {}", shape[0], shape[1], k,
                                kMmaRows, kMmaColumns, mma->k);
  else if (a_in_registers && (gemm.transpose_a || ir::bits(a->type.dtype) != 16))
    choice.reason = fmt::format("{} cannot be an operand in registers", a->name);
  else if (!mma->load_transposed && (gemm.transpose_a || !gemm.transpose_b))
    choice.reason = "only 16-bit operands can be stored with k down their rows";
  else
    choice.mma = mma;
  return choice;
}

}  // namespace kachel::lowering
