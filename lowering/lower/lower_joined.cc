// Copies of rows of a few elements, pixels of three bytes say, that lie without gaps on both sides: their last two axes
// as one, in wide accesses. See tile_lowering.h.
#include "lowering/lower/tile_lowering.h"
#include "lowering/planted.h"

namespace kachel::lowering {

using ir::AxisSpec;
using ir::ExprRef;
using ir::Op;

namespace {

bool is_range(const AxisSpec& axis) {
  return axis.kind == AxisSpec::Kind::kRange || axis.kind == AxisSpec::Kind::kWhole;
}

}  // namespace

// Elements of one access along both axes; 0: they cannot be one.
int64_t TileLowering::joined_width(const Slice& slice) const {
  const ir::TileRef& ref = *slice.ref;
  const ir::BufferRef& buffer = ref.buffer;
  const size_t rank = ref.axes.size();
  if (rank < 2 || ref.within_first || !is_range(ref.axes[rank - 2]) || !is_range(ref.axes[rank - 1])) return 0;
  if (buffer->shape.back()->kind != ir::ExprKind::kInt || ir::bits(buffer->type.dtype) < 8) return 0;
  const std::vector<int64_t> shape = slice_shape(ref);
  const int64_t columns = buffer->shape.back()->int_value, length = shape.end()[-2] * columns;
  if (shape.back() != columns || (slice.starts.back() && !ir::is_int(slice.starts.back(), 0))) return 0;
  int64_t width = 16 / (ir::bits(buffer->type.dtype) / 8);
  if (buffer->scope == ir::Scope::kGlobal) {
    if (!has_fact(kernel_, fact_mask_, buffer, Fact::Kind::kRows)) return 0;
  } else {
    const Layout& layout = placements_.at(buffer.get()).layout;
    if (layout.swizzle().mask || layout.axis_stride(rank - 2) != columns || layout.axis_stride(rank - 1) != 1) return 0;
    for (size_t axis = 0; axis + 2 < rank; ++axis)
      while (layout.axis_stride(axis) % width) width /= 2;
    while (buffer->shape[rank - 2]->int_value * columns % width) width /= 2;  // its end parts no vector
  }
  while (length % width) width /= 2;
  if (const ExprRef& row = slice.starts[rank - 2])
    while (out_.ranges.multiple_of(row) * columns % width) width /= 2;
  return width;
}

// Index and guard of the vector that begins at the site, whose last coordinate goes along both axes.
ExprRef TileLowering::joined_at(const Slice& slice, const Site& site, ExprRef* guard) {
  const ir::BufferRef& buffer = slice.ref->buffer;
  Site first = site;
  const ExprRef column = first.coords.back();
  first.coords.insert(first.coords.end() - 1, int64(0));
  std::vector<ExprRef> indices = element(slice, first, guard);
  *guard = in_bounds(buffer, {indices.begin(), indices.end() - 2}, *guard);
  const int64_t columns = buffer->shape.back()->int_value;
  const ExprRef at = let("at", plus(times(indices.end()[-2], columns), column));
  const ExprRef end = times(scalar(buffer->shape.end()[-2], nullptr), columns);
  if (!out_.ranges.proves_nonnegative(at)) *guard = both(*guard, ir::make_typed(Op::kGe, {at, int64(0)}));
  if (!out_.ranges.proves_less(at, end) && !planted(Planted::kJoinedEnd))
    *guard = both(*guard, ir::make_typed(Op::kLt, {at, end}));
  indices.back() = column;
  return offset(buffer, indices, &site);
}

}  // namespace kachel::lowering
