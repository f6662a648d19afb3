#include "lowering/passes/simplify.h"

#include "ir/instantiate.h"
#include "lowering/loop_ir/loop_build.h"

namespace kachel::lowering {
namespace {

class Simplifier {
 public:
  explicit Simplifier(std::unordered_map<const ir::Var*, ir::ExprRef> names = {}) : names_(std::move(names)) {}

  LoopBlock block(const LoopBlock& in) {
    LoopBlock out;
    for (const LoopStmt& stmt : in) std::visit([&](const auto& node) { statement(node, &out); }, stmt.node);
    return out;
  }

 private:
  // From f32 to a narrower float.
  static bool rounds(const ir::ExprRef& value) {
    return value->kind == ir::ExprKind::kCast && value->args[0]->type == ir::DType::F32 &&
           ir::is_float(value->cast_type.dtype) && value->cast_type.dtype != ir::DType::F32;
  }
  // What was rounded to `type` to give `value`; null if it was not.
  ir::ExprRef before_rounding(const ir::ExprRef& value, ir::DType type) const {
    if (rounds(value)) return value->cast_type.dtype == type ? value->args[0] : nullptr;
    const auto it = value->kind == ir::ExprKind::kVar ? rounded_.find(value->var.get()) : rounded_.end();
    return it != rounded_.end() && it->second.type == type ? it->second.exact : nullptr;
  }

  ir::ExprRef expr(const ir::ExprRef& in) const {
    return ir::fold(ir::rewrite(in, [this](const ir::ExprRef& node) {
      if (node->kind != ir::ExprKind::kVar) return node;
      auto it = names_.find(node->var.get());
      return it == names_.end() ? node : it->second;
    }));
  }

  // What was a block is a part of the one around it. Names that it declares are new ones there, since blocks that
  // follow may declare them too.
  void splice(const LoopBlock& in, LoopBlock* out) {
    for (const LoopStmt& stmt : in) {
      LoopStmt copy = stmt;
      if (auto* let = std::get_if<LoopLet>(&copy.node))
        renew(&let->var, copy, out);
      else if (auto* shuffle = std::get_if<LoopShuffle>(&copy.node))
        renew(&shuffle->var, copy, out);
      else
        std::visit([&](const auto& node) { statement(node, out); }, copy.node);
    }
  }
  // `declaration` with a name in place of its own, by which it goes from then on.
  void renew(ir::VarRef* var, const LoopStmt& declaration, LoopBlock* out) {
    const ir::VarRef before = std::exchange(*var, std::make_shared<ir::Var>(**var));
    const ir::VarRef now = *var;
    std::visit([&](const auto& node) { statement(node, out); }, declaration.node);
    const auto known = names_.find(now.get());
    names_[before.get()] = known == names_.end() ? ir::make_var(now) : known->second;
  }

