#include "lowering/tile_ir/hoist_scans.h"

#include <algorithm>

#include "lowering/tile_ir/hoist_reductions.h"
#include "lowering/tile_ir/region_hoister.h"
#include "lowering/tile_ir/tile_uses.h"

namespace kachel::lowering {
namespace {

using ir::ExprKind;
using ir::ExprRef;

// Whether it is the element of a fragment at the iteration's own place, and there is one for each element.
bool is_element(const ExprRef& value, const std::vector<ir::IterVar>& iters) {
  if (!is_own_element(value, iters) || value->buffer->scope != ir::Scope::kFragment) return false;
  return std::equal(iters.begin(), iters.end(), value->buffer->shape.begin(),
                    [](const ir::IterVar& iter, const ExprRef& extent) { return ir::same(extent, iter.extent); });
}

class Scans : public RegionHoister {
  bool hoists(const ExprRef& expr, const Iters&, const Lets&) const override { return expr->kind == ExprKind::kScan; }
  bool stays(const ir::ParallelStmt& region) const override {
    return scan_of(region) || !holds(region, [](const ir::Expr& expr) { return expr.kind == ExprKind::kScan; });
  }

  ExprRef hoisted(const ExprRef& scan, const Iters& iters) override {
    const ExprRef operand = inline_lets(scan->args[0], {{scan->iters[0].var.get(), scan->args[1]}});
    auto made = std::make_shared<ir::Expr>(*scan);
    made->iters.clear();
    made->args[0] = operand;
    const Iters outer = used(made, iters);
    const ir::BufferRef tile = make_tile("scanned", ir::Scope::kFragment, scan->type, outer);
    const bool held = is_element(operand, outer);
    if (!held) push_region(tile, operand, outer);
    if (!held) made->args[0] = ir::make_load(tile, places(outer));
    push_region(tile, made, outer);
    return ir::make_load(tile, places(outer));
  }
};

}  // namespace

ir::Kernel hoist_scans(const ir::Kernel& kernel) {
  return Scans().run(kernel);
}

const ir::Expr* scan_of(const ir::ParallelStmt& region) {
  const ir::Expr* scan = assigned(region, ExprKind::kScan);
  return scan && scan->iters.empty() ? scan : nullptr;
}

}  // namespace kachel::lowering
