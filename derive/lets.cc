#include "derive/lets.h"

#include "ir/visit.h"

namespace kachel::derive {

using namespace ir;

namespace {

constexpr int kMostNodes = 2000;  // of an expression with its lets written out

// What is left of `budget` behind all nodes of the expression; negative as soon as there are more.
int count_down(const ExprRef& expr, int budget) {
  --budget;
  for (const ExprRef& arg : expr->args)
    if (budget >= 0) budget = count_down(arg, budget);
  return budget;
}

}  // namespace

Lets::Lets(const Kernel& kernel, const std::vector<const Stmt*>& statements) {
  for (const Stmt& stmt : kernel.body)
    if (const auto* let = std::get_if<LetStmt>(&stmt.node)) define(*let);
  for (const Stmt* stmt : statements) {
    if (const auto* let = std::get_if<LetStmt>(&stmt->node)) define(*let);
    if (const auto* region = std::get_if<ParallelStmt>(&stmt->node)) define_all(region->body);
  }
}

void Lets::define_all(const Block& block) {
  for_each_stmt(block, [&](const Stmt& stmt) {
    if (const auto* let = std::get_if<LetStmt>(&stmt.node)) define(*let);
  });
}

ExprRef Lets::expanded(const ExprRef& expr) {
  ExprRef value = rewrite(expr, [&](const ExprRef& node) {
    if (node->kind != ExprKind::kVar) return node;
    const auto found = values_.find(node->var.get());
    return found == values_.end() ? node : found->second;
  });
  if (count_down(value, kMostNodes) >= 0) return value;
  complete_ = false;
  return expr;
}

}  // namespace kachel::derive
