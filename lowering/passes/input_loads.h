// Loads of tensors that nothing writes, which passes bring forward: into registers, where what needed them finds them.
#pragma once
#include <functional>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "lowering/loop_ir/loop_ir.h"

namespace kachel::lowering {

using BufferCounts = std::map<const ir::Buffer*, int>;
// How often the kernel accesses each.
BufferCounts accesses_of(const LoopKernel& kernel);

// Names of a piece of code, and which of them are the same in front of it.
class EarlyNames {
 public:
  // `is_known`: of a load, and of a variable that is no name of these.
  explicit EarlyNames(std::function<bool(const ir::Expr&)> is_known) : leaf_(std::move(is_known)) {}

  void add(const LoopLet& let);
  const ir::ExprRef* value_of(const ir::Var* name) const;  // null: it is none
  // Each name is looked into once, however often others use it.
  bool is_known(const ir::ExprRef& expr) const;
  // Whether the variable, no name, is in the expression or in the names that it uses.
  bool depends(const ir::ExprRef& expr, const ir::Var* var) const;

 private:
  std::function<bool(const ir::Expr&)> leaf_;
  std::map<const ir::Var*, ir::ExprRef> values_;
  std::set<const ir::Var*> several_;  // that more than one block gives
  mutable std::map<const ir::Var*, bool> settled_;
};

// Whether a thread does it by itself, and at once.
bool is_own_work(const LoopIntrinsic& intrinsic);

// registers[number * width +: width] holds what iteration `number` of those that are loaded together needs.
struct InputLoad {
  const ir::Expr* read = nullptr;         // an expression, input_read(); or
  const LoopIntrinsic* vector = nullptr;  // a copy to registers that nothing else is copied to
  int64_t width = 1;
  ir::BufferRef registers = nullptr;

  ir::DType type() const { return vector ? vector->operands[0].buffer->type.dtype : read->type; }
  int64_t words() const;  // of 32 bits, an iteration
};

bool is_input(const ir::BufferRef& buffer);
// A load of an input, or one that its bounds guard: the load. Null: it is neither.
const ir::Expr* input_read(const ir::Expr& expr);
// Whether the copy may be an InputLoad, as far as itself goes.
bool copies_input(const LoopIntrinsic& intrinsic);

// The load of an iteration, of so many words. I32.
LoopStmt load_early(const InputLoad& load, const ir::ExprRef& number);
ir::ExprRef loaded(const InputLoad& load, const ir::ExprRef& number);
// Has the statement itself, not those inside it, find in registers what the copy would have loaded.
void use_vector(const InputLoad& load, const ir::ExprRef& number, LoopStmt* stmt);

// The expression with fn(node) in the place of each node for which that is something. What is replaced is not looked
// into.
template <class Fn>
ir::ExprRef replaced(const ir::ExprRef& expr, const Fn& fn) {
  if (ir::ExprRef other = fn(expr)) return other;
  auto copy = std::make_shared<ir::Expr>(*expr);
  bool changed = false;
  for (ir::ExprRef& arg : copy->args) {
    ir::ExprRef made = replaced(arg, fn);
    changed |= made != arg;
    arg = std::move(made);
  }
  return changed ? copy : expr;
}

}  // namespace kachel::lowering
