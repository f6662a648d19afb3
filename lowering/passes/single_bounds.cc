#include "lowering/passes/single_bounds.h"

#include "ir/query.h"
#include "lowering/loop_ir/loop_build.h"
#include "lowering/planted.h"

namespace kachel::lowering {
namespace {

using ir::DType;
using ir::ExprRef;
using ir::Op;

void collect(const ExprRef& expr, std::vector<ExprRef>* conditions) {
  if (!is(expr, Op::kAnd)) return conditions->push_back(expr);
  collect(expr->args[0], conditions);
  collect(expr->args[1], conditions);
}

class Bounds {
 public:
  explicit Bounds(const Ranges& ranges) : ranges_(ranges) {}

  ExprRef merged(const ExprRef& root) const {
    if (!is(root, Op::kAnd)) {
      bool changed = false;
      std::vector<ExprRef> args;
      for (const ExprRef& arg : root->args) {
        args.push_back(merged(arg));
        changed |= args.back() != arg;
      }
      if (!changed) return root;
      auto copy = std::make_shared<ir::Expr>(*root);
      copy->args = std::move(args);
      return copy;
    }
    std::vector<ExprRef> conditions;
    collect(root, &conditions);
    for (size_t i = 0; i < conditions.size(); ++i) conditions[i] = merged(conditions[i]);
    for (size_t i = 0; i < conditions.size(); ++i)
      for (size_t j = i + 1; j < conditions.size(); ++j) {
        const ExprRef both = in_one(conditions[i], conditions[j]);
        if (!both) continue;
        conditions[i] = both;
        conditions.erase(conditions.begin() + static_cast<std::ptrdiff_t>(j));
        break;
      }
    ExprRef all = conditions[0];
    for (size_t i = 1; i < conditions.size(); ++i) all = ir::make_typed(Op::kAnd, {all, conditions[i]});
    return all;
  }

 private:
  // Null: they are no bounds of one value, or the second one must not be evaluated where the first one fails.
  ExprRef in_one(const ExprRef& first, const ExprRef& second) const {
    const bool in_order = is(first, Op::kGe);
    const ExprRef &least = in_order ? first : second, &most = in_order ? second : first;
    if (!is(least, Op::kGe) || !is(most, Op::kLt) || !ir::is_int(least->args[1], 0)) return nullptr;
    const ExprRef &value = least->args[0], &limit = most->args[1];
    const bool wide = value->type == DType::I64;
    if ((value->type != DType::I32 && !wide) || limit->type != value->type || loads(limit)) return nullptr;
    if (!ir::same(value, most->args[0]) || ranges_.of(limit).lo < 0) return nullptr;
    if (planted(Planted::kSingleBound)) return most;
    const ir::TypeRef type{wide ? DType::U64 : DType::U32, nullptr};
    return ir::make_typed(Op::kLt, {ir::make_cast(type, value), ir::make_cast(type, limit)});
  }

  const Ranges& ranges_;
};

}  // namespace

void single_bounds(LoopKernel* kernel) {
  const Bounds bounds(kernel->ranges);
  const auto one = [&](ExprRef& expr) {
    if (expr) expr = bounds.merged(expr);
  };
  for (LoopBlock* body : {&kernel->body, &kernel->producer, &kernel->passed_over})
    for_each_statement(*body, [&](LoopStmt& stmt) { for_each_expr(stmt, one); });
}

}  // namespace kachel::lowering
