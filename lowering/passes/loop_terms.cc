#include "lowering/passes/loop_terms.h"

#include <algorithm>

#include "ir/query.h"
#include "ir/visit.h"
#include "lowering/loop_ir/loop_build.h"
#include "lowering/planted.h"

namespace kachel::lowering {

using ir::DType;
using ir::ExprKind;
using ir::ExprRef;
using ir::Op;

namespace {

ExprRef wrapping(const ExprRef& value) {
  return value->type == DType::I32 ? ir::make_cast({DType::U32, nullptr}, value) : value;
}

}  // namespace

ExprRef combined(Op op, const ExprRef& a, const ExprRef& b) {
  return a ? apply(op, wrapping(a), wrapping(b)) : op == Op::kSub ? combined(op, ir::make_int(0, b->type), b) : b;
}

ExprRef with_sign(DType type, const ExprRef& sum) {
  return sum->type == type ? sum : ir::make_cast({type, nullptr}, sum);
}

ExprRef sum_of(const std::vector<Term>& terms, int level) {
  ExprRef sum;
  for (const bool minus : {false, true})
    for (const Term& term : terms)
      if (term.level == level && term.minus == minus) sum = combined(minus ? Op::kSub : Op::kAdd, sum, term.value);
  return sum;
}

int deepest(const std::vector<Term>& terms) {
  int level = 0;
  for (const Term& term : terms) level = std::max(level, term.level);
  return level;
}

ExprRef sum_from(const std::vector<Term>& terms, int level) {
  ExprRef sum;
  for (const int most = deepest(terms); level <= most; ++level)
    if (const ExprRef part = sum_of(terms, level)) sum = combined(Op::kAdd, sum, part);
  return sum;
}

bool loads_memory(const ExprRef& expr) {
  bool found = false;
  ir::visit(expr, [&](const ExprRef& node) {
    found |= node->kind == ExprKind::kLoad && node->buffer->scope != ir::Scope::kRegister;
  });
  return found;
}

void LoopTerms::enter(const std::vector<const ir::Var*>& vars, const LoopBlock& body) {
  if (depth_++ == 0)
    for_each_statement(body, [this](const LoopStmt& stmt) {
      for_each_access(stmt, [this](const ir::BufferRef& buffer, bool write) {
        if (write) written_.insert(buffer.get());
      });
    });
  for (const ir::Var* var : vars) names_[var] = {nullptr, depth_};
}

void LoopTerms::leave() {
  if (--depth_ == 0) names_.clear(), written_.clear();
}

// What loads is not looked into: it may have changed since.
void LoopTerms::name(const LoopLet& let) {
  if (depth_) names_[let.var.get()] = {loads(let.value) ? nullptr : let.value, level(let.value)};
}

int LoopTerms::level(const ExprRef& expr) const {
  int level = 0;
  ir::visit(expr, [&](const ExprRef& node) {
    if (node->kind == ExprKind::kLoad && written_.count(node->buffer.get())) level = depth_;
    const auto found = node->kind == ExprKind::kVar ? names_.find(node->var.get()) : names_.end();
    if (found != names_.end()) level = std::max(level, found->second.level);
  });
  return level;
}

std::vector<Term> LoopTerms::terms_of(const ExprRef& expr) const {
  std::vector<Term> terms;
  int budget = kMostNodes;
  collect(expr, false, &budget, &terms);
  if (budget < 0) terms.clear();
  return terms;
}
void LoopTerms::collect(const ExprRef& expr, bool minus, int* budget, std::vector<Term>* terms) const {
  if (--*budget < 0) return;
  const auto named = expr->kind == ExprKind::kVar ? names_.find(expr->var.get()) : names_.end();
  if (named != names_.end() && named->second.level && named->second.value && named->second.value->type == expr->type)
    return collect(named->second.value, minus, budget, terms);
  if (is(expr, Op::kAdd) || is(expr, Op::kSub)) {
    collect(expr->args[0], minus, budget, terms);
    const bool differs = is(expr, Op::kSub) && !planted(Planted::kDifferenceAdded);
    return collect(expr->args[1], minus != differs, budget, terms);
  }
  if (is(expr, Op::kMul) && level(expr)) {
    const bool first = level(expr->args[0]) > 0;
    const ExprRef &sum = expr->args[first ? 0 : 1], &factor = expr->args[first ? 1 : 0];
    std::vector<Term> parts;
    if (!level(factor)) collect(sum, false, budget, &parts);
    const int most = deepest(parts);
    for (int at = 0; parts.size() > 1 && at <= most; ++at)
      if (const ExprRef part = sum_of(parts, at)) terms->push_back({combined(Op::kMul, part, factor), at, minus});
    if (parts.size() > 1) return;
  }
  terms->push_back({expr, level(expr), minus});
}

}  // namespace kachel::lowering
