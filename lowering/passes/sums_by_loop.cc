#include "lowering/passes/sums_by_loop.h"

#include <algorithm>
#include <vector>

#include "ir/query.h"
#include "lowering/loop_ir/loop_build.h"
#include "lowering/passes/compared_terms.h"
#include "lowering/passes/loop_terms.h"

namespace kachel::lowering {
namespace {

using ir::DType;
using ir::ExprKind;
using ir::ExprRef;
using ir::Op;

class Orderer {
 public:
  explicit Orderer(const LoopKernel& kernel) : kernel_(kernel) {}

  void block(LoopBlock* body) {
    for (LoopStmt& stmt : *body) {
      if (terms_.depth()) for_each_expr(stmt, [this](ExprRef& expr) { expr = ordered(expr); });
      if (const auto* let = std::get_if<LoopLet>(&stmt.node)) terms_.name(*let);
      auto* loop = std::get_if<LoopFor>(&stmt.node);
      auto* threads = std::get_if<LoopThreads>(&stmt.node);
      if (loop && unrolled_trips(*loop)) {
        within({loop->var.get()}, &loop->body);
      } else if (loop) {
        Orderer(kernel_).block(&loop->body);
      } else if (threads && threads->extent > kernel_.threads && threads->unroll) {
        within({threads->index.get(), threads->slot.get()}, &threads->body);
      } else {
        for_each_block(&stmt, [this](LoopBlock* inner) { block(inner); });
      }
    }
  }

 private:
  void within(const std::vector<const ir::Var*>& vars, LoopBlock* body) {
    terms_.enter(vars, *body);
    block(body);
    terms_.leave();
  }

  ExprRef sum(const ExprRef& index) const {
    if (index->type != DType::I32 && index->type != DType::I64) return index;
    const std::vector<Term> terms = terms_.terms_of(index);
    if (terms.size() < 2 || deepest(terms) == 0) return index;
    return with_sign(index->type, sum_from(terms, 0));
  }

  ExprRef all_of(const ExprRef& conjunction) const {
    std::vector<ExprRef> conditions;
    conjuncts(conjunction, &conditions);
    if (std::any_of(conditions.begin(), conditions.end(), loads_memory)) return conjunction;
    for (ExprRef& condition : conditions)
      condition = parted(compared(condition, terms_, kernel_.ranges), terms_, kernel_.ranges);
    std::stable_sort(conditions.begin(), conditions.end(),
                     [this](const ExprRef& a, const ExprRef& b) { return terms_.level(a) < terms_.level(b); });
    ExprRef all = conditions[0];
    for (size_t i = 1; i < conditions.size(); ++i) all = ir::make_typed(Op::kAnd, {all, conditions[i]});
    return all;
  }
  static void conjuncts(const ExprRef& expr, std::vector<ExprRef>* out) {
    if (!is(expr, Op::kAnd)) return out->push_back(expr);
    conjuncts(expr->args[0], out);
    conjuncts(expr->args[1], out);
  }

  ExprRef ordered(const ExprRef& expr) const {
    if (!expr) return expr;
    if (is(expr, Op::kAnd)) return all_of(expr);
    if (const ExprRef apart = parted(expr, terms_, kernel_.ranges); apart != expr) return apart;
    bool changed = false;
    std::vector<ExprRef> args;
    for (const ExprRef& arg : expr->args) {
      args.push_back(ordered(arg));
      changed |= args.back() != arg;
    }
    const bool place = expr->kind == ExprKind::kLoad && expr->buffer->scope == ir::Scope::kGlobal;
    if (place) {
      const ExprRef index = sum(args[0]);
      changed |= index != args[0];
      args[0] = index;
    }
    if (!changed) return expr;
    auto copy = std::make_shared<ir::Expr>(*expr);
    copy->args = std::move(args);
    return copy;
  }

  const LoopKernel& kernel_;
  LoopTerms terms_;
};

}  // namespace

void sums_by_loop(LoopKernel* kernel) {
  for (LoopBlock* body : {&kernel->body, &kernel->producer}) Orderer(*kernel).block(body);
}

}  // namespace kachel::lowering
