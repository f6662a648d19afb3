#include "lowering/tile_ir/scalar_tiles.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "ir/visit.h"
#include "lowering/tile_ir/tile_uses.h"

namespace kachel::lowering {
namespace {

using ir::ExprKind;
using ir::ExprRef;
using VarSet = std::set<const ir::Var*>;

// Which names become tiles.
class Choice {
 public:
  explicit Choice(const ir::Block& body) {
    block(body);
    for (const ir::LetStmt* let : lets_)
      if (suits(*let)) chosen_.insert(let->var.get());
    // A name that another one needs which stays has to stay as well.
    for (bool changed = true; std::exchange(changed, false);)
      for (const ir::LetStmt* let : lets_)
        if (!chosen_.count(let->var.get()))
          ir::visit(let->value, [&](const ExprRef& node) {
            changed |= node->kind == ExprKind::kVar && chosen_.erase(node->var.get()) != 0;
          });
  }
  const VarSet& chosen() const { return chosen_; }

 private:
  void block(const ir::Block& body) {
    for (const ir::Stmt& stmt : body) {
      if (std::holds_alternative<ir::ParallelStmt>(stmt.node)) continue;
      if (const auto* let = std::get_if<ir::LetStmt>(&stmt.node)) {
        lets_.push_back(let);
        continue;
      }
      ir::for_each_expr(stmt, [this](const ExprRef& expr) {
        ir::visit(expr, [this](const ExprRef& node) {
          if (node->kind == ExprKind::kVar) places_.insert(node->var.get());
        });
      });
      if (const auto* loop = std::get_if<ir::ForStmt>(&stmt.node)) block(loop->body);
      if (const auto* branch = std::get_if<ir::IfStmt>(&stmt.node)) block(branch->then_body), block(branch->else_body);
    }
  }

  // In textual order, so that what a name is made of has been looked at.
  bool suits(const ir::LetStmt& let) const {
    const ir::DType type = let.value->type;
    if ((type != ir::DType::F32 && type != ir::DType::I32) || places_.count(let.var.get())) return false;
    bool reads = false;
    ir::visit(let.value, [&](const ExprRef& node) {
      reads |= node->kind == ExprKind::kLoad && node->buffer->scope == ir::Scope::kFragment;
      reads |= node->kind == ExprKind::kVar && chosen_.count(node->var.get()) != 0;
    });
    return reads;
  }

  std::vector<const ir::LetStmt*> lets_;  // outside of regions
  VarSet places_, chosen_;
};

class Rewriter {
 public:
  explicit Rewriter(const VarSet& chosen) : chosen_(chosen) {}

  ir::Block block(const ir::Block& body) {
    ir::Block out;
    for (ir::Stmt stmt : body) {
      if (auto* let = std::get_if<ir::LetStmt>(&stmt.node); let && chosen_.count(let->var.get())) {
        out.push_back({stmt.loc, region_of(*let)});
        continue;
      }
      if (auto* region = std::get_if<ir::ParallelStmt>(&stmt.node))
        rewrite_region(&region->body, [this](const ExprRef& value) { return expr(value); });
      if (auto* loop = std::get_if<ir::ForStmt>(&stmt.node)) loop->body = block(loop->body);
      if (auto* branch = std::get_if<ir::IfStmt>(&stmt.node)) {
        branch->then_body = block(branch->then_body);
        branch->else_body = block(branch->else_body);
      }
      out.push_back(std::move(stmt));
    }
    return out;
  }
  const std::vector<ir::BufferRef>& made() const { return made_; }

 private:
  ir::ParallelStmt region_of(const ir::LetStmt& let) {
    const ExprRef one = ir::make_int(1, ir::DType::I64);
    auto made = std::make_shared<ir::Buffer>();
    made->name = let.var->name;
    made->scope = ir::Scope::kFragment;
    made->type = {let.value->type, nullptr};
    made->shape = {one};
    made->loc = let.var->loc;
    const ExprRef value = expr(let.value);
    tiles_[let.var.get()] = made;
    made_.push_back(made);
    auto index = std::make_shared<ir::Var>(*let.var);
    index->kind = ir::VarKind::kParallel;
    index->name = "one";
    index->type = {ir::DType::I64, nullptr};
    ir::AssignStmt assign;
    assign.buffer = made;
    assign.indices = {ir::make_var(index)};
    assign.value = value;
    ir::ParallelStmt region{{{index, one}}, {}};
    region.body.push_back({let.var->loc, std::move(assign)});
    return region;
  }

  ExprRef expr(const ExprRef& value) const {
    return ir::rewrite(value, [this](const ExprRef& node) {
      if (node->kind != ExprKind::kVar) return node;
      const auto tile = tiles_.find(node->var.get());
      if (tile == tiles_.end()) return node;
      return ir::make_load(tile->second, {ir::make_int(0, ir::DType::I64)});
    });
  }
  const VarSet& chosen_;
  std::map<const ir::Var*, ir::BufferRef> tiles_;
  std::vector<ir::BufferRef> made_;
};

}  // namespace

ir::Kernel scalar_tiles(const ir::Kernel& kernel) {
  const Choice choice(kernel.body);
  if (choice.chosen().empty()) return kernel;
  Rewriter rewriter(choice.chosen());
  ir::Block body = rewriter.block(kernel.body);
  return with_declared(kernel, rewriter.made(), std::move(body));
}

}  // namespace kachel::lowering
