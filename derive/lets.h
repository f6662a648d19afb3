// Expressions with their lets written out. Private to derive/.
#pragma once
#include <unordered_map>

#include "ir/kernel.h"

namespace kachel::derive {

class Lets {
 public:
  Lets() = default;
  // Those of the kernel's own body and of the statements.
  Lets(const ir::Kernel& kernel, const std::vector<const ir::Stmt*>& statements);
  // In textual order: a let's value is kept with those before it written out.
  void define(const ir::LetStmt& let) { values_[let.var.get()] = expanded(let.value); }
  // With everything inside the statements.
  void define_all(const ir::Block& block);
  // As it is where it would become too large; then nothing is known of it, and complete() is false.
  ir::ExprRef expanded(const ir::ExprRef& expr);
  bool complete() const { return complete_; }

 private:
  std::unordered_map<const ir::Var*, ir::ExprRef> values_;
  bool complete_ = true;
};

}  // namespace kachel::derive