  void statement(const LoopLet& let, LoopBlock* out) {
    ir::ExprRef value = expr(let.value);
    names_.erase(let.var.get());  // another block may have declared it too
    rounded_.erase(let.var.get());
    while (rounds(value) && before_rounding(value->args[0], value->cast_type.dtype)) value = value->args[0];  // twice
    const bool alias = value->kind == ir::ExprKind::kVar && rounded_.count(value->var.get());
    if (ir::is_const(value) || alias) {
      names_[let.var.get()] = value;
    } else if (rounds(value)) {
      const ir::ExprRef& arg = value->args[0];
      const ir::ExprRef exact = arg->kind == ir::ExprKind::kVar ? arg : named("exact", arg, out);
      out->push_back({LoopLet{let.var, ir::make_cast(value->cast_type, exact)}});
      rounded_[let.var.get()] = {value->cast_type.dtype, exact};
    } else {
      out->push_back({LoopLet{let.var, value}});
    }
  }
  // A store rounds by itself.
  void statement(const LoopStore& store, LoopBlock* out) {
    ir::ExprRef value = expr(store.value);
    while (const ir::ExprRef exact = before_rounding(value, store.buffer->type.dtype)) value = exact;
    out->push_back({LoopStore{store.buffer, expr(store.index), value}});
  }
  void statement(const LoopAtomic& atomic, LoopBlock* out) {
    out->push_back({LoopAtomic{atomic.buffer, expr(atomic.index), atomic.op, expr(atomic.value)}});
  }
  void statement(const LoopFor& loop, LoopBlock* out) {
    LoopFor copy = without_body(loop);
    copy.begin = expr(loop.begin);
    copy.end = expr(loop.end);
    if (ir::is_const(copy.begin) && ir::is_const(copy.end) && copy.begin->int_value >= copy.end->int_value) return;
    if (!loop.unroll && ir::is_const(copy.begin) && ir::is_const(copy.end) &&
        copy.begin->int_value + 1 == copy.end->int_value) {
      names_[loop.var.get()] = copy.begin;
      splice(loop.body, out);
      return;
    }
    names_.erase(loop.var.get());  // as for lets
    copy.body = block(loop.body);
    if (!copy.body.empty()) out->push_back({std::move(copy)});
  }
  void statement(const LoopThreads& threads, LoopBlock* out) {
    LoopThreads copy{threads.index, threads.slot, threads.extent, threads.unroll, block(threads.body)};
    if (!copy.body.empty()) out->push_back({std::move(copy)});
  }
  void statement(const LoopIf& branch, LoopBlock* out) {
    const ir::ExprRef condition = expr(branch.condition);
    if (ir::is_const(condition)) return splice(condition->int_value ? branch.then_body : branch.else_body, out);
    LoopIf copy{condition, block(branch.then_body), block(branch.else_body)};
    if (!copy.then_body.empty() || !copy.else_body.empty()) out->push_back({std::move(copy)});
  }
  void statement(const LoopIntrinsic& node, LoopBlock* out) {
    LoopIntrinsic copy = node;
    for (LoopIntrinsic::Operand& operand : copy.operands) operand.index = expr(operand.index);
    if (copy.guard) copy.guard = expr(copy.guard);
    for (ir::ExprRef& coordinate : copy.coordinates) coordinate = expr(coordinate);
    if (copy.l2_policy) copy.l2_policy = expr(copy.l2_policy);
    out->push_back({std::move(copy)});
  }
  void statement(const LoopShuffle& node, LoopBlock* out) {
    const ir::ExprRef value = expr(node.value);
    names_.erase(node.var.get());
    out->push_back({LoopShuffle{node.var, value, node.lane_mask}});
  }
  void statement(const LoopPipeline& node, LoopBlock* out) {
    LoopPipeline copy = node;
    copy.begin = expr(node.begin);
    copy.end = expr(node.end);
    copy.produce = block(node.produce);
    if (copy.bulk)
      for (LoopPipeline::Bulk::Ring& ring : copy.bulk->rings)
        if (ring.guard) ring.guard = expr(ring.guard);
    copy.consume = block(node.consume);
    out->push_back({std::move(copy)});
  }
  void statement(const LoopBarrier&, LoopBlock* out) { out->push_back({LoopBarrier{}}); }
  void statement(const LoopMicroKernel& micro, LoopBlock* out) {
    LoopMicroKernel copy = micro;
    for (ir::ExprRef* at : {&copy.c_at, &copy.a_at, &copy.b_at}) *at = expr(*at);
    out->push_back({std::move(copy)});
  }
  void statement(const LoopStream& stream, LoopBlock* out) {
    out->push_back({LoopStream{stream.to, stream.from, expr(stream.to_at), expr(stream.from_at), expr(stream.count)}});
  }
  void statement(const LoopTranspose& transpose, LoopBlock* out) {
    LoopTranspose copy = transpose;
    for (ir::ExprRef* at : {&copy.to_at, &copy.from_at, &copy.to_row, &copy.from_row}) *at = expr(*at);
    out->push_back({std::move(copy)});
  }
  void statement(const LoopPrefetch& prefetch, LoopBlock* out) {
    out->push_back({LoopPrefetch{prefetch.buffer, expr(prefetch.index), prefetch.write}});
  }
  void statement(const LoopComment& comment, LoopBlock* out) { out->push_back({comment}); }

  struct Rounded {
    ir::DType type;
    ir::ExprRef exact;
  };
  std::unordered_map<const ir::Var*, ir::ExprRef> names_;
  std::unordered_map<const ir::Var*, Rounded> rounded_;
};

}  // namespace

LoopBlock substituted(const LoopBlock& block, std::unordered_map<const ir::Var*, ir::ExprRef> values) {
  return Simplifier(std::move(values)).block(block);
}

void simplify(LoopKernel* kernel) {
  kernel->body = Simplifier().block(kernel->body);
  kernel->producer = Simplifier().block(kernel->producer);
  kernel->passed_over = Simplifier().block(kernel->passed_over);
}

}  // namespace kachel::lowering
