#include <unordered_set>

#include "ir/concrete.h"
#include "ir/verify.h"

namespace kachel::ir {
namespace {

class Collector {
 public:
  void block(const Block& body) {
    for (const Stmt& stmt : body) std::visit([this](const auto& node) { visit_stmt(node); }, stmt.node);
  }
  bool contains(const VarRef& var) const { return found_.count(var.get()) != 0; }

 private:
  void extent(const ExprRef& expr) {
    visit(expr, [this](const ExprRef& node) {
      if (node->kind == ExprKind::kVar && node->var->kind == VarKind::kDim) found_.insert(node->var.get());
    });
  }
  // Extents inside an expression: those of its reductions.
  void scalar(const ExprRef& expr) {
    visit(expr, [this](const ExprRef& node) {
      for (const IterVar& iter : node->iters) extent(iter.extent);
    });
  }
  void tile(const TileRef& ref) {
    for (size_t i = 0; i < ref.axes.size(); ++i) {
      scalar(ref.axes[i].start);
      extent(axis_extent(ref, i));
      if (ref.axes[i].gather) tile(*ref.axes[i].gather);
    }
    scalar(ref.within_first);
    scalar(ref.within_length);
  }

  void visit_stmt(const DeclStmt& stmt) {
    for (const ExprRef& expr : stmt.buffer->shape) extent(expr);
    scalar(stmt.init);
  }
  void visit_stmt(const LetStmt& stmt) { scalar(stmt.value); }
  void visit_stmt(const CopyStmt& stmt) {
    tile(stmt.dst);
    tile(stmt.src);
  }
  void visit_stmt(const FillStmt& stmt) {
    tile(stmt.dst);
    scalar(stmt.value);
  }
  void visit_stmt(const GemmStmt& stmt) {
    tile(stmt.c);
    tile(stmt.a);
    tile(stmt.b);
  }
  void visit_stmt(const ParallelStmt& stmt) {
    for (const IterVar& iter : stmt.iters) extent(iter.extent);
    block(stmt.body);
  }
  void visit_stmt(const AssignStmt& stmt) {
    for (const ExprRef& expr : stmt.indices) scalar(expr);
    scalar(stmt.value);
  }
  void visit_stmt(const ForStmt& stmt) {
    scalar(stmt.begin);
    scalar(stmt.end);
    extent(stmt.stages);
    block(stmt.body);
  }
  void visit_stmt(const IfStmt& stmt) {
    scalar(stmt.condition);
    block(stmt.then_body);
    block(stmt.else_body);
  }

  std::unordered_set<const Var*> found_;
};

}  // namespace

std::vector<VarRef> static_dims(const Kernel& kernel) {
  Collector collector;
  collector.block(kernel.body);
  std::vector<VarRef> result;
  for (const VarRef& dim : kernel.dims)
    if (collector.contains(dim)) result.push_back(dim);
  return result;
}

}  // namespace kachel::ir
