#include "ir/one_axis.h"

#include "ir/query.h"
#include "ir/visit.h"

namespace kachel::ir {
namespace {

constexpr int kMostNodes = 200;  // that are compared: names may use each other many times

}  // namespace

OneAxis::OneAxis(const Kernel& kernel) : kernel_(kernel) {
  for_each_stmt(kernel.body, [this](const Stmt& stmt) {
    if (const auto* let = std::get_if<LetStmt>(&stmt.node)) names_[let->var.get()] = let->value;
  });
}

// What a name stands for, unless that is read of memory, which may be something else where it is used.
ExprRef OneAxis::resolved(ExprRef expr) const {
  while (expr->kind == ExprKind::kVar) {
    const auto found = names_.find(expr->var.get());
    if (found == names_.end() || loads(found->second)) return expr;
    expr = found->second;
  }
  return expr;
}

// An index, without its conversion to their type.
ExprRef OneAxis::index(const ExprRef& expr) const {
  const ExprRef named = resolved(expr);
  const bool converts = named->kind == ExprKind::kCast && named->cast_type.dtype == DType::I64;
  return converts ? resolved(named->args[0]) : named;
}

bool OneAxis::same_value(const ExprRef& a, const ExprRef& b, int* budget) const {
  if (a == b || same(a, b)) return true;
  if (--*budget < 0) return false;
  const ExprRef x = resolved(a), y = resolved(b);
  if (same(x, y)) return true;
  if (x->kind != ExprKind::kApply || y->kind != ExprKind::kApply || x->op != y->op || x->type != y->type ||
      x->args.size() != y->args.size())
    return false;
  for (size_t i = 0; i < x->args.size(); ++i)
    if (!same_value(x->args[i], y->args[i], budget)) return false;
  return true;
}

bool OneAxis::is_by(const ExprRef& expr, Op op, const ExprRef& divisor) const {
  int budget = kMostNodes;
  return is(expr, op) && same_value(expr->args[1], divisor, &budget);
}

std::optional<OneAxis::Place> OneAxis::place(const Buffer& tensor, const std::vector<ExprRef>& indices) const {
  const size_t rank = indices.size();
  if (rank < 2 || rank != tensor.shape.size()) return std::nullopt;
  const ExprRef &rows = tensor.shape[rank - 2], &columns = tensor.shape[rank - 1];
  const ExprRef column = index(indices[rank - 1]);
  if (!is_by(column, Op::kMod, columns)) return std::nullopt;
  ExprRef row = index(indices[rank - 2]);
  const bool modulo_both = is_by(row, Op::kMod, rows);
  if (modulo_both) row = resolved(row->args[0]);
  int budget = kMostNodes;
  if (!is_by(row, Op::kDiv, columns) || !same_value(row->args[0], column->args[0], &budget)) return std::nullopt;
  if (loads(column->args[0])) return std::nullopt;  // which may be of such a tensor itself
  return Place{column->args[0], modulo_both};
}

bool OneAxis::counts(const Buffer& tensor) const {
  bool all = true, any = false;
  const auto element = [&](const Buffer& named, const std::vector<ExprRef>& indices) {
    if (&named != &tensor) return;
    any = true;
    all = all && place(tensor, indices);
  };
  const auto elements = [&](const ExprRef& expr) {
    visit(expr, [&](const ExprRef& node) {
      if (node->kind == ExprKind::kLoad) element(*node->buffer, node->args);
    });
  };
  const auto refuse = [&](const ExprRef& expr) {
    visit(expr, [&](const ExprRef& node) { all &= node->kind != ExprKind::kLoad || node->buffer.get() != &tensor; });
  };
  const auto block = [&](auto&& self, const Block& body) -> void {
    for (const Stmt& stmt : body) {
      if (const auto* region = std::get_if<ParallelStmt>(&stmt.node)) {
        for_each_stmt(region->body, [&](const Stmt& inner) {
          for_each_expr(inner, elements);
          if (const auto* assign = std::get_if<AssignStmt>(&inner.node)) element(*assign->buffer, assign->indices);
        });
        continue;
      }
      for_each_expr(stmt, refuse);
      for_each_tile(stmt, [&](const TileRef& tile, bool) { all &= tile.buffer.get() != &tensor; });
      if (const auto* loop = std::get_if<ForStmt>(&stmt.node)) self(self, loop->body);
      if (const auto* branch = std::get_if<IfStmt>(&stmt.node))
        self(self, branch->then_body), self(self, branch->else_body);
    }
  };
  block(block, kernel_.body);
  return all && any;
}

}  // namespace kachel::ir
