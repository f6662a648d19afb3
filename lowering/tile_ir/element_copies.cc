#include "lowering/tile_ir/element_copies.h"

#include <algorithm>
#include <utility>

#include "lowering/tile_ir/tile_uses.h"

namespace kachel::lowering {

using ir::AxisSpec;
using ir::ExprRef;

CopySides sides_of(const ir::CopyStmt& copy) {
  const bool to_tile = copy.dst.buffer->scope != ir::Scope::kGlobal;
  return {to_tile ? &copy.dst : &copy.src, to_tile ? &copy.src : &copy.dst, to_tile};
}

bool is_by_elements(const ir::CopyStmt& copy) {
  const auto [tile, slice, to_tile] = sides_of(copy);
  const ir::Buffer &fragment = *tile->buffer, &tensor = *slice->buffer;
  const bool placed = std::all_of(slice->axes.begin(), slice->axes.end(), [](const AxisSpec& axis) {
    bool loads = false;
    ir::visit(axis.start, [&loads](const ExprRef& node) { loads |= node->kind == ir::ExprKind::kLoad; });
    return axis.kind != AxisSpec::Kind::kGather && !axis.index && !loads;
  });
  return fragment.scope == ir::Scope::kFragment && tensor.scope == ir::Scope::kGlobal && placed &&
         !slice->within_first && !slice->pad && copy.atomic == ir::AtomicOp::kNone && has_whole_axes(*tile) &&
         kept_axes(*slice).size() == fragment.shape.size() &&
         ir::is_float(tensor.type.dtype) == ir::is_float(fragment.type.dtype) && ir::bits(tensor.type.dtype) >= 8;
}

std::vector<ExprRef> element_of(const ir::TileRef& slice, const std::vector<ExprRef>& places) {
  std::vector<ExprRef> indices;
  size_t kept = 0;
  for (const AxisSpec& axis : slice.axes) {
    const bool range = axis.kind != AxisSpec::Kind::kIndex;
    const ExprRef at = range ? places[kept++] : axis.start;
    indices.push_back(range && axis.start ? ir::make_typed(ir::Op::kAdd, {axis.start, at}) : at);
  }
  return indices;
}

ir::Stmt element_copy(const CopySides& sides, const ir::BufferRef& fragment, const std::vector<ExprRef>& in_fragment,
                      const std::vector<ExprRef>& in_tensor, ir::Loc loc) {
  const ir::BufferRef& tensor = sides.slice->buffer;
  ir::AssignStmt assign{sides.to_tile ? fragment : tensor, sides.to_tile ? in_fragment : in_tensor};
  const ExprRef value = sides.to_tile ? ir::make_load(tensor, in_tensor) : ir::make_load(fragment, in_fragment);
  const ir::DType type = ir::compute_type(assign.buffer->type.dtype);
  assign.value = value->type == type ? value : ir::make_cast({type, nullptr}, value);
  return {loc, std::move(assign)};
}

}  // namespace kachel::lowering
