#include "lowering/tile_ir/block_copy.h"

#include <utility>

#include "ir/instantiate.h"

namespace kachel::lowering {
namespace {

class Copier {
 public:
  explicit Copier(Substitutions values) : values_(std::move(values)) {}

  ir::Block block(const ir::Block& body) {
    ir::Block out;
    for (ir::Stmt stmt : body) {
      std::visit([this](auto& node) { statement(&node); }, stmt.node);
      out.push_back(std::move(stmt));
    }
    return out;
  }

 private:
  ir::VarRef bind(const ir::VarRef& var) {
    auto made = std::make_shared<ir::Var>(*var);
    values_[var.get()] = ir::make_var(made);
    return made;
  }
  void iters(std::vector<ir::IterVar>* list) {
    for (ir::IterVar& iter : *list) iter.var = bind(iter.var);
  }
  void expr(ir::ExprRef* value) {
    if (!*value) return;
    ir::visit(*value, [this](const ir::ExprRef& node) {
      for (const ir::IterVar& iter : node->iters) bind(iter.var);
    });
    *value = ir::fold(ir::rewrite(*value, [this](const ir::ExprRef& node) -> ir::ExprRef {
      if (node->kind == ir::ExprKind::kVar) {
        const auto found = values_.find(node->var.get());
        return found == values_.end() ? node : found->second;
      }
      if (node->iters.empty()) return node;
      auto made = std::make_shared<ir::Expr>(*node);
      for (ir::IterVar& iter : made->iters) iter.var = values_.at(iter.var.get())->var;
      return made;
    }));
  }
  void tile(ir::TileRef* ref) {
    for (ir::AxisSpec& axis : ref->axes) {
      expr(&axis.start), expr(&axis.index);
      if (!axis.gather) continue;
      axis.gather = std::make_shared<ir::TileRef>(*axis.gather);
      tile(axis.gather.get());
    }
    expr(&ref->within_first), expr(&ref->within_length);
  }

  void statement(ir::DeclStmt*) {}
  void statement(ir::LetStmt* let) {
    expr(&let->value);
    let->var = bind(let->var);
  }
  void statement(ir::CopyStmt* copy) { tile(&copy->dst), tile(&copy->src); }
  void statement(ir::FillStmt* fill) { tile(&fill->dst), expr(&fill->value); }
  void statement(ir::GemmStmt* gemm) { tile(&gemm->c), tile(&gemm->a), tile(&gemm->b); }
  void statement(ir::ParallelStmt* region) {
    iters(&region->iters);
    region->body = block(region->body);
  }
  void statement(ir::AssignStmt* assign) {
    for (ir::ExprRef& index : assign->indices) expr(&index);
    expr(&assign->value);
  }
  void statement(ir::ForStmt* loop) {
    expr(&loop->begin), expr(&loop->end);
    loop->var = bind(loop->var);
    loop->body = block(loop->body);
  }
  void statement(ir::IfStmt* branch) {
    expr(&branch->condition);
    branch->then_body = block(branch->then_body);
    branch->else_body = block(branch->else_body);
  }

  Substitutions values_;
};

}  // namespace

ir::Block copy_of(const ir::Block& block, Substitutions values) {
  return Copier(std::move(values)).block(block);
}

}  // namespace kachel::lowering
