#include "ir/concrete.h"

#include <cassert>

namespace kachel::ir {

int64_t constant_extent(const ExprRef& extent) {
  assert(extent && extent->kind == ExprKind::kInt);
  return extent->int_value;
}

bool is_tile_axis(const AxisSpec& axis) {
  return axis.kind != AxisSpec::Kind::kIndex;
}

ExprRef axis_extent(const TileRef& tile, size_t axis) {
  const AxisSpec& spec = tile.axes[axis];
  switch (spec.kind) {
    case AxisSpec::Kind::kIndex:
      return nullptr;
    case AxisSpec::Kind::kRange:
      return spec.extent;
    case AxisSpec::Kind::kWhole:
      return tile.buffer->shape[axis];
    case AxisSpec::Kind::kGather:
      if (!spec.gather) return spec.extent;
      for (size_t i = 0; i < spec.gather->axes.size(); ++i)
        if (is_tile_axis(spec.gather->axes[i])) return axis_extent(*spec.gather, i);
      return nullptr;
  }
  return nullptr;
}

std::vector<int64_t> tile_extents(const TileRef& tile) {
  std::vector<int64_t> extents;
  for (size_t i = 0; i < tile.axes.size(); ++i)
    if (ExprRef extent = axis_extent(tile, i)) extents.push_back(constant_extent(extent));
  return extents;
}

}  // namespace kachel::ir
