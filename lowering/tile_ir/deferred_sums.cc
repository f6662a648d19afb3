#include "lowering/tile_ir/deferred_sums.h"

#include "lowering/tile_ir/hoist_reductions.h"
#include "lowering/tile_ir/tile_uses.h"

namespace kachel::lowering {
namespace {

using ir::ExprKind;
using ir::ExprRef;
using ir::Op;

// Statements that use the buffer, of which loops and branches are none.
int64_t uses_of(const ir::Buffer* buffer, const ir::Block& body) {
  int64_t uses = 0;
  for (const ir::Stmt& stmt : body) {
    BufferSet used;
    if (const auto* loop = std::get_if<ir::ForStmt>(&stmt.node)) {
      uses += uses_of(buffer, loop->body);
      note_loads(loop->begin, &used);
      note_loads(loop->end, &used);
    } else if (const auto* branch = std::get_if<ir::IfStmt>(&stmt.node)) {
      uses += uses_of(buffer, branch->then_body) + uses_of(buffer, branch->else_body);
      note_loads(branch->condition, &used);
    } else if (const auto* decl = std::get_if<ir::DeclStmt>(&stmt.node)) {
      note_loads(decl->init, &used);
    } else {
      note_uses(stmt, &used);
    }
    uses += used.count(buffer) != 0;
  }
  return uses;
}

// `tile[i, ...]` with the region's variables in their order.
bool is_own_element(const ExprRef& expr, const ir::ParallelStmt& region) {
  if (expr->kind != ExprKind::kLoad || expr->args.size() != region.iters.size()) return false;
  for (size_t i = 0; i < expr->args.size(); ++i)
    if (expr->args[i]->kind != ExprKind::kVar || expr->args[i]->var != region.iters[i].var) return false;
  return true;
}

// What the region adds to the sum, if it is a step: the load of an element of another tile, else null.
ExprRef added_to(const ir::ParallelStmt& region, ir::BufferRef* sum) {
  if (region.body.size() != 2) return nullptr;
  const auto* let = std::get_if<ir::LetStmt>(&region.body[0].node);
  const auto* assign = std::get_if<ir::AssignStmt>(&region.body[1].node);
  if (!let || !assign || assign->op != ir::AssignOp::kSet || assign->atomic != ir::AtomicOp::kNone) return nullptr;
  if (assign->value->kind != ExprKind::kVar || assign->value->var != let->var) return nullptr;
  const ExprRef& value = let->value;
  if (value->kind != ExprKind::kApply || value->op != Op::kAdd || value->type != ir::DType::F32) return nullptr;
  if (!is_own_element(ir::make_load(assign->buffer, assign->indices), region)) return nullptr;
  *sum = assign->buffer;
  auto is_sum = [&](const ExprRef& expr) { return is_own_element(expr, region) && expr->buffer == assign->buffer; };
  for (size_t i = 0; i < 2; ++i) {
    const ExprRef &part = value->args[i], &carried = value->args[1 - i];
    if (!is_own_element(part, region) || part->buffer == assign->buffer) continue;
    if (is_sum(carried)) return part;
    if (carried->kind != ExprKind::kApply || carried->op != Op::kMul) continue;
    for (size_t side = 0; side < 2; ++side) {
      BufferSet factors;
      note_loads(carried->args[1 - side], &factors);
      if (is_sum(carried->args[side]) && !factors.count(assign->buffer.get()) && !factors.count(part->buffer.get()))
        return part;
    }
  }
  return nullptr;
}

}  // namespace

std::vector<DeferredSum> deferred_sums(const ir::Kernel& kernel, const ir::ForStmt& loop) {
  std::vector<DeferredSum> sums;
  for (const ir::Stmt& stmt : loop.body) {
    const auto* step = std::get_if<ir::ParallelStmt>(&stmt.node);
    ir::BufferRef sum;
    const ExprRef part = step ? added_to(*step, &sum) : nullptr;
    if (!part || uses_of(sum.get(), loop.body) != 1 || uses_of(part->buffer.get(), kernel.body) != 2) continue;
    for (const ir::Stmt& other : loop.body) {
      const auto* region = std::get_if<ir::ParallelStmt>(&other.node);
      const ir::Expr* reduce = region ? reduction_of(*region) : nullptr;
      if (reduce && reduce->reduce == ir::ReduceOp::kSum &&
          std::get<ir::AssignStmt>(region->body[0].node).buffer == part->buffer)
        sums.push_back({region, sum});
    }
  }
  return sums;
}

}  // namespace kachel::lowering
