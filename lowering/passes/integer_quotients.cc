#include "lowering/passes/integer_quotients.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "ir/visit.h"
#include "lowering/loop_ir/loop_build.h"
#include "lowering/planted.h"

namespace kachel::lowering {
namespace {

using ir::DType;
using ir::ExprKind;
using ir::ExprRef;
using ir::Op;

constexpr int64_t kLeastQuotients = 4;  // an iteration, by one divisor
constexpr int64_t kLimit = int64_t{1} << 31;

struct Divisor {
  ExprRef value;                   // as it is written
  int64_t quotients = 0;           // an iteration
  ExprRef by, shift, magic, kept;  // names; kept: what a remainder is and-ed with, or null

  bool is_named() const { return by != nullptr; }
};

ExprRef cast(DType type, const ExprRef& value) {
  return value->type == type ? value : ir::make_cast({type, nullptr}, value);
}

class Rewriter {
 public:
  explicit Rewriter(LoopKernel* kernel) : ranges_(kernel->ranges) {}

  LoopBlock block(LoopBlock body) {
    LoopBlock out;
    for (LoopStmt& stmt : body) {
      auto* loop = std::get_if<LoopFor>(&stmt.node);
      if (loop && !loop->unroll)
        serial(loop, &out);
      else
        for_each_block(&stmt, [this](LoopBlock* inner) { *inner = block(std::move(*inner)); });
      out.push_back(std::move(stmt));
    }
    return out;
  }

 private:
  void serial(LoopFor* loop, LoopBlock* before) {
    names_ = {loop->var.get()};
    for_each_statement(loop->body, [this](const LoopStmt& stmt) {
      if (const auto* let = std::get_if<LoopLet>(&stmt.node)) names_.insert(let->var.get());
      if (const auto* inner = std::get_if<LoopFor>(&stmt.node)) names_.insert(inner->var.get());
      if (const auto* shuffle = std::get_if<LoopShuffle>(&stmt.node)) names_.insert(shuffle->var.get());
      if (const auto* threads = std::get_if<LoopThreads>(&stmt.node))
        names_.insert(threads->index.get()), names_.insert(threads->slot.get());
    });
    divisors_.clear();
    count(loop->body, 1);
    bool any = false;
    for (Divisor& divisor : divisors_) {
      if (divisor.quotients < kLeastQuotients) continue;
      name(&divisor, before);
      any = true;
    }
    if (any) loop->body = rewritten(std::move(loop->body));
  }

  // What has been narrowed to I32 fits, whatever is known of its factors.
  bool is_below_limit(const ExprRef& value) const {
    const Interval range = ranges_.of(value);
    const bool was_signed = value->kind == ExprKind::kCast && value->args[0]->type == DType::I32;
    return range.hi < kLimit || (was_signed && range.lo >= 0);
  }
  // The divisor of a quotient or a remainder that may be replaced; null: it is none.
  const ExprRef* divisor_of(const ir::Expr& node) const {
    if (node.kind != ExprKind::kApply || (node.op != Op::kDiv && node.op != Op::kMod) || node.type != DType::U32)
      return nullptr;
    const ExprRef &n = node.args[0], &d = node.args[1];
    if (ir::is_const(d) || !is_below_limit(n) || !is_below_limit(d)) return nullptr;
    bool fixed = true;
    ir::visit(d, [&](const ExprRef& inner) {
      fixed &= inner->kind != ExprKind::kLoad && (inner->kind != ExprKind::kVar || !names_.count(inner->var.get()));
    });
    return fixed ? &d : nullptr;
  }
  Divisor* known(const ExprRef& value) {
    for (Divisor& divisor : divisors_)
      if (ir::same(divisor.value, value)) return &divisor;
    return nullptr;
  }

  void count(const LoopBlock& body, int64_t times) {
    for (const LoopStmt& stmt : body) {
      const auto* loop = std::get_if<LoopFor>(&stmt.node);
      for_each_expr(stmt, [&](const ExprRef& expr) {
        ir::visit(expr, [&](const ExprRef& node) {
          const ExprRef* value = divisor_of(*node);
          if (!value) return;
          if (!known(*value)) divisors_.push_back({*value});
          known(*value)->quotients += times;
        });
      });
      if (loop) count(loop->body, times * std::max<int64_t>(unrolled_trips(*loop), 1));
      if (const auto* threads = std::get_if<LoopThreads>(&stmt.node)) count(threads->body, times);
      if (const auto* branch = std::get_if<LoopIf>(&stmt.node))
        count(branch->then_body, times), count(branch->else_body, times);
    }
  }

