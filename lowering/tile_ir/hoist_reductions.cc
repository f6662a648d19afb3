#include "lowering/tile_ir/hoist_reductions.h"

#include "lowering/planted.h"
#include "lowering/tile_ir/hoist_scans.h"
#include "lowering/tile_ir/region_hoister.h"

namespace kachel::lowering {
namespace {

using ir::ExprKind;
using ir::ExprRef;

// A planted bug: variables of the same extent exchanged.
ExprRef exchanged(const ExprRef& reduce, const std::vector<ir::IterVar>& outer) {
  for (const ir::IterVar& iter : outer) {
    if (!ir::same(iter.extent, reduce->iters[0].extent)) continue;
    auto copy = std::make_shared<ir::Expr>(*reduce);
    const ir::VarRef &a = iter.var, &b = reduce->iters[0].var;
    copy->args[0] = ir::rewrite(copy->args[0], [&](const ExprRef& node) {
      if (node->kind != ExprKind::kVar) return node;
      return node->var == a ? ir::make_var(b) : node->var == b ? ir::make_var(a) : node;
    });
    return copy;
  }
  return reduce;
}

class Reductions : public RegionHoister {
  bool hoists(const ir::Expr& expr) const override { return expr.kind == ExprKind::kReduce; }
  bool stays(const ir::ParallelStmt& region) const override { return scan_of(region) != nullptr; }

  ExprRef hoisted(const ExprRef& reduce, const Iters& iters) override {
    Iters outer = used(reduce, iters);
    std::vector<ExprRef> indices = places(outer);
    if (outer.empty()) {
      outer.push_back(one());
      indices.push_back(ir::make_int(0, ir::DType::I64));
    }
    const ir::Scope scope = iters.empty() ? ir::Scope::kShared : ir::Scope::kFragment;
    const ir::BufferRef tile = make_tile("reduced", scope, reduce->type, outer);
    push_region(tile, planted(Planted::kReducedAxis) ? exchanged(reduce, outer) : reduce, outer);
    return ir::make_load(tile, indices);
  }
};

}  // namespace

ir::Kernel hoist_reductions(const ir::Kernel& kernel) {
  return Reductions().run(kernel);
}

const ir::Expr* assigned(const ir::ParallelStmt& region, ExprKind kind) {
  if (region.body.size() != 1) return nullptr;
  const auto* assign = std::get_if<ir::AssignStmt>(&region.body[0].node);
  return assign && assign->value->kind == kind ? assign->value.get() : nullptr;
}

const ir::Expr* reduction_of(const ir::ParallelStmt& region) {
  return assigned(region, ExprKind::kReduce);
}

RegionStep step_of(const ir::ParallelStmt& region) {
  if (region.body.size() != 2) return {};
  const auto* let = std::get_if<ir::LetStmt>(&region.body[0].node);
  const auto* assign = std::get_if<ir::AssignStmt>(&region.body[1].node);
  if (!let || !assign || assign->op != ir::AssignOp::kSet || assign->atomic != ir::AtomicOp::kNone) return {};
  if (assign->value->kind != ir::ExprKind::kVar || assign->value->var != let->var) return {};
  return {assign, let->value};
}

}  // namespace kachel::lowering
