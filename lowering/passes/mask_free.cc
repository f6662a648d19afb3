#include "lowering/passes/mask_free.h"

#include <cstdlib>
#include <unordered_map>

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

// Iterations, in I64; null: no bound.
struct Span {
  ExprRef begin, end;
};

ExprRef both(Op op, const ExprRef& a, const ExprRef& b) {
  return a && b ? apply(op, a, b) : a ? a : b;
}
Span both(const Span& a, const Span& b) {
  return {both(Op::kMax, a.begin, b.begin), both(Op::kMin, a.end, b.end)};
}

class Spans {
 public:
  Spans(const LoopBlock& body, const LoopBlock& names, const ir::VarRef& var, const Ranges& ranges)
      : var_(var), ranges_(ranges) {
    for (const LoopBlock* block : {&names, &body})
      for (const LoopStmt& stmt : *block)
        if (const auto* let = std::get_if<LoopLet>(&stmt.node)) inside_[let->var.get()] = let->value;
  }

  // Where a condition holds.
  std::optional<Span> of(const ExprRef& condition) const {
    if (condition->kind != ExprKind::kApply) return std::nullopt;
    const Op op = condition->op;
    if (op == Op::kAnd) {
      const std::optional<Span> a = of(condition->args[0]), b = of(condition->args[1]);
      return a && b ? std::optional(both(*a, *b)) : std::nullopt;
    }
    const bool less = op == Op::kLt || op == Op::kLe;
    if (!less && op != Op::kGt && op != Op::kGe) return std::nullopt;
    const ExprRef &low = condition->args[less ? 0 : 1], &high = condition->args[less ? 1 : 0];
    if (low->type != high->type || (low->type != DType::I64 && low->type != DType::I32)) return std::nullopt;
    if (!ranges_.cannot_wrap(low) || !ranges_.cannot_wrap(high)) return std::nullopt;
    const std::optional<Linear> a = linear(low), b = linear(high);
    if (!a || !b || a->slope == b->slope) return std::nullopt;
    const bool strict = op == Op::kLt || op == Op::kGt;
    return a->slope > b->slope ? until(*a, *b, strict) : from(*a, *b, strict);
  }

 private:
  // slope * var < room: below ceil(room / slope).
  std::optional<Span> until(const Linear& a, const Linear& b, bool strict) const {
    ExprRef room = apply(Op::kSub, b.rest, a.rest);
    if (!strict) room = plus(room, int64(1));
    if (planted(Planted::kMaskTooLate)) room = plus(room, int64(1));
    const ExprRef end = quotient(room, a.slope - b.slope);
    return end ? std::optional(Span{nullptr, end}) : std::nullopt;
  }
  // slope * var >= need: from ceil(need / slope) on.
  std::optional<Span> from(const Linear& a, const Linear& b, bool strict) const {
    ExprRef need = apply(Op::kSub, a.rest, b.rest);
    if (strict) need = plus(need, int64(1));
    if (planted(Planted::kMaskEndsEarly)) need = apply(Op::kSub, need, int64(1));
    const ExprRef begin = quotient(need, b.slope - a.slope);
    return begin ? std::optional(Span{begin, nullptr}) : std::nullopt;
  }
  ExprRef quotient(const ExprRef& value, int64_t slope) const {
    const ExprRef rounded_up = apply(Op::kCeilDiv, value, int64(slope));
    return ranges_.cannot_wrap(rounded_up) ? ir::fold(rounded_up) : nullptr;
  }

  std::optional<Linear> linear(const ExprRef& expr) const {
    if (expr->kind == ExprKind::kInt) return Linear{0, int64(expr->int_value)};
    if (expr->kind == ExprKind::kVar) {
      if (expr->var == var_) return Linear{1, int64(0)};
      const auto named = inside_.find(expr->var.get());
      if (named == inside_.end()) return Linear{0, wide(expr)};
      return ranges_.cannot_wrap(named->second) ? linear(named->second) : std::nullopt;
    }
    if (expr->kind == ExprKind::kCast && keeps_value(expr)) return linear(expr->args[0]);
    if (expr->kind != ExprKind::kApply) return constant(expr);
    if (expr->op == Op::kAdd || expr->op == Op::kSub) {
      const std::optional<Linear> a = linear(expr->args[0]), b = linear(expr->args[1]);
      if (!a || !b) return std::nullopt;
      return Linear{expr->op == Op::kAdd ? a->slope + b->slope : a->slope - b->slope,
                    apply(expr->op, a->rest, b->rest)};
    }
    for (size_t i = 0; i < 2 && expr->op == Op::kMul; ++i) {
      const ExprRef& factor = expr->args[i];
      if (factor->kind != ExprKind::kInt || factor->int_value <= 0 || factor->int_value > kMostSlope) continue;
      const std::optional<Linear> other = linear(expr->args[1 - i]);
      if (!other || std::abs(other->slope) > kMostSlope) return std::nullopt;
      return Linear{other->slope * factor->int_value, times(other->rest, factor->int_value)};
    }
    return constant(expr);
  }
  // What no name and no load of the loop's decides.
  std::optional<Linear> constant(const ExprRef& expr) const {
    bool outside = true;
    ir::visit(expr, [&](const ExprRef& node) {
      outside &= node->kind != ExprKind::kLoad;
      outside &= node->kind != ExprKind::kVar || (node->var != var_ && !inside_.count(node->var.get()));
    });
    return outside ? std::optional(Linear{0, wide(expr)}) : std::nullopt;
  }
  bool keeps_value(const ExprRef& cast) const {
    const DType from = cast->args[0]->type, to = cast->cast_type.dtype;
    if (from == DType::I32) return to == DType::I32 || to == DType::I64;
    const Interval values = ranges_.of(cast->args[0]);
    return from == DType::I64 &&
           (to == DType::I64 || (to == DType::I32 && values.lo >= INT32_MIN && values.hi <= INT32_MAX));
  }
  static ExprRef wide(const ExprRef& expr) {
    return expr->type == DType::I64 ? expr : ir::make_cast({DType::I64, nullptr}, expr);
  }

  static constexpr int64_t kMostSlope = int64_t{1} << 20;
  const ir::VarRef var_;
  const Ranges& ranges_;
  std::unordered_map<const ir::Var*, ExprRef> inside_;  // names, and what they stand for
};

}  // namespace

std::optional<MaskFree> mask_free(const LoopBlock& body, const LoopBlock& names, const ir::VarRef& var,
                                  const Ranges& ranges) {
  const Spans spans(body, names, var, ranges);
  Span all;
  LoopBlock bare;
  for (const LoopStmt& stmt : body) {
    const auto* branch = std::get_if<LoopIf>(&stmt.node);
    const std::optional<Span> span = branch && !branch->else_body.empty() ? spans.of(branch->condition) : std::nullopt;
    if (!span) {
      bare.push_back(stmt);
      continue;
    }
    all = both(all, *span);
    bare.insert(bare.end(), branch->then_body.begin(), branch->then_body.end());
  }
  if (!all.begin && !all.end) return std::nullopt;
  return MaskFree{all.begin, all.end, std::move(bare)};
}

}  // namespace kachel::lowering
