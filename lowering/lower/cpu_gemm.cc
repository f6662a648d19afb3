// Gemm on the CPU as a nest of micro-kernels: blocks of rows outside, panels of columns inside, so that the rows of A
// stay in the first-level cache while panels of B stream from the second. See cpu_gemm.h and tile_lowering.h.
#include "lowering/plan/cpu_placement.h"

#include "ir/print.h"
#include "lowering/lower/tile_lowering.h"
#include "lowering/machine/cpu_machine.h"
#include "lowering/planted.h"

namespace kachel::lowering {

using ir::DType;
using ir::ExprRef;
using ir::Op;

ExprRef TileLowering::panel_offset(const Placement& placement, const std::vector<ExprRef>& indices) const {
  const int64_t width = placement.panel_width;
  const int64_t depth = placement.layout.shape()[1 - placement.panel_axis] - (planted(Planted::kPanelPitch) ? 1 : 0);
  const ExprRef &n = indices[placement.panel_axis], &k = indices[1 - placement.panel_axis];
  auto apply = [](Op op, const ExprRef& a, const ExprRef& b) { return ir::make_typed(op, {a, b}); };
  ExprRef row = apply(Op::kAdd, apply(Op::kMul, apply(Op::kDiv, n, int64(width)), int64(depth)), k);
  return apply(Op::kAdd, apply(Op::kMul, row, int64(width)), apply(Op::kMod, n, int64(width)));
}

void TileLowering::micro_gemm(const ir::GemmStmt& gemm) {
  const CpuMachine machine = cpu_machine(target_);
  const Placement &pa = placements_.at(gemm.a.buffer.get()), &pb = placements_.at(gemm.b.buffer.get()),
                  &pc = placements_.at(gemm.c.buffer.get());
  const OperandMatrix a = operand_matrix(gemm.a, pa), c = operand_matrix(gemm.c, pc);
  OperandMatrix b = operand_matrix(gemm.b, pb);
  const int am = gemm.transpose_a ? 1 : 0, bn = gemm.transpose_b ? 0 : 1;
  const int64_t rows = c.extent[0], columns = c.extent[1],
                depth = pa.pair_axis < 0 ? a.extent[1 - am] : (a.extent[1 - am] + 1) / 2;
  const RegisterBlock block = register_block(machine, rows, columns);
  const int64_t width = block.vectors * machine.lanes;
  const int64_t panels = (columns + width - 1) / width, blocks = (rows + block.rows - 1) / block.rows;

  // A transposed B that is not held in panels is brought into the form of one, a panel at a time.
  const bool pack = !pb.panel_width && gemm.transpose_b;
  ir::BufferRef packed;
  if (pack) packed = temporary("panel", DType::F32, ir::Scope::kShared, depth * width);
  auto pack_panel = [&](const ExprRef& first, int64_t count) {
    serial("n", int64(count), false, [&](ExprRef n) {
      ExprRef column = ir::make_typed(Op::kMul, {ir::make_typed(Op::kAdd, {first, n}), int64(b.stride[bn])});
      serial("k", int64(depth), false, [&](ExprRef k) {
        ExprRef from = ir::make_typed(Op::kAdd, {ir::make_typed(Op::kAdd, {column, int64(b.first)}),
                                                 ir::make_typed(Op::kMul, {k, int64(b.stride[1 - bn])})});
        ExprRef to = ir::make_typed(Op::kAdd, {ir::make_typed(Op::kMul, {k, int64(width)}), n});
        store(packed, to, ir::make_load(storage(gemm.b.buffer), {from}), nullptr);
      });
    });
  };

  LoopMicroKernel micro;
  micro.c = storage(gemm.c.buffer), micro.a = storage(gemm.a.buffer);
  micro.b = pack ? packed : storage(gemm.b.buffer);
  micro.lanes = machine.lanes;
  if (pa.pair_axis >= 0) micro.pairs = target_.dot16;
  micro.depth = depth - (planted(Planted::kGemmShortK) || planted(Planted::kMicroShortK) ? 1 : 0);
  micro.c_row = c.stride[0], micro.a_row = a.stride[am], micro.a_step = a.stride[1 - am];
  micro.b_step = pb.panel_width || pack ? width : b.stride[1 - bn];
  micro.accumulate = gemm.accumulate && !planted(Planted::kGemmNoAccumulate);
  if (planted(Planted::kMicroAccumulates)) micro.accumulate = true;
  if (planted(Planted::kTransposedOperand) && rows == depth) std::swap(micro.a_row, micro.a_step);
  auto scaled = [&](const ExprRef& index, int64_t stride, int64_t first) {
    return ir::make_typed(Op::kAdd, {ir::make_typed(Op::kMul, {index, int64(stride)}), int64(first)});
  };
  // The micro-kernel for block `i` of rows and panel `p`.
  auto product = [&](const ExprRef& i, int64_t block_rows, const ExprRef& p, int64_t panel_columns) {
    LoopMicroKernel here = micro;
    here.rows = block_rows;
    here.columns = (panel_columns + machine.lanes - 1) / machine.lanes * machine.lanes;
    here.c_at = ir::make_typed(Op::kAdd, {scaled(i, block.rows * c.stride[0], c.first), scaled(p, width, 0)});
    here.a_at = scaled(i, block.rows * a.stride[am], a.first);
    here.b_at = pack ? int64(0) : pb.panel_width ? scaled(p, depth * width, 0) : scaled(p, width, b.first);
    emit({std::move(here)});
  };
  // Runs body for each whole part and for what is left at the end.
  auto parts = [&](const char* name, int64_t count, int64_t size, int64_t total,
                   const std::function<void(const ExprRef&, int64_t)>& body) {
    const int64_t whole = total / size;
    if (whole) serial(name, int64(whole), false, [&](ExprRef at) { body(at, size); });
    if (whole < count && !planted(Planted::kMicroTail)) body(int64(whole), total - whole * size);
  };
  if (pack) {
    parts("panel", panels, width, columns, [&](const ExprRef& p, int64_t panel_columns) {
      pack_panel(ir::make_typed(Op::kMul, {p, int64(width)}), panel_columns);
      parts("rows", blocks, block.rows, rows,
            [&](const ExprRef& i, int64_t block_rows) { product(i, block_rows, p, panel_columns); });
    });
    return;
  }
  parts("rows", blocks, block.rows, rows, [&](const ExprRef& i, int64_t block_rows) {
    parts("panel", panels, width, columns,
          [&](const ExprRef& p, int64_t panel_columns) { product(i, block_rows, p, panel_columns); });
  });
}

}  // namespace kachel::lowering
