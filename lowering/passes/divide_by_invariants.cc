#include "lowering/passes/divide_by_invariants.h"

#include <set>

#include "ir/visit.h"
#include "lowering/loop_ir/loop_build.h"
#include "lowering/planted.h"

namespace kachel::lowering {
namespace {

using ir::DType;
using ir::ExprKind;
using ir::ExprRef;
using ir::Op;

// Divisors from 1 / kFar to kFar have reciprocals that are neither subnormal nor infinite; others have once multiplied
// by 1 / kScale or kScale. Those remain above 1 or below it, so that no quotient leaves f32 that would not without.
constexpr double kFar = 0x1p100, kScale = 0x1p60;

struct Divisor {
  ExprRef original;
  ExprRef scaled, scale, inverse;
};

class Rewriter {
 public:
  // The statements of `body`, with what stands before loops.
  LoopBlock block(LoopBlock body) {
    LoopBlock out;
    for (LoopStmt& stmt : body) {
      if (auto* loop = std::get_if<LoopFor>(&stmt.node)) {
        loop->body = block(std::move(loop->body));
        if (!loop->reassociate) rewrite(loop, &out);  // what corrects a quotient must stand as it is
      } else if (auto* branch = std::get_if<LoopIf>(&stmt.node)) {
        branch->then_body = block(std::move(branch->then_body));
        branch->else_body = block(std::move(branch->else_body));
      }
      out.push_back(std::move(stmt));
    }
    return out;
  }

 private:
  // What a loop's body changes.
  struct Changes {
    std::set<const ir::Var*> names;
    std::set<const ir::Buffer*> buffers;
    bool any_buffer = false;  // or may leave out what reads it
  };
  static Changes changes_of(const LoopFor& loop) {
    Changes changes;
    changes.names.insert(loop.var.get());
    changes.any_buffer =
        !ir::is_const(loop.begin) || !ir::is_const(loop.end) || loop.begin->int_value >= loop.end->int_value;
    for_each_statement(loop.body, [&](const LoopStmt& stmt) {
      if (const auto* let = std::get_if<LoopLet>(&stmt.node)) changes.names.insert(let->var.get());
      if (const auto* inner = std::get_if<LoopFor>(&stmt.node)) changes.names.insert(inner->var.get());
      for_each_access(stmt, [&](const ir::BufferRef& buffer, bool write) {
        if (write) changes.buffers.insert(buffer.get());
      });
      changes.any_buffer |= std::holds_alternative<LoopMicroKernel>(stmt.node) ||
                            std::holds_alternative<LoopStream>(stmt.node) ||
                            std::holds_alternative<LoopTranspose>(stmt.node);
    });
    return changes;
  }
  // Tensors may be one another's memory.
  static bool fixed(const ExprRef& expr, const Changes& changes) {
    bool fixed = true;
    ir::visit(expr, [&](const ExprRef& node) {
      if (node->kind == ExprKind::kVar) fixed &= !changes.names.count(node->var.get());
      if (node->kind == ExprKind::kLoad)
        fixed &= !changes.any_buffer && node->buffer->scope != ir::Scope::kGlobal &&
                 !changes.buffers.count(node->buffer.get());
    });
    return fixed;
  }

  void rewrite(LoopFor* loop, LoopBlock* before) {
    Changes changes = changes_of(*loop);
    std::vector<Divisor> divisors;
    LoopBlock out;
    const auto quotients = [&](auto&& self, const ExprRef& expr) -> ExprRef {
      bool changed = false;
      std::vector<ExprRef> args;
      for (const ExprRef& arg : expr->args) {
        args.push_back(ir::is_lazy(*expr) && !args.empty() ? arg : self(self, arg));
        changed |= args.back() != arg;
      }
      ExprRef node = expr;
      if (changed) {
        auto copy = std::make_shared<ir::Expr>(*expr);
        copy->args = std::move(args);
        node = copy;
      }
      const bool quotient = node->kind == ExprKind::kApply && node->op == Op::kDiv && node->type == DType::F32;
      // What does not change at all is LLVM's to hoist.
      if (!quotient || fixed(node->args[0], changes) || !fixed(node->args[1], changes)) return node;
      const size_t named = out.size();
      const ExprRef result = corrected(node->args[0], divisor(node->args[1], &divisors, before), &out);
      for (size_t i = named; i < out.size(); ++i) changes.names.insert(std::get<LoopLet>(out[i].node).var.get());
      return result;
    };
    for (LoopStmt& stmt : loop->body) {
      if (auto* let = std::get_if<LoopLet>(&stmt.node)) let->value = quotients(quotients, let->value);
      if (auto* store = std::get_if<LoopStore>(&stmt.node)) store->value = quotients(quotients, store->value);
      out.push_back(std::move(stmt));
    }
    loop->body = std::move(out);
  }

  static const Divisor& divisor(const ExprRef& value, std::vector<Divisor>* known, LoopBlock* before) {
    for (const Divisor& divisor : *known)
      if (ir::same(divisor.original, value)) return divisor;
    const ExprRef by = named("by", value, before), size = named("size", ir::make_typed(Op::kAbs, {by}), before);
    const auto beyond = [&](Op op, double bound, double scale, const ExprRef& otherwise) {
      const ExprRef condition = ir::make_typed(op, {size, ir::make_float(bound)});
      return ir::make_typed(Op::kSelect, {condition, ir::make_float(scale), otherwise});
    };
    Divisor made{value, nullptr, nullptr, nullptr};
    const ExprRef one = ir::make_float(1);
    made.scale = named("scale", beyond(Op::kGt, kFar, 1 / kScale, beyond(Op::kLt, 1 / kFar, kScale, one)), before);
    made.scaled = named("divisor", ir::make_typed(Op::kMul, {by, made.scale}), before);
    made.inverse = named("inverse", ir::make_typed(Op::kDiv, {one, made.scaled}), before);
    known->push_back(std::move(made));
    return known->back();
  }

  static ExprRef corrected(const ExprRef& value, const Divisor& by, LoopBlock* out) {
    const ExprRef dividend = named("dividend", value, out);
    const ExprRef near = named("near", ir::make_typed(Op::kMul, {dividend, by.inverse}), out);
    const ExprRef rest = ir::make_typed(Op::kFma, {ir::make_typed(Op::kNeg, {near}), by.scaled, dividend});
    const ExprRef nearest = named("nearest", ir::make_typed(Op::kFma, {rest, by.inverse, near}), out);
    const ExprRef number = ir::make_typed(Op::kEq, {nearest, nearest});
    const ExprRef quotient = ir::make_typed(Op::kSelect, {number, nearest, near});
    if (planted(Planted::kDivisorNotScaledBack)) return quotient;
    return ir::make_typed(Op::kMul, {quotient, by.scale});
  }
};

}  // namespace

void divide_by_invariants(LoopKernel* kernel) {
  kernel->body = Rewriter().block(std::move(kernel->body));
}

}  // namespace kachel::lowering
