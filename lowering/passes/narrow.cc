#include "lowering/passes/narrow.h"

#include "lowering/planted.h"

namespace kachel::lowering {
namespace {

using ir::DType;
using ir::ExprKind;
using ir::ExprRef;
using ir::Op;

bool fits(const Interval& interval) {
  return interval.lo >= std::numeric_limits<int32_t>::min() && interval.hi <= std::numeric_limits<int32_t>::max();
}

class Narrower {
 public:
  explicit Narrower(LoopKernel* kernel) : kernel_(*kernel) {}

  void block(LoopBlock* body) {
    for (LoopStmt& stmt : *body) std::visit([this](auto& node) { statement(node); }, stmt.node);
  }

 private:
  // The same number as I32; null if that is not known to hold it.
  ExprRef as_i32(const ExprRef& in) {
    if (in->type == DType::I32) return rewrite(in);
    if (in->type != DType::I64 || !fits(kernel_.ranges.of(in))) return nullptr;
    switch (in->kind) {
      case ExprKind::kInt:
        return ir::make_int(planted(Planted::kNarrowConstant) ? static_cast<int8_t>(in->int_value) : in->int_value,
                            DType::I32);
      case ExprKind::kVar: {
        auto it = narrowed_.find(in->var.get());
        return it != narrowed_.end() ? ir::make_var(it->second) : ir::make_cast({DType::I32, nullptr}, in);
      }
      case ExprKind::kCast:
        return in->args[0]->type == DType::I32 ? rewrite(in->args[0]) : nullptr;
      case ExprKind::kApply:
        break;
      default:
        return nullptr;
    }
    switch (in->op) {
      case Op::kAdd:
      case Op::kSub:
      case Op::kMul:
      case Op::kDiv:
      case Op::kMod:
      case Op::kMin:
      case Op::kMax:
      case Op::kNeg:
      case Op::kCeilDiv:
      case Op::kSelect:
      case Op::kBitAnd:
      case Op::kBitOr:
      case Op::kBitXor:
        break;
      case Op::kShl:
      case Op::kShr: {  // by an amount of any type
        ExprRef shifted = as_i32(in->args[0]);
        return shifted ? ir::make_typed(in->op, {std::move(shifted), index(in->args[1])}) : nullptr;
      }
      default:
        return nullptr;
    }
    if (in->op == Op::kDiv)
      if (const ExprRef parts = quotient_of_parts(*in)) return parts;
    // An operation in I64 that may wrap has the whole range; what remains has the value of exact arithmetic.
    std::vector<ExprRef> args;
    for (const ExprRef& arg : in->args) {
      ExprRef part = arg->type == DType::Bool ? rewrite(arg) : as_i32(arg);
      if (!part) return nullptr;
      args.push_back(std::move(part));
    }
    const bool divides = (in->op == Op::kDiv || in->op == Op::kMod) && !ir::is_const(args[1]);
    if (divides && is_natural(in->args[0]) && is_natural(in->args[1])) return unsigned_quotient(in->op, args);
    return ir::make_typed(in->op, std::move(args));
  }

  // a / (b * c) as (a / b) / c, where b and c fit and their product need not.
  ExprRef quotient_of_parts(const ir::Expr& quotient) {
    const ExprRef &a = quotient.args[0], product = quotient.args[1];
    if (product->kind != ExprKind::kApply || product->op != Op::kMul || as_i32(product)) return nullptr;
    const ExprRef dividend = as_i32(a), b = as_i32(product->args[0]), c = as_i32(product->args[1]);
    const bool natural = is_natural(a) && is_natural(product->args[0]) && is_natural(product->args[1]);
    if (!dividend || !b || !c || !natural || !kernel_.ranges.cannot_wrap(product)) return nullptr;
    return unsigned_quotient(Op::kDiv, {unsigned_quotient(Op::kDiv, {dividend, c}), b});
  }

  bool is_natural(const ExprRef& expr) const { return kernel_.ranges.of(expr).lo >= 0; }
  // Signs take a third of a division's instructions.
  static ExprRef unsigned_quotient(Op op, const std::vector<ExprRef>& args) {
    const ExprRef a = ir::make_cast({DType::U32, nullptr}, args[0]), b = ir::make_cast({DType::U32, nullptr}, args[1]);
    return ir::make_cast({DType::I32, nullptr}, ir::make_typed(op, {a, b}));
  }

