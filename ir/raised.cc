#include "ir/raised.h"

#include <cmath>
#include <optional>
#include <unordered_map>

#include "ir/numerics.h"
#include "ir/query.h"

namespace kachel::ir {
namespace {

struct Multiple {  // k f(x)
  Op function = Op::kErf;
  double k = 1;
  ExprRef x;
};

bool is_number(const ExprRef& expr) {
  return expr->kind == ExprKind::kFloat && std::isfinite(expr->float_value) && expr->float_value != 0;
}

class Raising {
 public:
  void block(Block* body);

 private:
  ExprRef of(const ExprRef& expr);
  ExprRef sum(const ExprRef& expr) const;
  std::optional<Multiple> multiple_of(const ExprRef& expr) const;

  std::unordered_map<const Var*, Multiple> named_;
};

std::optional<Multiple> Raising::multiple_of(const ExprRef& expr) const {
  if (expr->kind == ExprKind::kVar) {
    const auto found = named_.find(expr->var.get());
    return found == named_.end() ? std::nullopt : std::optional(found->second);
  }
  if ((is(expr, Op::kTanh) || is(expr, Op::kErf)) && !expr->approx) return Multiple{expr->op, 1, expr->args[0]};
  std::optional<Multiple> inner;
  if (is(expr, Op::kNeg)) {
    inner = multiple_of(expr->args[0]);
    if (inner) inner->k = -inner->k;
  }
  if (is(expr, Op::kMul) && expr->type == DType::F32) {
    const bool first = is_number(expr->args[0]);
    if (!first && !is_number(expr->args[1])) return {};
    inner = multiple_of(expr->args[first]);
    if (inner) inner->k *= expr->args[!first]->float_value;
  }
  return inner;
}

ExprRef raised(const Multiple& f, const ExprRef& x, double k) {
  return make_typed(f.function == Op::kErf ? Op::kRaisedErf : Op::kRaisedTanh, {x, make_float(k)});
}

ExprRef Raising::sum(const ExprRef& expr) const {
  const bool first = is_number(expr->args[0]);
  if (expr->type != DType::F32 || (!first && !is_number(expr->args[1]))) return expr;
  std::optional<Multiple> f = multiple_of(expr->args[first]);
  if (!f) return expr;
  const bool minus = expr->op == Op::kSub;
  const double c = expr->args[!first]->float_value * (minus && !first ? -1 : 1);
  if (minus && first) f->k = -f->k;
  if (std::abs(f->k) != std::abs(c)) return expr;
  if (f->k == c) return raised(*f, f->x, c);
  return raised(*f, is(f->x, Op::kNeg) ? f->x->args[0] : make_typed(Op::kNeg, {f->x}), c);
}

bool is_raised(const ExprRef& expr) {
  return is(expr, Op::kRaisedTanh) || is(expr, Op::kRaisedErf);
}

ExprRef scaled(const ExprRef& raised, double by) {
  return make_typed(raised->op, {raised->args[0], make_float(raised->args[1]->float_value * by)});
}

bool fits(const ExprRef& factor, const ExprRef& raised) {
  return is_number(factor) && is_power_of_two(factor->float_value) &&
         std::abs(std::ilogb(raised->args[1]->float_value)) < 20;
}

// m r, and m y r as y (m r).
ExprRef product(const ExprRef& expr) {
  for (const int at : {0, 1}) {
    const ExprRef &whole = expr->args[at], &other = expr->args[!at];
    if (!is_raised(whole)) continue;
    if (fits(other, whole)) return scaled(whole, other->float_value);
    if (!is(other, Op::kMul)) continue;
    for (const int m : {0, 1}) {
      const ExprRef& factor = other->args[m];
      if (fits(factor, whole) && std::abs(factor->float_value) <= 1)
        return make_typed(Op::kMul, {other->args[!m], scaled(whole, factor->float_value)});
    }
  }
  return expr;
}

ExprRef Raising::of(const ExprRef& expr) {
  return rewrite(expr, [&](const ExprRef& node) {
    if (is(node, Op::kAdd) || is(node, Op::kSub)) return sum(node);
    return is(node, Op::kMul) ? product(node) : node;
  });
}

void Raising::block(Block* body) {
  Block out;
  for (Stmt& stmt : *body) {
    if (auto* let = std::get_if<LetStmt>(&stmt.node)) {
      let->value = of(let->value);
      if (auto f = multiple_of(let->value); f && let->value->kind != ExprKind::kVar) {
        if (f->x->kind != ExprKind::kVar) {
          auto x = std::make_shared<Var>(Var{VarKind::kLet, let->var->name + "_x", {DType::F32}, let->var->loc});
          out.push_back({stmt.loc, LetStmt{x, f->x}});
          const ExprRef whole = f->x, name = make_var(x);
          let->value = rewrite(let->value, [&](const ExprRef& node) { return node == whole ? name : node; });
          f->x = name;
        }
        named_[let->var.get()] = *f;
      }
    } else if (auto* decl = std::get_if<DeclStmt>(&stmt.node)) {
      decl->init = of(decl->init);
    } else if (auto* fill = std::get_if<FillStmt>(&stmt.node)) {
      fill->value = of(fill->value);
    } else if (auto* assign = std::get_if<AssignStmt>(&stmt.node)) {
      assign->value = of(assign->value);
    } else if (auto* region = std::get_if<ParallelStmt>(&stmt.node)) {
      block(&region->body);
    } else if (auto* loop = std::get_if<ForStmt>(&stmt.node)) {
      block(&loop->body);
    } else if (auto* branch = std::get_if<IfStmt>(&stmt.node)) {
      branch->condition = of(branch->condition);
      block(&branch->then_body);
      block(&branch->else_body);
    }
    out.push_back(std::move(stmt));
  }
  *body = std::move(out);
}

}  // namespace

void raise_functions(Block* body) {
  Raising().block(body);
}

}  // namespace kachel::ir
