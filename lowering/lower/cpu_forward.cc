// Copies from a tensor on the CPU that need not be made: where the next regions only read the tile, up to one that
// writes all of it, its elements are read from the tensor itself. A row then passes through the first-level cache once
// less. See tile_lowering.h.
#include <algorithm>

#include "lowering/lower/tile_lowering.h"
#include "lowering/tile_ir/tile_uses.h"

namespace kachel::lowering {

using ir::AxisSpec;
using ir::ExprRef;

namespace {

bool writes(const ir::Block& body, const ir::BufferRef& tile) {
  return std::any_of(body.begin(), body.end(), [&](const ir::Stmt& stmt) {
    if (const auto* assign = std::get_if<ir::AssignStmt>(&stmt.node)) return assign->buffer == tile;
    const auto* branch = std::get_if<ir::IfStmt>(&stmt.node);
    return branch && (writes(branch->then_body, tile) || writes(branch->else_body, tile));
  });
}

// Whether each iteration writes its own element, come what may, and the iterations are the tile.
bool writes_all(const ir::ParallelStmt& region, const ir::BufferRef& tile) {
  if (region.iters.size() != tile->shape.size()) return false;
  for (size_t i = 0; i < region.iters.size(); ++i)
    if (!ir::same(region.iters[i].extent, tile->shape[i])) return false;
  bool all = false;
  for (const ir::Stmt& stmt : region.body) {
    const auto* assign = std::get_if<ir::AssignStmt>(&stmt.node);
    if (std::holds_alternative<ir::IfStmt>(stmt.node) && writes({stmt}, tile)) return false;
    if (!assign || assign->buffer != tile) continue;
    if (assign->atomic != ir::AtomicOp::kNone) return false;
    for (size_t i = 0; i < region.iters.size(); ++i) {
      const ExprRef& index = assign->indices[i];
      if (index->kind != ir::ExprKind::kVar || index->var != region.iters[i].var) return false;
    }
    all = true;
  }
  return all;
}

// Up to a region that writes all of the tile, or to the end.
bool regions_alone_read(std::span<const ir::Stmt> following, const ir::BufferRef& tile) {
  for (const ir::Stmt& stmt : following) {
    BufferSet used;
    note_uses(stmt, &used);
    if (!used.count(tile.get())) continue;
    const auto* region = std::get_if<ir::ParallelStmt>(&stmt.node);
    if (!region) return false;
    if (writes(region->body, tile)) return writes_all(*region, tile);
  }
  return true;
}

}  // namespace

bool TileLowering::forward_copy(const ir::CopyStmt& copy, const Slice& src) {
  const ir::BufferRef &to = copy.dst.buffer, &from = copy.src.buffer;
  if (copy.atomic != ir::AtomicOp::kNone || from->scope != ir::Scope::kGlobal || to->scope == ir::Scope::kGlobal ||
      from->direction != ir::Direction::kIn || from->type != to->type || ir::bits(from->type.dtype) < 8 ||
      !is_whole(copy.dst) || copy.src.within_first || !regions_alone_read(following_, to))
    return false;
  for (const AxisSpec& axis : copy.src.axes)
    if (axis.gather) return false;
  CpuSide side;
  bool inside = false;
  LoopBlock bounds = nested([&] { inside = bounds_of(src, &side); });
  inside &= !side.present && std::all_of(side.whole.begin(), side.whole.end(), [](bool whole) { return whole; });
  if (!inside || !has_unit_stride(side)) return false;
  note_ahead(copy);
  forwarded_.emplace(to.get(), src);
  return true;
}

ExprRef TileLowering::load_forwarded(const Slice& from, const std::vector<ExprRef>& indices, const Site* site) {
  std::vector<ExprRef> places;
  size_t next = 0;
  for (size_t axis = 0; axis < from.ref->axes.size(); ++axis) {
    if (from.ref->axes[axis].kind == AxisSpec::Kind::kIndex) {
      places.push_back(from.starts[axis]);
      continue;
    }
    const ExprRef& at = indices[next++];
    const bool from_start = from.starts[axis] && !ir::is_int(from.starts[axis], 0);
    places.push_back(from_start ? ir::make_typed(ir::Op::kAdd, {from.starts[axis], at}) : at);
  }
  const ir::BufferRef& tensor = from.ref->buffer;
  return ir::make_load(storage(tensor), {offset(tensor, places, site)});
}

}  // namespace kachel::lowering
