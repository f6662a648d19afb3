// Copies into panels whose columns lie along the rows of the tensor (B of a product with B^T): blocks of vectors are
// transposed in registers, what is left over is copied element by element. See cpu_gemm.h and tile_lowering.h.
#include "lowering/lower/tile_lowering.h"
#include "lowering/machine/cpu_machine.h"
#include "lowering/planted.h"

namespace kachel::lowering {

using ir::DType;
using ir::ExprRef;
using ir::Op;

// For sides that exist everywhere. False: nothing was emitted.
bool TileLowering::copy_transposed(const CpuSide& dst, const CpuSide& src) {
  const ir::BufferRef &to = dst.slice->ref->buffer, &from = src.slice->ref->buffer;
  const DType type = from->type.dtype;
  if (!dst.panel_width || placements_.at(to.get()).panel_axis != 0 || dst.extents.size() != 2 ||
      to->type.dtype != type || (type != DType::F32 && type != DType::F16 && type != DType::BF16) ||
      from->scope != ir::Scope::kGlobal || !has_unit_stride(src))
    return false;
  for (const ir::AxisSpec& axis : src.slice->ref->axes)
    if (axis.gather) return false;
  const int64_t lanes = cpu_machine(target_).lanes, columns = dst.extents[0], depth = dst.extents[1];
  if (columns < lanes || depth < lanes) return false;
  auto places = [&](const ExprRef& n, const ExprRef& k, ExprRef* to_at, ExprRef* from_at) {
    CpuSide target = dst, source = src;
    for (CpuSide* side : {&target, &source}) set_coordinate(side, 0, n), set_coordinate(side, 1, k);
    *to_at = offset(to, target.indices, nullptr), *from_at = offset(from, source.indices, nullptr);
  };
  auto element = [&](const ExprRef& n, const ExprRef& k) {
    ExprRef to_at, from_at;
    places(n, k, &to_at, &from_at);
    store(storage(to), to_at, ir::make_load(storage(from), {from_at}), nullptr);
  };
  auto from_on = [](const ExprRef& at, int64_t first) { return ir::make_typed(Op::kAdd, {at, int64(first)}); };
  const int64_t whole_columns = columns / lanes * lanes, whole_depth = depth / lanes * lanes;
  serial("block", int64(columns / lanes), false, [&](ExprRef block) {
    ExprRef n = let("n", ir::make_typed(Op::kMul, {block, int64(lanes)}));
    serial("step", int64(depth / lanes), false, [&](ExprRef step) {
      ExprRef k = let("k", ir::make_typed(Op::kMul, {step, int64(lanes)})), to_at, from_at;
      places(n, k, &to_at, &from_at);
      emit({LoopTranspose{storage(to), storage(from), to_at, from_at, int64(dst.panel_width),
                          strides_.at(from.get())[src.axis_of[0]], lanes}});
    });
    if (whole_depth < depth && !planted(Planted::kTransposeTail))
      serial("lane", int64(lanes), false, [&](ExprRef lane) {
        serial("k", int64(depth - whole_depth), false,
               [&](ExprRef k) { element(ir::make_typed(Op::kAdd, {n, lane}), from_on(k, whole_depth)); });
      });
  });
  if (whole_columns < columns)
    serial("n", int64(columns - whole_columns), false, [&](ExprRef n) {
      serial("k", int64(depth), false, [&](ExprRef k) { element(from_on(n, whole_columns), k); });
    });
  return true;
}

}  // namespace kachel::lowering