  void name(Divisor* divisor, LoopBlock* before) const {
    const auto i64 = [](int64_t value) { return int64(value); };
    const ExprRef by = named("by", cast(DType::I64, divisor->value), before);
    // As many bits as by - 1 has: all below its highest one set, and counted.
    ExprRef bits = apply(Op::kMax, apply(Op::kSub, by, i64(1)), i64(0));
    for (int64_t step = 1; step < 32; step *= 2) {
      const ExprRef below = named("bits", bits, before);
      bits = apply(Op::kBitOr, below, apply(Op::kShr, below, i64(step)));
    }
    const ExprRef shift = named("shift", ir::make_typed(Op::kPopcount, {bits}), before);
    const ExprRef power = apply(Op::kShl, i64(1), apply(Op::kAdd, shift, i64(31)));
    const ExprRef above = planted(Planted::kQuotientBelow) ? i64(0) : apply(Op::kSub, by, i64(1));
    const ExprRef magic = apply(Op::kDiv, apply(Op::kAdd, power, above), by);
    const bool may_be_zero = ranges_.of(divisor->value).lo < 1;
    const ExprRef is_zero = apply(Op::kEq, by, i64(0));
    divisor->magic = named(
        "magic", cast(DType::U32, may_be_zero ? ir::make_typed(Op::kSelect, {is_zero, i64(0), magic}) : magic), before);
    if (may_be_zero)
      divisor->kept = named(
          "kept",
          ir::make_typed(Op::kSelect, {is_zero, ir::make_int(0, DType::U32), ir::make_int(0xffffffff, DType::U32)}),
          before);
    divisor->shift = named("shift", cast(DType::U32, shift), before);
    divisor->by = named("by", cast(DType::U32, by), before);
  }

  LoopBlock rewritten(LoopBlock body) {
    LoopBlock out;
    for (LoopStmt& stmt : body) {
      for_each_block(&stmt, [this](LoopBlock* inner) { *inner = rewritten(std::move(*inner)); });
      for_each_expr(stmt, [&](ExprRef& expr) { expr = quotients(expr, &out); });
      out.push_back(std::move(stmt));
    }
    return out;
  }

  // What is evaluated only where it is needed may be evaluated anyway: it is arithmetic alone.
  ExprRef quotients(const ExprRef& expr, LoopBlock* out) {
    return ir::rewrite(expr, [&](const ExprRef& node) -> ExprRef {
      const ExprRef* value = divisor_of(*node);
      const Divisor* divisor = value ? known(*value) : nullptr;
      if (!divisor || !divisor->is_named()) return node;
      bool loads = false;
      ir::visit(node->args[0], [&](const ExprRef& inner) { loads |= inner->kind == ExprKind::kLoad; });
      if (loads) return node;
      const ExprRef n = named("n", node->args[0], out);
      ranges_.set(n->var, ranges_.of(node->args[0]));
      const ExprRef product = apply(Op::kMul, cast(DType::I64, n), cast(DType::I64, divisor->magic));
      const ExprRef high = cast(DType::U32, apply(Op::kShr, product, int64(31)));
      const auto no_larger = [&](const char* name, const ExprRef& result) {
        ExprRef var = named(name, result, out);
        ranges_.set(var->var, {0, ranges_.of(n).hi});
        return var;
      };
      const ExprRef quotient = no_larger("quotient", apply(Op::kShr, high, divisor->shift));
      if (node->op == Op::kDiv) return quotient;
      const ExprRef rest = apply(Op::kSub, n, apply(Op::kMul, quotient, divisor->by));
      return no_larger("rest", divisor->kept ? apply(Op::kBitAnd, rest, divisor->kept) : rest);
    });
  }

  Ranges& ranges_;
  std::set<const ir::Var*> names_;  // that the loop gives
  std::vector<Divisor> divisors_;
};

}  // namespace

void integer_quotients(LoopKernel* kernel) {
  for (LoopBlock* body : {&kernel->body, &kernel->passed_over, &kernel->producer})
    *body = Rewriter(kernel).block(std::move(*body));
}

}  // namespace kachel::lowering