  ExprRef rewrite(const ExprRef& in) {
    if (!in) return in;
    const bool stays = in->kind == ExprKind::kInt || (in->kind == ExprKind::kVar && !narrowed_.count(in->var.get()));
    if (stays) return in;
    if (in->type == DType::I64)
      if (ExprRef small = as_i32(in)) return ir::make_cast({DType::I64, nullptr}, small);
    if (in->kind == ExprKind::kCast && in->cast_type.dtype == DType::I32 && in->args[0]->type == DType::I64)
      if (ExprRef small = as_i32(in->args[0])) return small;
    if (in->kind == ExprKind::kApply && ir::is_comparison(in->op) && in->args[0]->type == DType::I64) {
      ExprRef a = as_i32(in->args[0]), b = as_i32(in->args[1]);
      if (a && b) return ir::make_typed(in->op, {a, b});
    }
    bool changed = false;
    std::vector<ExprRef> args;
    const bool shifts = in->kind == ExprKind::kApply && (in->op == Op::kShl || in->op == Op::kShr);
    for (const ExprRef& arg : in->args) {
      const bool may_change = in->kind == ExprKind::kLoad || (shifts && &arg != &in->args[0]);
      ExprRef made = may_change ? index(arg) : rewrite(arg);
      changed |= made != arg;
      args.push_back(std::move(made));
    }
    if (!changed) return in;
    auto copy = std::make_shared<ir::Expr>(*in);
    copy->args = std::move(args);
    return copy;
  }
  ExprRef index(const ExprRef& in) {
    ExprRef small = in->type == DType::I64 ? as_i32(in) : nullptr;
    return small ? small : rewrite(in);
  }

  // Of a loop: worked out once, so that its parts may need 64 bits where it does not.
  ExprRef bound(const ExprRef& in) {
    const ExprRef small = as_i32(in);
    if (small || in->type != DType::I64 || !fits(kernel_.ranges.of(in))) return small;
    return ir::make_cast({DType::I32, nullptr}, rewrite(in));
  }

  // The I32 twin of a variable of which all values fit.
  ir::VarRef twin(const ir::VarRef& var) {
    auto made = std::make_shared<ir::Var>(*var);
    made->type = {DType::I32, nullptr};
    narrowed_[var.get()] = made;
    kernel_.ranges.set(made, kernel_.ranges.of(ir::make_var(var)));
    kernel_.ranges.set_multiple(made, kernel_.ranges.multiple_of(ir::make_var(var)));
    return made;
  }

  void statement(LoopLet& let) {
    if (let.value->type == DType::I64 && fits(kernel_.ranges.of(ir::make_var(let.var))))
      if (ExprRef small = as_i32(let.value)) {
        let = {twin(let.var), small};
        return;
      }
    narrowed_.erase(let.var.get());  // another block may have declared it too
    let.value = rewrite(let.value);
  }
  void statement(LoopStore& store) {
    store.index = index(store.index);
    store.value = rewrite(store.value);
  }
  void statement(LoopAtomic& atomic) {
    atomic.index = index(atomic.index);
    atomic.value = rewrite(atomic.value);
  }
  void statement(LoopFor& loop) {
    const ExprRef begin = bound(loop.begin), end = bound(loop.end);
    if (loop.var->type.dtype == DType::I64 && begin && end && fits(kernel_.ranges.of(ir::make_var(loop.var)))) {
      loop.begin = begin;
      loop.end = end;
      loop.var = twin(loop.var);
    } else {
      narrowed_.erase(loop.var.get());
      loop.begin = rewrite(loop.begin);
      loop.end = rewrite(loop.end);
    }
    block(&loop.body);
  }
  void statement(LoopThreads& threads) { block(&threads.body); }
  void statement(LoopIf& branch) {
    branch.condition = rewrite(branch.condition);
    block(&branch.then_body);
    block(&branch.else_body);
  }
  void statement(LoopIntrinsic& node) {
    for (LoopIntrinsic::Operand& operand : node.operands) operand.index = index(operand.index);
    node.guard = rewrite(node.guard);
    for (ExprRef& coordinate : node.coordinates) coordinate = rewrite(coordinate);
    node.l2_policy = rewrite(node.l2_policy);
  }
  void statement(LoopShuffle& node) { node.value = rewrite(node.value); }
  void statement(LoopPipeline&) {}     // runs after synchronise()
  void statement(LoopMicroKernel&) {}  // the CPU keeps 64 bits
  void statement(LoopStream&) {}
  void statement(LoopTranspose&) {}
  void statement(LoopPrefetch&) {}
  void statement(LoopBarrier&) {}
  void statement(LoopComment&) {}

  LoopKernel& kernel_;
  std::unordered_map<const ir::Var*, ir::VarRef> narrowed_;
};

}  // namespace

void narrow(LoopKernel* kernel) {
  Narrower(kernel).block(&kernel->body);
  Narrower(kernel).block(&kernel->producer);
  Narrower(kernel).block(&kernel->passed_over);
}

}  // namespace kachel::lowering
