#include "derive/digits.h"

#include <algorithm>

#include "ir/poly.h"
#include "ir/visit.h"

namespace kachel::derive {

using namespace ir;

namespace {

bool is_division(const Expr& node, const Var& of) {
  return node.kind == ExprKind::kApply && (node.op == Op::kDiv || node.op == Op::kMod) &&
         node.args[0]->kind == ExprKind::kVar && node.args[0]->var.get() == &of;
}

bool is_known_ahead(const ExprRef& expr) {
  bool known = true;
  visit(expr, [&](const ExprRef& node) {
    known &= node->kind != ExprKind::kLoad && !is_reduction(*node);
    if (node->kind != ExprKind::kVar) return;
    const VarKind kind = node->var->kind;
    known &= kind == VarKind::kDim || kind == VarKind::kConst || kind == VarKind::kTunable;
  });
  return known;
}

// How often a multiple of `by` goes into `extent`.
ExprRef quotient_of(const ExprRef& extent, const ExprRef& by) {
  PolyContext polys;
  if (extent->kind == ExprKind::kApply && extent->op == Op::kMul)
    for (size_t side = 0; side < 2; ++side)
      if (polys.equal(extent->args[side], by)) return extent->args[1 - side];
  return make_apply(Op::kCeilDiv, {extent, make_apply(Op::kMax, {by, make_int(1)})});
}

VarRef counter(std::string name) {
  return std::make_shared<Var>(Var{VarKind::kLoop, std::move(name), {DType::I64, nullptr, false}, {}});
}

// Calls fn(ExprRef&) for the expressions of statements that slices have.
template <class Fn>
void change_exprs(Stmt* stmt, const Fn& fn) {
  const auto one = [&fn](ExprRef& expr) {
    if (expr) fn(expr);
  };
  if (auto* copy = std::get_if<CopyStmt>(&stmt->node)) {
    for (AxisSpec& axis : copy->src.axes) one(axis.start), one(axis.index);
    one(copy->src.within_first), one(copy->src.within_length), one(copy->src.pad);
  } else if (auto* fill = std::get_if<FillStmt>(&stmt->node)) {
    one(fill->value);
  } else if (auto* let = std::get_if<LetStmt>(&stmt->node)) {
    one(let->value);
  } else if (auto* region = std::get_if<ParallelStmt>(&stmt->node)) {
    for (Stmt& inside : region->body) change_exprs(&inside, fn);
  } else if (auto* branch = std::get_if<IfStmt>(&stmt->node)) {
    one(branch->condition);
    for (Block* body : {&branch->then_body, &branch->else_body})
      for (Stmt& inside : *body) change_exprs(&inside, fn);
  } else if (auto* assign = std::get_if<AssignStmt>(&stmt->node)) {
    for (ExprRef& index : assign->indices) one(index);
    one(assign->value);
  }
}

}  // namespace

ExprRef Digits::value_of(const VarRef& digit) const {
  return make_apply(digit == quotient.var ? Op::kDiv : Op::kMod, {make_var(of), by});
}

std::optional<Digits> digits_of(const IterVar& of, const std::vector<const Stmt*>& statements, Lets& lets,
                                const std::string& prefix) {
  Digits digits{of.var, nullptr, {}, {}};
  PolyContext polys;
  size_t uses = 0, divided = 0;
  for (const Stmt* stmt : statements)
    for_each_stmt({*stmt}, [&](const Stmt& inside) {
      for_each_expr(inside, [&](const ExprRef& expr) {
        visit(lets.expanded(expr), [&](const ExprRef& node) {
          uses += node->kind == ExprKind::kVar && node->var == of.var;
          if (!is_division(*node, *of.var)) return;
          if (!digits.by) digits.by = node->args[1];
          if (!polys.equal(digits.by, node->args[1])) return;
          ++divided;
          (node->op == Op::kDiv ? digits.quotient : digits.remainder).extent = node->args[1];
        });
      });
    });
  if (!digits.by || uses != divided || !lets.complete() || !is_known_ahead(digits.by)) return {};
  if (digits.quotient.extent)
    digits.quotient = {counter(prefix + "_quotient"), quotient_of(lets.expanded(of.extent), digits.by)};
  if (digits.remainder.extent) digits.remainder = {counter(prefix + "_remainder"), digits.by};
  return digits;
}

ExprRef in_digits(const ExprRef& expr, const std::vector<Digits>& digits, Lets& lets) {
  if (digits.empty()) return expr;
  PolyContext polys;
  return rewrite(expr, [&](const ExprRef& node) {
    for (const Digits& each : digits) {
      if (!is_division(*node, *each.of) || !polys.equal(lets.expanded(node->args[1]), each.by)) continue;
      return make_var(node->op == Op::kDiv ? each.quotient.var : each.remainder.var);
    }
    return node;
  });
}

Block in_digits(Block block, const std::vector<Digits>& digits, Lets& lets) {
  for (Stmt& stmt : block) change_exprs(&stmt, [&](ExprRef& expr) { expr = in_digits(expr, digits, lets); });
  return block;
}

}  // namespace kachel::derive
