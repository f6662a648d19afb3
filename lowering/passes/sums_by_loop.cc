#include "lowering/passes/sums_by_loop.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "ir/query.h"
#include "ir/visit.h"
#include "lowering/loop_ir/loop_build.h"
#include "lowering/planted.h"

namespace kachel::lowering {
namespace {

using ir::DType;
using ir::ExprKind;
using ir::ExprRef;
using ir::Op;

bool loads_memory(const ExprRef& expr) {
  bool found = false;
  ir::visit(expr, [&](const ExprRef& node) {
    found |= node->kind == ExprKind::kLoad && node->buffer->scope != ir::Scope::kRegister;
  });
  return found;
}

ExprRef wrapping(const ExprRef& value) {
  return value->type == DType::I32 ? ir::make_cast({DType::U32, nullptr}, value) : value;
}
// Null is 0.
ExprRef combined(Op op, const ExprRef& a, const ExprRef& b) {
  return a ? apply(op, wrapping(a), wrapping(b)) : op == Op::kSub ? combined(op, ir::make_int(0, b->type), b) : b;
}
// Of sums of 32 bits, what they are without their wrapping.
ExprRef with_sign(DType type, const ExprRef& sum) {
  return sum->type == type ? sum : ir::make_cast({type, nullptr}, sum);
}

// With the innermost of the unrolled loops around it that it changes with, counted from the outermost one; 0: none.
struct Term {
  ExprRef value;
  int level = 0;
  bool minus = false;
};

// Of one level, added up; null: there are none.
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

// Of this level and those within it.
ExprRef sum_from(const std::vector<Term>& terms, int level) {
  ExprRef sum;
  for (const int most = deepest(terms); level <= most; ++level)
    if (const ExprRef part = sum_of(terms, level)) sum = combined(Op::kAdd, sum, part);
  return sum;
}

class Orderer {
 public:
  explicit Orderer(const LoopKernel& kernel) : kernel_(kernel) {}

