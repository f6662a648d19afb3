#include "lowering/tile_ir/hoist_reductions.h"

#include <algorithm>
#include <utility>

#include "lowering/planted.h"
#include "lowering/tile_ir/hoist_scans.h"
#include "lowering/tile_ir/region_hoister.h"
#include "lowering/tile_ir/tile_uses.h"

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
  // A reduction whose tile holds it, until something is written that it reads.
  struct Made {
    ExprRef reduce;  // of positions_
    Iters outer;
    ir::BufferRef tile;
    BufferSet reads;
  };

  bool hoists(const ExprRef& expr, const Iters&, const Lets&) const override { return expr->kind == ExprKind::kReduce; }
  bool stays(const ir::ParallelStmt& region) const override { return scan_of(region) != nullptr; }

  ExprRef hoisted(const ExprRef& reduce, const Iters& iters) override {
    Iters outer = used(reduce, iters);
    std::vector<ExprRef> indices = places(outer);
    if (outer.empty()) {
      outer.push_back(one());
      indices.push_back(ir::make_int(0, ir::DType::I64));
    }
    const ir::Scope scope = iters.empty() ? ir::Scope::kShared : ir::Scope::kFragment;
    Made made{by_position(*reduce, outer), outer, nullptr, {}};
    for (const Made& before : made_)
      if (before.tile->scope == scope && are_equal(before, made)) return ir::make_load(before.tile, indices);
    made.tile = make_tile("reduced", scope, reduce->type, outer);
    push_region(made.tile, planted(Planted::kReducedAxis) ? exchanged(reduce, outer) : reduce, outer);
    note_loads(reduce, &made.reads);
    made_.push_back(made);
    return ir::make_load(made.tile, indices);
  }

  void passed(const ir::Stmt& stmt) override {
    BufferSet written;
    note_writes(stmt, &written);
    std::erase_if(made_, [&](const Made& made) {
      return std::any_of(made.reads.begin(), made.reads.end(), [&](const auto* read) { return written.count(read); });
    });
  }
  // What stands before a loop may be written later in it, and what stands in it need not have run.
  void entered() override { outside_.push_back(std::exchange(made_, {})); }
  void left() override {
    made_ = std::move(outside_.back());
    outside_.pop_back();
  }

  // With the same variables as any other reduction over as many indices.
  ExprRef by_position(const ir::Expr& reduce, const Iters& outer) {
    Lets positions;
    Iters own;
    auto next = [&, at = size_t{0}](const ir::IterVar& iter) mutable {
      if (at == positions_.size()) positions_.push_back(std::make_shared<ir::Var>(*one().var));
      positions[iter.var.get()] = ir::make_var(positions_[at]);
      return positions_[at++];
    };
    for (const ir::IterVar& iter : outer) next(iter);
    for (const ir::IterVar& iter : reduce.iters) own.push_back({next(iter), iter.extent});
    return ir::make_reduce(reduce.reduce, own, inline_lets(reduce.args[0], positions));
  }
  static bool are_equal(const Made& a, const Made& b) {
    return std::equal(a.outer.begin(), a.outer.end(), b.outer.begin(), b.outer.end(),
                      [](const auto& x, const auto& y) { return ir::same(x.extent, y.extent); }) &&
           ir::same(a.reduce, b.reduce);
  }

  std::vector<Made> made_;
  std::vector<std::vector<Made>> outside_;
  std::vector<ir::VarRef> positions_;
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
