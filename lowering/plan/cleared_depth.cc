#include "lowering/plan/cleared_depth.h"

#include <algorithm>
#include <vector>

#include "lowering/tile_ir/tile_uses.h"

namespace kachel::lowering {
namespace {

bool is_whole(const ir::TileRef& tile) {
  return has_whole_axes(tile) && !tile.pad;
}

bool region_may_clear(const ir::ParallelStmt& region, const ir::Buffer& tile) {
  return std::all_of(region.body.begin(), region.body.end(), [&](const ir::Stmt& stmt) {
    const auto* assign = std::get_if<ir::AssignStmt>(&stmt.node);
    BufferSet written;
    note_writes(stmt, &written);
    return !written.count(&tile) || (assign && assign->op == ir::AssignOp::kSet);
  });
}

bool copy_may_clear(const ir::CopyStmt& copy, const ir::Buffer& tile, size_t axis) {
  const ir::TileRef &dst = copy.dst, &src = copy.src;
  if (dst.buffer.get() != &tile) return true;
  if (src.buffer->scope != ir::Scope::kGlobal) return is_whole(dst) && is_whole(src);
  const std::vector<size_t> own = kept_axes(dst), others = kept_axes(src);
  const size_t at = static_cast<size_t>(std::find(own.begin(), own.end(), axis) - own.begin());
  return at < others.size() && !src.pad && ends_with_tensor(src, others[at], tile.shape[axis]->int_value);
}

}  // namespace

bool ends_with_tensor(const ir::TileRef& slice, size_t axis, int64_t extent) {
  const ir::AxisSpec& spec = slice.axes[axis];
  const ir::ExprRef& all = slice.buffer->shape[axis];
  if (spec.kind == ir::AxisSpec::Kind::kWhole) return ir::is_int(all, extent);
  return spec.kind == ir::AxisSpec::Kind::kRange && ir::is_const(spec.start) &&
         ir::is_int(all, spec.start->int_value + extent);
}

bool may_be_cleared(const ir::Stmt& stmt, const ir::Buffer& tile, size_t axis) {
  if (const auto* decl = std::get_if<ir::DeclStmt>(&stmt.node))
    return decl->buffer.get() != &tile || !decl->init || ir::is_zero_constant(decl->init);
  if (const auto* fill = std::get_if<ir::FillStmt>(&stmt.node))
    return fill->dst.buffer.get() != &tile || ir::is_zero_constant(fill->value);
  if (const auto* gemm = std::get_if<ir::GemmStmt>(&stmt.node)) return gemm->c.buffer.get() != &tile;
  if (const auto* region = std::get_if<ir::ParallelStmt>(&stmt.node)) return region_may_clear(*region, tile);
  const auto* copy = std::get_if<ir::CopyStmt>(&stmt.node);
  return !copy || copy_may_clear(*copy, tile, axis);
}

}  // namespace kachel::lowering