  void block(LoopBlock* body) {
    for (LoopStmt& stmt : *body) {
      if (depth_) for_each_expr(stmt, [this](ExprRef& expr) { expr = ordered(expr); });
      if (const auto* let = std::get_if<LoopLet>(&stmt.node)) name(*let);
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
  struct Name {
    ExprRef value;
    int level;
  };

  void within(std::vector<const ir::Var*> vars, LoopBlock* body) {
    if (depth_++ == 0)
      for_each_statement(*body, [this](const LoopStmt& stmt) {
        for_each_access(stmt, [this](const ir::BufferRef& buffer, bool write) {
          if (write) written_.insert(buffer.get());
        });
      });
    for (const ir::Var* var : vars) names_[var] = {nullptr, depth_};
    block(body);
    if (--depth_ == 0) names_.clear(), written_.clear();
  }
  // What loads is not looked into: it may have changed since.
  void name(const LoopLet& let) {
    if (depth_) names_[let.var.get()] = {loads(let.value) ? nullptr : let.value, level(let.value)};
  }

  int level(const ExprRef& expr) const {
    int level = 0;
    ir::visit(expr, [&](const ExprRef& node) {
      if (node->kind == ExprKind::kLoad && written_.count(node->buffer.get())) level = depth_;
      const auto found = node->kind == ExprKind::kVar ? names_.find(node->var.get()) : names_.end();
      if (found != names_.end()) level = std::max(level, found->second.level);
    });
    return level;
  }

  // None: there are too many, since names may each use the one before several times.
  std::vector<Term> terms_of(const ExprRef& expr) const {
    std::vector<Term> terms;
    int budget = kMostNodes;
    collect(expr, false, &budget, &terms);
    if (budget < 0) terms.clear();
    return terms;
  }
  void collect(const ExprRef& expr, bool minus, int* budget, std::vector<Term>* terms) const {
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

  ExprRef sum(const ExprRef& index) const {
    if (index->type != DType::I32 && index->type != DType::I64) return index;
    const std::vector<Term> terms = terms_of(index);
    if (terms.size() < 2 || deepest(terms) == 0) return index;
    return with_sign(index->type, sum_from(terms, 0));
  }

  // place < limit with what the place changes with on one side, where no difference wraps.
  ExprRef compared(const ExprRef& condition) const {
    if (!is(condition, Op::kLt) || level(condition->args[1]) || condition->args[0]->type != DType::I32)
      return condition;
    const std::vector<Term> terms = terms_of(condition->args[0]);
    const ExprRef low = sum_of(terms, 0), high = sum_from(terms, 1);
    if (!low || !high) return condition;
    const ExprRef& limit = condition->args[1];
    const bool wraps = kernel_.ranges.of(limit).lo < 0 || kernel_.ranges.of(low).lo < 0 ||
                       kernel_.ranges.of(low).hi > kMostPlace || kernel_.ranges.of(high).lo < 0 ||
                       kernel_.ranges.of(high).hi > kMostPlace;
    if (wraps) return condition;
    return ir::make_typed(Op::kGt, {apply(Op::kSub, limit, with_sign(DType::I32, low)), with_sign(DType::I32, high)});
  }

  // The same of any comparison, with terms on both sides, and in 64 bits: what unrolled loops change differs by little,
  // so that it can be compared with the difference of the rest in 32 bits, which is cut off at the ends.
  ExprRef parted(const ExprRef& condition) const {
    if (!is(condition, Op::kLt) && !is(condition, Op::kLe) && !is(condition, Op::kGt) && !is(condition, Op::kGe))
      return condition;
    const ExprRef &a = condition->args[0], &b = condition->args[1];
    if ((a->type != DType::I32 && a->type != DType::I64) || loads_memory(condition)) return condition;
    int budget = kMostNodes;
    std::vector<Term> terms, of_b;
    collect_wide(a, false, &budget, &terms);
    collect_wide(b, true, &budget, &of_b);
    if (budget < 0 || (are_of_one_kind(terms) && are_of_one_kind(of_b))) return condition;
    const bool exact = is_exact(terms) && is_exact(of_b);
    terms.insert(terms.end(), of_b.begin(), of_b.end());
    Interval moved{0, 0};
    for (Term& term : terms) {
      if (!term.level) continue;
      const Interval range = kernel_.ranges.of(term.value);
      if (range.lo < -kFarthest || range.hi > kFarthest) return condition;
      moved.lo += term.minus ? -range.hi : range.lo;
      moved.hi += term.minus ? -range.lo : range.hi;
      const bool widened = term.value->kind == ExprKind::kCast && term.value->args[0]->type == DType::I32;
      term.value = widened ? term.value->args[0] : with_sign(DType::I32, term.value);
    }
    if (moved.lo < -kMostPlace / 2 || moved.hi > kMostPlace / 2) return condition;
    const bool fits = differ_within(a, b, moved);
    if (!fits && (a->type == DType::I64 || !exact)) return condition;
    for (Term& term : terms) {
      if (term.level) continue;
      term.minus ^= !planted(Planted::kPartedSides);
      if (!fits) term.value = ir::make_cast({DType::I64, nullptr}, with_sign(DType::I32, term.value));
    }
    ExprRef rest = sum_of(terms, 0);
    const ExprRef moving = sum_from(terms, 1);
    if (!rest || !moving) return condition;
    if (rest->type == DType::I64) {
      rest = ir::make_typed(Op::kMin, {rest, ir::make_int(kMostPlace, DType::I64)});
      rest = ir::make_typed(Op::kMax, {rest, ir::make_int(-kMostPlace, DType::I64)});
      rest = ir::make_cast({DType::I32, nullptr}, rest);
    }
    rest = with_sign(DType::I32, rest);
    return ir::make_typed(condition->op, {with_sign(DType::I32, moving), rest});
  }
  // All of them change with unrolled loops, or none does.
  static bool are_of_one_kind(const std::vector<Term>& terms) {
    return std::all_of(terms.begin(), terms.end(), [&](const Term& term) { return !term.level == !terms[0].level; });
  }
  // Whether the sum is one of 32 bits that did not wrap.
  bool is_exact(const std::vector<Term>& terms) const {
    Interval sum{0, 0};
    for (const Term& term : terms) {
      if (term.value->type != DType::I32) return false;
      const Interval range = kernel_.ranges.of(term.value);
      sum.lo += term.minus ? -range.hi : range.lo;
      sum.hi += term.minus ? -range.lo : range.hi;
    }
    return sum.lo >= -kMostPlace && sum.hi <= kMostPlace;
  }
  // Whether b - a and what is moved from a to the other side are a number of their type together.
  bool differ_within(const ExprRef& a, const ExprRef& b, const Interval& moved) const {
    const Interval of_a = kernel_.ranges.of(a), of_b = kernel_.ranges.of(b);
    int64_t low = 0, high = 0;
    if (__builtin_sub_overflow(of_b.lo, of_a.hi, &low) || __builtin_sub_overflow(of_b.hi, of_a.lo, &high) ||
        __builtin_add_overflow(low, moved.lo, &low) || __builtin_add_overflow(high, moved.hi, &high))
      return false;
    return a->type == DType::I64 || (low >= -kMostPlace && high <= kMostPlace);
  }
  // As collect(), but sums of 32 bits that are widened are looked into where none of them wraps.
  void collect_wide(const ExprRef& expr, bool minus, int* budget, std::vector<Term>* terms) const {
    std::vector<Term> found;
    collect(expr, minus, budget, &found);
    for (const Term& term : found) {
      const bool widens = term.level && term.value->type == DType::I64 && term.value->kind == ExprKind::kCast &&
                          term.value->args[0]->type == DType::I32;
      std::vector<Term> parts;
      if (widens) collect(term.value->args[0], term.minus, budget, &parts);
      bool bounded = parts.size() > 1;
      for (const Term& part : parts) {
        const Interval range = kernel_.ranges.of(part.value);
        bounded &= part.value->type == DType::I32 && range.lo >= -kFarthest && range.hi <= kFarthest;
      }
      if (!bounded || parts.size() > kMostParts) {
        terms->push_back(term);
        continue;
      }
      for (Term& part : parts) {
        part.value = ir::make_cast({DType::I64, nullptr}, part.value);
        terms->push_back(std::move(part));
      }
    }
  }

  ExprRef all_of(const ExprRef& conjunction) const {
    std::vector<ExprRef> conditions;
    conjuncts(conjunction, &conditions);
    if (std::any_of(conditions.begin(), conditions.end(), loads_memory)) return conjunction;
    for (ExprRef& condition : conditions) condition = parted(compared(condition));
    std::stable_sort(conditions.begin(), conditions.end(),
                     [this](const ExprRef& a, const ExprRef& b) { return level(a) < level(b); });
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
    if (const ExprRef apart = parted(expr); apart != expr) return apart;
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

  static constexpr int64_t kMostPlace = (int64_t{1} << 31) - 1;
  static constexpr int64_t kFarthest = 1 << 24;  // of what unrolled loops change, and of each part of it
  static constexpr size_t kMostParts = 8;
  static constexpr int kMostNodes = 200;
  const LoopKernel& kernel_;
  int depth_ = 0;                                   // of unrolled loops
  std::unordered_map<const ir::Var*, Name> names_;  // that they change; value: null where it is not to be looked into
  std::set<const ir::Buffer*> written_;             // in the outermost of them
};

}  // namespace

void sums_by_loop(LoopKernel* kernel) {
  for (LoopBlock* body : {&kernel->body, &kernel->producer}) Orderer(*kernel).block(body);
}

}  // namespace kachel::lowering
