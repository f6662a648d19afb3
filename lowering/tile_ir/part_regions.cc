#include "lowering/tile_ir/part_regions.h"

#include <algorithm>
#include <optional>

#include "ir/tunable_role.h"
#include "ir/visit.h"
#include "lowering/planted.h"
#include "lowering/tile_ir/part_access.h"
#include "lowering/tile_ir/tile_uses.h"

namespace kachel::lowering {
namespace {

using ir::ExprKind;
using ir::ExprRef;

constexpr int64_t kMostGroups = 8;

// Whether an iteration of another group may read what one of this group writes: then groups cannot follow each other.
bool reads_what_it_writes(const ir::ParallelStmt& region) {
  BufferSet written;
  ir::for_each_stmt(region.body, [&](const ir::Stmt& stmt) {
    if (const auto* assign = std::get_if<ir::AssignStmt>(&stmt.node)) written.insert(assign->buffer.get());
  });
  bool found = false;
  for_each_node(region.body, [&](const ExprRef& node) {
    found |= node->kind == ExprKind::kLoad && written.count(node->buffer.get()) != 0;
  });
  return found;
}

// The axis of the groups: its variable stands beside another one in a fragment's last index.
std::optional<size_t> axis_of_groups(const ir::ParallelStmt& region) {
  if (region.iters.size() < 2) return std::nullopt;
  for (size_t axis = 0; axis < region.iters.size(); ++axis) {
    const ir::IterVar& iter = region.iters[axis];
    if (!ir::is_const(iter.extent) || iter.extent->int_value > kMostGroups) continue;
    bool grouped = false;
    for_each_node(region.body, [&](const ExprRef& node) {
      if (node->kind != ExprKind::kLoad || node->buffer->scope != ir::Scope::kFragment || node->args.size() < 2) return;
      const ExprRef& last = node->args.back();
      bool others = false;
      ir::visit(last, [&](const ExprRef& part) { others |= part->kind == ExprKind::kVar && part->var != iter.var; });
      grouped |= others && ir::mentions(last, iter.var);
    });
    if (grouped) return axis;
  }
  return std::nullopt;
}

ir::Block parted(const ir::Block& body) {
  ir::Block out;
  for (const ir::Stmt& stmt : body) {
    const auto* region = std::get_if<ir::ParallelStmt>(&stmt.node);
    const std::optional<size_t> axis = region ? axis_of_groups(*region) : std::nullopt;
    if (axis && !reads_what_it_writes(*region)) {
      const ir::IterVar& iter = region->iters[*axis];
      ir::ParallelStmt part{region->iters, {}};
      part.iters.erase(part.iters.begin() + static_cast<std::ptrdiff_t>(*axis));
      for (int64_t group = 0; group < iter.extent->int_value; ++group) {
        const int64_t number = planted(Planted::kSameGroup) ? 0 : group;
        part.body = substituted(region->body, iter.var, ir::make_int(number, iter.var->type.dtype));
        for (ir::Stmt& again : parted({{stmt.loc, part}})) out.push_back(std::move(again));
      }
      continue;
    }
    ir::Stmt made = stmt;
    replace_blocks(&made, parted);
    out.push_back(std::move(made));
  }
  return out;
}

}  // namespace

ir::Kernel part_regions(const ir::Kernel& kernel) {
  ir::Kernel out = kernel;
  out.body = parted(kernel.body);
  return out;
}

}  // namespace kachel::lowering
