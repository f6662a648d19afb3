#include "lowering/passes/input_loads.h"

#include "ir/visit.h"
#include "lowering/loop_ir/loop_build.h"

namespace kachel::lowering {

using ir::ExprKind;
using ir::ExprRef;
using Kind = LoopIntrinsic::Kind;

BufferCounts accesses_of(const LoopKernel& kernel) {
  BufferCounts counts;
  for (const LoopBlock* body : {&kernel.body, &kernel.passed_over, &kernel.producer})
    for_each_statement(*body, [&](const LoopStmt& stmt) {
      for_each_access(stmt, [&](const ir::BufferRef& buffer, bool) { ++counts[buffer.get()]; });
    });
  return counts;
}

const ExprRef* EarlyNames::value_of(const ir::Var* name) const {
  const auto found = values_.find(name);
  return found == values_.end() ? nullptr : &found->second;
}
void EarlyNames::add(const LoopLet& let) {
  const auto [found, fresh] = values_.try_emplace(let.var.get(), let.value);
  if (fresh || found->second == let.value) return;
  found->second = let.value;
  several_.insert(let.var.get());
}

bool EarlyNames::depends(const ExprRef& expr, const ir::Var* var) const {
  std::set<const ir::Var*> seen;
  const auto looks = [&](const ExprRef& value, auto&& self) -> bool {
    bool found = false;
    ir::visit(value, [&](const ExprRef& node) {
      if (found || node->kind != ExprKind::kVar) return;
      const ir::Var* name = node->var.get();
      found |= name == var || several_.count(name);
      const ExprRef* behind = value_of(name);
      if (!found && behind && seen.insert(name).second) found = self(*behind, self);
    });
    return found;
  };
  return looks(expr, looks);
}

bool EarlyNames::is_known(const ExprRef& expr) const {
  bool known = true;
  ir::visit(expr, [&](const ExprRef& node) {
    if (!known || (node->kind != ExprKind::kLoad && node->kind != ExprKind::kVar)) return;
    const ExprRef* value = node->kind == ExprKind::kVar ? value_of(node->var.get()) : nullptr;
    if (!value) {
      known = leaf_(*node);
      return;
    }
    const auto settled = settled_.find(node->var.get());
    known = settled != settled_.end() ? settled->second : is_known(*value);
    if (settled == settled_.end()) settled_[node->var.get()] = known;
  });
  return known;
}

bool is_own_work(const LoopIntrinsic& intrinsic) {
  return intrinsic.kind == Kind::kCopyVector || intrinsic.kind == Kind::kAddVector ||
         intrinsic.kind == Kind::kConvertPair || intrinsic.kind == Kind::kUnpack || intrinsic.kind == Kind::kPackedMath;
}

int64_t InputLoad::words() const {
  return vector ? (width * ir::bits(type()) + 31) / 32 : 1;
}

bool is_input(const ir::BufferRef& buffer) {
  return buffer->scope == ir::Scope::kGlobal && buffer->direction == ir::Direction::kIn;
}
const ir::Expr* input_read(const ir::Expr& expr) {
  if (expr.kind == ExprKind::kLoad)
    return is_input(expr.buffer) && ir::bits(expr.buffer->type.dtype) >= 8 ? &expr : nullptr;
  if (expr.kind != ExprKind::kApply || expr.op != ir::Op::kSelect || !ir::is_const(expr.args[2])) return nullptr;
  return expr.args[1]->kind == ExprKind::kLoad ? input_read(*expr.args[1]) : nullptr;
}
bool copies_input(const LoopIntrinsic& intrinsic) {
  return intrinsic.kind == Kind::kCopyVector && is_input(intrinsic.operands[1].buffer) &&
         intrinsic.operands[0].buffer->scope == ir::Scope::kRegister && ir::is_int(intrinsic.operands[0].index, 0);
}

LoopStmt load_early(const InputLoad& load, const ExprRef& number) {
  const ExprRef at = times(number, load.width);
  if (load.read) return {LoopStore{load.registers, at, std::make_shared<ir::Expr>(*load.read)}};
  LoopIntrinsic copy = *load.vector;
  copy.operands[0] = {load.registers, at, load.width, true};
  return {std::move(copy)};
}
ExprRef loaded(const InputLoad& load, const ExprRef& number) {
  return ir::make_load(load.registers, {times(number, load.width)});
}
void use_vector(const InputLoad& load, const ExprRef& number, LoopStmt* stmt) {
  const ir::BufferRef& copied = load.vector->operands[0].buffer;
  const ExprRef first = times(number, load.width);
  for_each_expr(*stmt, [&](ExprRef& expr) {
    expr = ir::rewrite(expr, [&](const ExprRef& node) {
      const bool is_copied = node->kind == ExprKind::kLoad && node->buffer == copied;
      return is_copied ? ir::make_load(load.registers, {plus(first, node->args[0])}) : node;
    });
  });
  auto* intrinsic = std::get_if<LoopIntrinsic>(&stmt->node);
  for (size_t i = 0; intrinsic && i < intrinsic->operands.size(); ++i) {
    LoopIntrinsic::Operand& operand = intrinsic->operands[i];
    if (operand.buffer == copied) operand.buffer = load.registers, operand.index = plus(first, operand.index);
  }
}

}  // namespace kachel::lowering
