#include "lowering/tile_ir/region_value.h"

#include <unordered_map>

#include "ir/expansion.h"

namespace kachel::lowering {

using ir::ExprRef;

ExprRef region_value(const ir::ParallelStmt& region, uint64_t most) {
  const auto* assign = region.body.empty() ? nullptr : std::get_if<ir::AssignStmt>(&region.body.back().node);
  if (!assign) return nullptr;
  std::unordered_map<const ir::Var*, ExprRef> names;
  const auto written_out = [&](const ExprRef& value) {
    return ir::rewrite(value, [&](const ExprRef& node) {
      const auto found = node->kind == ir::ExprKind::kVar ? names.find(node->var.get()) : names.end();
      return found == names.end() ? node : found->second;
    });
  };
  ir::Expansion expansion;
  for (size_t i = 0; i + 1 < region.body.size(); ++i) {
    const auto* let = std::get_if<ir::LetStmt>(&region.body[i].node);
    if (!let) return nullptr;
    expansion.define(let->var.get(), let->value);
    if (expansion.size(let->value) > most) return nullptr;
    names[let->var.get()] = written_out(let->value);
  }
  return expansion.size(assign->value) > most ? nullptr : written_out(assign->value);
}

}  // namespace kachel::lowering
