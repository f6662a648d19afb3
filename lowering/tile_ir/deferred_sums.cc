#include "lowering/tile_ir/deferred_sums.h"

#include <algorithm>

#include "ir/numerics.h"
#include "ir/visit.h"
#include "lowering/tile_ir/hoist_reductions.h"
#include "lowering/tile_ir/tile_uses.h"

namespace kachel::lowering {
namespace {

using ir::ExprKind;
using ir::ExprRef;
using ir::Op;

// Of a tile that has an element for each iteration of the region, or of one element where that has one iteration.
bool is_result(const ExprRef& expr, const ir::ParallelStmt& region) {
  if (is_own_element(expr, region.iters)) return true;
  const auto one = [](const ir::IterVar& iter) { return ir::is_int(iter.extent, 1); };
  const auto first = [](const ExprRef& index) { return ir::is_int(index, 0); };
  return expr->kind == ExprKind::kLoad && std::all_of(region.iters.begin(), region.iters.end(), one) &&
         std::all_of(expr->args.begin(), expr->args.end(), first);
}

// What the region combines the sum with, and how, if it is a step: the load of an element of another tile, else null.
ExprRef added_to(const ir::ParallelStmt& region, ir::BufferRef* sum, Op* by) {
  const auto& [assign, value] = step_of(region);
  if (!assign) return nullptr;
  if (value->kind != ExprKind::kApply || value->args.size() != 2) return nullptr;
  if (value->type != ir::DType::F32 && value->type != ir::DType::I32) return nullptr;
  if (!is_own_element(ir::make_load(assign->buffer, assign->indices), region.iters)) return nullptr;
  *sum = assign->buffer;
  *by = value->op;
  auto is_sum = [&](const ExprRef& expr) {
    return is_own_element(expr, region.iters) && expr->buffer == assign->buffer;
  };
  for (size_t i = 0; i < 2; ++i) {
    const ExprRef &part = value->args[i], &carried = value->args[1 - i];
    if (!is_result(part, region) || part->buffer == assign->buffer) continue;
    if (is_sum(carried)) return part;
    if (value->op != Op::kAdd || carried->kind != ExprKind::kApply || carried->op != Op::kMul) continue;
    for (size_t side = 0; side < 2; ++side) {
      BufferSet factors;
      note_loads(carried->args[1 - side], &factors);
      if (is_sum(carried->args[side]) && !factors.count(assign->buffer.get()) && !factors.count(part->buffer.get()))
        return part;
    }
  }
  return nullptr;
}

// A block of the loop and what stands under conditions in it, under which no part changes where they fail.
void find_sums(const ir::Kernel& kernel, const ir::ForStmt& loop, const ir::Block& block,
               std::vector<DeferredSum>* sums) {
  for (const ir::Stmt& stmt : block) {
    if (const auto* branch = std::get_if<ir::IfStmt>(&stmt.node)) {
      find_sums(kernel, loop, branch->then_body, sums);
      find_sums(kernel, loop, branch->else_body, sums);
      continue;
    }
    const auto* step = std::get_if<ir::ParallelStmt>(&stmt.node);
    ir::BufferRef sum;
    Op by = Op::kAdd;
    const ExprRef part = step ? added_to(*step, &sum, &by) : nullptr;
    if (!part || uses_of(sum.get(), loop.body) != 1 || uses_of(part->buffer.get(), kernel.body) != 2) continue;
    for (const ir::Stmt& other : block) {
      const auto* region = std::get_if<ir::ParallelStmt>(&other.node);
      const ir::Expr* reduce = region ? reduction_of(*region) : nullptr;
      if (!reduce || std::get<ir::AssignStmt>(region->body[0].node).buffer != part->buffer) continue;
      const bool in_parts = reduce->reduce == ir::ReduceOp::kSum || ir::is_extreme(reduce->reduce);
      if (in_parts && ir::operation_of(reduce->reduce) == by) sums->push_back({region, sum, reduce->reduce});
    }
  }
}

}  // namespace

std::vector<DeferredSum> deferred_sums(const ir::Kernel& kernel, const ir::ForStmt& loop) {
  std::vector<DeferredSum> sums;
  find_sums(kernel, loop, loop.body, &sums);
  return sums;
}

std::set<const ir::ParallelStmt*> deferred_reductions(const ir::Kernel& kernel) {
  std::set<const ir::ParallelStmt*> found;
  ir::for_each_stmt(kernel.body, [&](const ir::Stmt& stmt) {
    if (const auto* loop = std::get_if<ir::ForStmt>(&stmt.node))
      for (const DeferredSum& sum : deferred_sums(kernel, *loop)) found.insert(sum.reduction);
  });
  return found;
}

}  // namespace kachel::lowering
