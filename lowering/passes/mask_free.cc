#include "lowering/passes/mask_free.h"

#include <set>

#include "ir/instantiate.h"
#include "lowering/planted.h"

namespace kachel::lowering {

using ir::DType;
using ir::ExprKind;
using ir::ExprRef;
using ir::Op;

namespace {

// slope * var + rest, in I64.
struct Linear {
  int64_t slope = 0;
  ExprRef rest;
};

class Ends {
 public:
  Ends(const LoopBlock& body, const ir::VarRef& var, const Ranges& ranges) : var_(var), ranges_(ranges) {
    for_each_statement(body, [&](const LoopStmt& stmt) {
      if (const auto* let = std::get_if<LoopLet>(&stmt.node)) inside_.insert(let->var.get());
    });
  }

  // Where a condition that holds up to some iteration ends to hold; null if it is none.
  ExprRef of(const ExprRef& condition) const {
    if (condition->kind != ExprKind::kApply) return nullptr;
    const Op op = condition->op;
    if (op == Op::kAnd) {
      const ExprRef a = of(condition->args[0]), b = of(condition->args[1]);
      return a && b ? ir::make_typed(Op::kMin, {a, b}) : nullptr;
    }
    const bool less = op == Op::kLt || op == Op::kLe;
    if (!less && op != Op::kGt && op != Op::kGe) return nullptr;
    const ExprRef &low = condition->args[less ? 0 : 1], &high = condition->args[less ? 1 : 0];
    if (low->type != high->type || (low->type != DType::I64 && low->type != DType::I32)) return nullptr;
    if (!ranges_.cannot_wrap(low) || !ranges_.cannot_wrap(high)) return nullptr;
    const std::optional<Linear> a = linear(low), b = linear(high);
    if (!a || !b || a->slope <= b->slope) return nullptr;
    // slope * var < room: below ceil(room / slope).
    ExprRef room = ir::make_typed(Op::kSub, {b->rest, a->rest});
    if (op == Op::kLe || op == Op::kGe) room = plus(room, int64(1));
    if (planted(Planted::kMaskTooLate)) room = plus(room, int64(1));
    const ExprRef end = ir::make_typed(Op::kCeilDiv, {room, int64(a->slope - b->slope)});
    return ranges_.cannot_wrap(end) ? ir::fold(end) : nullptr;
  }

 private:
  std::optional<Linear> linear(const ExprRef& expr) const {
    if (expr->kind == ExprKind::kInt) return Linear{0, int64(expr->int_value)};
    if (expr->kind == ExprKind::kVar) {
      if (expr->var == var_) return Linear{1, int64(0)};
      if (inside_.count(expr->var.get())) return std::nullopt;
      return Linear{0, wide(expr)};
    }
    if (expr->kind == ExprKind::kCast && (expr->args[0]->type == DType::I32 || expr->args[0]->type == DType::I64))
      return linear(expr->args[0]);
    if (expr->kind != ExprKind::kApply) return std::nullopt;
    if (expr->op == Op::kAdd || expr->op == Op::kSub) {
      const std::optional<Linear> a = linear(expr->args[0]), b = linear(expr->args[1]);
      if (!a || !b) return std::nullopt;
      return Linear{expr->op == Op::kAdd ? a->slope + b->slope : a->slope - b->slope,
                    ir::make_typed(expr->op, {a->rest, b->rest})};
    }
    for (size_t i = 0; i < 2 && expr->op == Op::kMul; ++i) {
      const ExprRef& factor = expr->args[i];
      if (factor->kind != ExprKind::kInt || factor->int_value <= 0 || factor->int_value > kMostSlope) continue;
      const std::optional<Linear> other = linear(expr->args[1 - i]);
      if (!other || other->slope > kMostSlope) return std::nullopt;
      return Linear{other->slope * factor->int_value, times(other->rest, factor->int_value)};
    }
    bool outside = true;
    ir::visit(expr, [&](const ExprRef& node) {
      outside &= node->kind != ExprKind::kLoad;
      outside &= node->kind != ExprKind::kVar || (node->var != var_ && !inside_.count(node->var.get()));
    });
    return outside ? std::optional(Linear{0, wide(expr)}) : std::nullopt;
  }
  static ExprRef wide(const ExprRef& expr) {
    return expr->type == DType::I64 ? expr : ir::make_cast({DType::I64, nullptr}, expr);
  }

  static constexpr int64_t kMostSlope = int64_t{1} << 20;
  const ir::VarRef var_;
  const Ranges& ranges_;
  std::set<const ir::Var*> inside_;
};

}  // namespace

std::optional<MaskFree> mask_free(const LoopBlock& body, const ir::VarRef& var, const Ranges& ranges) {
  const Ends ends(body, var, ranges);
  MaskFree parts;
  for (const LoopStmt& stmt : body) {
    const auto* branch = std::get_if<LoopIf>(&stmt.node);
    const ExprRef end = branch && !branch->else_body.empty() ? ends.of(branch->condition) : nullptr;
    if (!end) {
      parts.bare.push_back(stmt);
      continue;
    }
    parts.end = parts.end ? ir::make_typed(Op::kMin, {parts.end, end}) : end;
    parts.bare.insert(parts.bare.end(), branch->then_body.begin(), branch->then_body.end());
  }
  if (!parts.end) return std::nullopt;
  return parts;
}

}  // namespace kachel::lowering
