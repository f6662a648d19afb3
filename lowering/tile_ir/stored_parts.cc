#include "lowering/tile_ir/stored_parts.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "lowering/planted.h"
#include "lowering/tile_ir/tile_uses.h"

namespace kachel::lowering {
namespace {

using Kind = ir::AxisSpec::Kind;

// What a slice has of an axis: `extent` elements from `first` on; none where that is not known.
struct Part {
  int64_t first = 0, extent = 0;
};

std::optional<Part> part_of(const ir::AxisSpec& axis, int64_t all) {
  if (axis.kind == Kind::kWhole) return Part{0, all};
  if (axis.kind == Kind::kGather || axis.start->kind != ir::ExprKind::kInt) return std::nullopt;
  const Part part{axis.start->int_value, axis.kind == Kind::kIndex ? 1 : axis.extent->int_value};
  return part.first >= 0 && part.extent <= all - part.first ? std::optional(part) : std::nullopt;
}

std::optional<std::vector<Part>> parts_of(const ir::CopyStmt& copy) {
  const ir::BufferRef &to = copy.dst.buffer, &from = copy.src.buffer;
  if (from->scope != ir::Scope::kFragment || to->scope != ir::Scope::kGlobal || has_whole_axes(copy.src))
    return std::nullopt;
  if (ir::bits(from->type.dtype) < 8 || ir::bits(to->type.dtype) < 8 || copy.atomic != ir::AtomicOp::kNone)
    return std::nullopt;
  const auto gathers = [](const ir::AxisSpec& axis) { return axis.kind == Kind::kGather; };
  if (copy.src.within_first || copy.dst.within_first ||
      std::any_of(copy.dst.axes.begin(), copy.dst.axes.end(), gathers))
    return std::nullopt;
  std::vector<Part> parts;
  for (size_t axis = 0; axis < from->shape.size(); ++axis) {
    const auto part = part_of(copy.src.axes[axis], from->shape[axis]->int_value);
    if (!part) return std::nullopt;
    parts.push_back(*part);
  }
  return parts;
}

ir::ExprRef number(int64_t value, const ir::ExprRef& like) {
  return ir::make_int(value, like->type);
}

ir::ParallelStmt region_of(const ir::CopyStmt& copy, const std::vector<Part>& parts, ir::Loc loc) {
  const ir::BufferRef& from = copy.src.buffer;
  std::vector<ir::ExprRef> shape, places, in_part;
  for (size_t axis = 0; axis < parts.size(); ++axis)
    shape.push_back(parts[axis].first ? from->shape[axis] : ir::make_int(parts[axis].extent, ir::DType::I64));
  ir::ParallelStmt region = region_over(shape, &places);
  ir::ExprRef inside;
  for (size_t axis = 0; axis < parts.size(); ++axis) {
    const auto& [first, extent] = parts[axis];
    const ir::ExprRef& place = places[axis];
    if (copy.src.axes[axis].kind != Kind::kIndex)
      in_part.push_back(first && !planted(Planted::kPartFromStart)
                            ? ir::make_typed(ir::Op::kSub, {place, number(first, place)})
                            : place);
    if (!first) continue;
    const ir::ExprRef bounds[] = {ir::make_typed(ir::Op::kGe, {place, number(first, place)}),
                                  ir::make_typed(ir::Op::kLt, {place, number(first + extent, place)})};
    for (const ir::ExprRef& bound : bounds) inside = inside ? ir::make_typed(ir::Op::kAnd, {inside, bound}) : bound;
  }
  ir::AssignStmt assign{copy.dst.buffer, {}};
  size_t kept = 0;
  for (const ir::AxisSpec& axis : copy.dst.axes) {
    if (axis.kind == Kind::kIndex)
      assign.indices.push_back(axis.start);
    else if (axis.kind == Kind::kWhole)
      assign.indices.push_back(in_part[kept++]);
    else
      assign.indices.push_back(ir::make_typed(ir::Op::kAdd, {axis.start, in_part[kept++]}));
  }
  assign.value = ir::make_load(from, places);
  if (inside)
    region.body.push_back({loc, ir::IfStmt{inside, {{loc, std::move(assign)}}, {}}});
  else
    region.body.push_back({loc, std::move(assign)});
  return region;
}

ir::Block rewritten(ir::Block block) {
  for (ir::Stmt& stmt : block) {
    const auto* copy = std::get_if<ir::CopyStmt>(&stmt.node);
    if (const auto parts = copy ? parts_of(*copy) : std::nullopt)
      stmt.node = region_of(*copy, *parts, stmt.loc);
    else
      replace_blocks(&stmt, rewritten);
  }
  return block;
}

}  // namespace

ir::Kernel stored_parts(const ir::Kernel& kernel) {
  ir::Kernel out = kernel;
  out.body = rewritten(kernel.body);
  return out;
}

}  // namespace kachel::lowering
