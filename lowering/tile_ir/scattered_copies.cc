#include "lowering/tile_ir/scattered_copies.h"

#include <algorithm>
#include <utility>

#include "ir/visit.h"
#include "lowering/tile_ir/tile_uses.h"

namespace kachel::lowering {
namespace {

using Kind = ir::AxisSpec::Kind;

bool is_scattered(const ir::CopyStmt& copy) {
  const ir::BufferRef &to = copy.dst.buffer, &from = copy.src.buffer;
  if (from->scope != ir::Scope::kGlobal || to->scope == ir::Scope::kGlobal || to->shape.size() < 2) return false;
  if (ir::bits(from->type.dtype) < 8 || ir::bits(to->type.dtype) < 8) return false;
  if (!has_whole_axes(copy.dst) || copy.atomic != ir::AtomicOp::kNone || copy.src.pad || copy.src.within_first)
    return false;
  const std::vector<ir::AxisSpec>& axes = copy.src.axes;
  return axes.back().kind == Kind::kIndex && kept_axes(copy.src).size() == to->shape.size() &&
         std::none_of(axes.begin(), axes.end(), [](const ir::AxisSpec& axis) { return axis.kind == Kind::kGather; });
}

ir::ParallelStmt region_of(const ir::CopyStmt& copy, ir::Loc loc) {
  std::vector<ir::ExprRef> places, indices;
  ir::ParallelStmt region = region_over(copy.dst.buffer->shape, &places);
  size_t kept = 0;
  for (const ir::AxisSpec& axis : copy.src.axes) {
    if (axis.kind == Kind::kIndex) {
      indices.push_back(axis.start);
      continue;
    }
    const ir::ExprRef& at = places[kept++];
    indices.push_back(axis.kind == Kind::kWhole ? at : ir::make_typed(ir::Op::kAdd, {axis.start, at}));
  }
  ir::AssignStmt assign{copy.dst.buffer, places};
  assign.value = ir::make_load(copy.src.buffer, std::move(indices));
  region.body.push_back({loc, std::move(assign)});
  return region;
}

ir::Block rewritten(ir::Block block) {
  for (ir::Stmt& stmt : block) {
    if (const auto* copy = std::get_if<ir::CopyStmt>(&stmt.node); copy && is_scattered(*copy))
      stmt.node = region_of(*copy, stmt.loc);
    else
      replace_blocks(&stmt, rewritten);
  }
  return block;
}

}  // namespace

ir::Kernel scattered_copies(const ir::Kernel& kernel) {
  ir::Kernel out = kernel;
  out.body = rewritten(kernel.body);
  return out;
}

}  // namespace kachel::lowering
