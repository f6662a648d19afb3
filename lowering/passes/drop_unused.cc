// From the last statement to the first, since a value is read only behind its name, in the name's own block.
#include "lowering/passes/drop_unused.h"

#include <algorithm>
#include <unordered_set>

#include "ir/poly.h"
#include "lowering/loop_ir/loop_build.h"

namespace kachel::lowering {
namespace {

using Variables = std::unordered_set<const ir::Var*>;

void read(const ir::ExprRef& expr, Variables* used) {
  ir::visit(expr, [&](const ir::ExprRef& node) {
    if (node->kind == ir::ExprKind::kVar) used->insert(node->var.get());
  });
}

// x[i] = x[i], or as two statements: v = x[i], x[i] = v. Of registers: other memory may have been written meanwhile.
bool stores_what_is_there(const LoopStore& store, const LoopStmt* before) {
  if (store.buffer->scope != ir::Scope::kRegister) return false;
  ir::ExprRef value = store.value;
  const auto* let = before ? std::get_if<LoopLet>(&before->node) : nullptr;
  if (let && value->kind == ir::ExprKind::kVar && value->var == let->var) value = let->value;
  if (value->kind != ir::ExprKind::kLoad || value->buffer != store.buffer) return false;
  ir::PolyContext polys;
  return polys.equal(value->args[0], store.index);
}

// v = x[i], y[j] = v, where nothing else reads v: y[j] = x[i], which moves a narrow float as it is.
void forward_element(LoopStmt* stmt, const LoopStmt* before, const Variables& used) {
  auto* store = std::get_if<LoopStore>(&stmt->node);
  const auto* let = before ? std::get_if<LoopLet>(&before->node) : nullptr;
  if (!store || !let || store->value->kind != ir::ExprKind::kVar || store->value->var != let->var) return;
  const LoopStore moved{store->buffer, store->index, let->value};
  if (!used.count(let->var.get()) && moved_element(moved)) *store = moved;
}

Variables drop(LoopBlock* body);

// Whether anything of the blocks is left; adds what they read.
bool is_left(const std::vector<LoopBlock*>& blocks, Variables* used) {
  bool any = false;
  for (LoopBlock* body : blocks) {
    used->merge(drop(body));
    any |= !body->empty();
  }
  return any;
}

bool is_needed(LoopStmt* stmt, const LoopStmt* before, Variables* used) {
  if (const auto* let = std::get_if<LoopLet>(&stmt->node)) return used->erase(let->var.get()) > 0;
  if (const auto* store = std::get_if<LoopStore>(&stmt->node)) return !stores_what_is_there(*store, before);
  if (auto* loop = std::get_if<LoopFor>(&stmt->node)) return is_left({&loop->body}, used);
  if (auto* threads = std::get_if<LoopThreads>(&stmt->node)) return is_left({&threads->body}, used);
  if (auto* branch = std::get_if<LoopIf>(&stmt->node)) return is_left({&branch->then_body, &branch->else_body}, used);
  return true;
}

// Returns what the block reads and does not name itself.
Variables drop(LoopBlock* body) {
  Variables used;
  LoopBlock kept;
  for (size_t at = body->size(); at-- > 0;) {
    LoopStmt& stmt = (*body)[at];
    const LoopStmt* before = at > 0 ? &(*body)[at - 1] : nullptr;
    forward_element(&stmt, before, used);
    if (!is_needed(&stmt, before, &used)) continue;
    for_each_expr(stmt, [&](const ir::ExprRef& expr) { read(expr, &used); });
    kept.push_back(std::move(stmt));
  }
  std::reverse(kept.begin(), kept.end());
  *body = std::move(kept);
  return used;
}

}  // namespace

void drop_unused(LoopKernel* kernel) {
  for (LoopBlock* body : {&kernel->producer, &kernel->passed_over, &kernel->body}) drop(body);
}

}  // namespace kachel::lowering
