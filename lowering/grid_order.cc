// How the work of a block depends on its place in the grid. See schedule.h.
#include <optional>
#include <unordered_map>

#include "lowering/schedule.h"

namespace kachel::lowering {
namespace {

using ir::ExprKind;
using ir::ExprRef;
using ir::Op;

class Slopes {
 public:
  explicit Slopes(const ir::VarRef& axis) : axis_(axis) {}

  void block(const ir::Block& body) {
    for (const ir::Stmt& stmt : body) {
      if (const auto* let = std::get_if<ir::LetStmt>(&stmt.node)) {
        lets_[let->var.get()] = let->value;
      } else if (const auto* loop = std::get_if<ir::ForStmt>(&stmt.node)) {
        note(slope(loop->end));
        auto begin = slope(loop->begin);
        note(begin ? std::optional<int>(-*begin) : begin);
        block(loop->body);
      } else if (const auto* branch = std::get_if<ir::IfStmt>(&stmt.node)) {
        block(branch->then_body);
        block(branch->else_body);
      }
    }
  }
  bool rises() const { return rises_ && !falls_; }

 private:
  void note(std::optional<int> slope) {
    rises_ |= slope == 1;
    falls_ |= !slope || *slope < 0;
  }

  // The sign of the change with the axis; nothing if it is not known to have one.
  std::optional<int> slope(const ExprRef& expr) const {
    if (expr->kind == ExprKind::kVar) {
      if (expr->var == axis_) return 1;
      auto it = lets_.find(expr->var.get());
      return it == lets_.end() ? 0 : slope(it->second);
    }
    std::vector<std::optional<int>> parts;
    bool constant = true;
    for (const ExprRef& arg : expr->args) {
      parts.push_back(slope(arg));
      constant &= parts.back() == 0;
    }
    if (constant) return 0;
    if (expr->kind == ExprKind::kCast) return parts[0];
    if (expr->kind != ExprKind::kApply) return std::nullopt;
    auto merged = [](std::optional<int> a, std::optional<int> b) -> std::optional<int> {
      if (!a || !b || *a * *b < 0) return std::nullopt;
      return *a ? a : b;
    };
    switch (expr->op) {
      case Op::kAdd:
      case Op::kMin:
      case Op::kMax:
        return merged(parts[0], parts[1]);
      case Op::kSub:
        return merged(parts[0], parts[1] ? std::optional<int>(-*parts[1]) : parts[1]);
      case Op::kMul:
        for (size_t i = 0; i < 2; ++i)
          if (expr->args[i]->kind == ExprKind::kInt && expr->args[i]->int_value > 0) return parts[1 - i];
        return std::nullopt;
      case Op::kDiv:
      case Op::kCeilDiv:
        return expr->args[1]->kind == ExprKind::kInt && expr->args[1]->int_value > 0 ? parts[0] : std::nullopt;
      case Op::kSelect:
        return parts[0] == 0 ? merged(parts[1], parts[2]) : std::nullopt;
      default:
        return std::nullopt;
    }
  }

  const ir::VarRef axis_;
  std::unordered_map<const ir::Var*, ExprRef> lets_;
  bool rises_ = false, falls_ = false;
};

}  // namespace

std::set<size_t> rising_axes(const ir::Kernel& kernel) {
  std::set<size_t> axes;
  for (size_t i = 0; i < kernel.grid.size(); ++i) {
    Slopes slopes(kernel.grid[i].var);
    slopes.block(kernel.body);
    if (slopes.rises()) axes.insert(i);
  }
  return axes;
}

}  // namespace kachel::lowering
