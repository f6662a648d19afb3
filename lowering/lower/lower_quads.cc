// Accumulators to a tensor of 16-bit floats, 16 bytes a store. See tile_lowering.h.
//
// A thread has two neighbouring columns of each tile of eight, so that a store of its own would touch 4 bytes. The four
// threads that share a row exchange four such tiles among them: then each has eight columns of one. Where rows begin at
// any address, they store all that they have of a row together (LoopIntrinsic::kStoreRow).
#include "lowering/lower/tile_lowering.h"
#include "lowering/planted.h"

namespace kachel::lowering {

using ir::DType;
using ir::ExprRef;
using ir::Op;
using Kind = LoopIntrinsic::Kind;

namespace {

constexpr int kOfRows = 90;  // whose code is PTX; as CUDA C++ a row is written an element at a time

}  // namespace

// Whether a thread holds what four threads have of a row in steps of 32 columns, and nothing in front of the tensor's
// first column.
bool TileLowering::stores_rows(const Slice& dst, const FragmentLayout& rows) const {
  const ir::TileRef& ref = *dst.ref;
  const FragmentLayout::Axis& columns = rows.axes()[1];
  const bool in_steps = columns.size() == 2 || (columns.size() == 3 && !columns[2].in_thread);
  const ir::AxisSpec::Kind last = ref.axes.back().kind;
  const bool range = last == ir::AxisSpec::Kind::kRange, whole = last == ir::AxisSpec::Kind::kWhole;
  return target_.architecture == kOfRows && in_steps && rows.replicas().empty() && rows.threads() % 32 == 0 &&
         !rows.ragged(0) && !rows.ragged(1) && !ref.within_first && (range || whole) && kept_axes(ref).size() == 2 &&
         has_fact(kernel_, fact_mask_, ref.buffer, Fact::Kind::kUnitStride) &&
         (!dst.starts.back() || out_.ranges.proves_nonnegative(dst.starts.back()));
}

void TileLowering::store_rows(const Slice& dst, const FragmentLayout& rows, const ir::BufferRef& packed) {
  const ir::BufferRef& tensor = dst.ref->buffer;
  const int64_t vectors = rows.shape()[1] / LoopIntrinsic::kRowColumns;
  // Of each row the first step, in the registers where it is.
  std::vector<FragmentLayout::Axis> axes = rows.axes();
  axes[1].resize(2);
  const FragmentLayout first({rows.shape()[0], LoopIntrinsic::kRowColumns}, std::move(axes), rows.threads());
  each_in(first, {"row", "column"}, LoopIntrinsic::kRowVector, [&](const Site& site) {
    ExprRef guard;
    std::vector<ExprRef> indices = element(dst, site, &guard);
    const ExprRef column = indices.back(), columns = scalar(tensor->shape.back(), nullptr);
    std::vector<ExprRef> row = indices;
    row.back() = int64(0);
    guard = in_bounds(tensor, row, guard);
    ExprRef left = ir::make_typed(Op::kMin, {ir::make_typed(Op::kSub, {columns, column}), int64(rows.shape()[1])});
    left = ir::make_cast({DType::I32, nullptr}, left);
    if (planted(Planted::kRowRunsOn)) left = plus(left, int32(1));
    // No row: nor has the lane before, whose elements may be this one's to store.
    if (guard) left = ir::make_typed(Op::kSelect, {guard, left, int32(-rows.shape()[1])});
    LoopIntrinsic store{Kind::kStoreRow, {}, nullptr};
    store.type = tensor->type.dtype;
    store.immediate = vectors;
    store.coordinates = {left};
    const int64_t held = LoopIntrinsic::kRowStep * (vectors - 1) + LoopIntrinsic::kRowVector;
    store.operands = {{storage(tensor), offset(tensor, indices, &site), LoopIntrinsic::kRowVector, true},
                      {packed, register_of(first, {0, 1}, site), held, false}};
    emit({std::move(store)});
  });
}

bool TileLowering::copy_quads(const ir::CopyStmt& copy, const Slice& dst) {
  const ir::BufferRef &to = copy.dst.buffer, &fragment = copy.src.buffer;
  constexpr int64_t kNeighbours = 8;
  if (to->scope != ir::Scope::kGlobal || ir::bits(to->type.dtype) != 16 || !ir::is_float(to->type.dtype) ||
      fragment->type.dtype != DType::F32)
    return false;
  const FragmentLayout& layout = *placements_.at(fragment.get()).fragment;
  const std::optional<FragmentLayout> rows = layout.quad_rows();
  const bool aligned = vector_width(dst) >= kNeighbours;
  if (!rows || (!aligned && !stores_rows(dst, *rows))) return false;

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
  if (!aligned) {
    store_rows(dst, *rows, packed);
    return true;
  }
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
