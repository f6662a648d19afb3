// Sums as the terms that they consist of, by the unrolled loops that these change with. Private to passes/.
#pragma once
#include <set>
#include <unordered_map>
#include <vector>

#include "lowering/loop_ir/loop_ir.h"

namespace kachel::lowering {

// With the innermost of the unrolled loops around it that it changes with, counted from the outermost one; 0: none.
struct Term {
  ir::ExprRef value;
  int level = 0;
  bool minus = false;
};

// a op b; sums of 32 bits as such without signs, which wrap. Null is 0.
ir::ExprRef combined(ir::Op op, const ir::ExprRef& a, const ir::ExprRef& b);
// Of sums of 32 bits, what they are without their wrapping.
ir::ExprRef with_sign(ir::DType type, const ir::ExprRef& sum);
// Of one level, added up; null: there are none.
ir::ExprRef sum_of(const std::vector<Term>& terms, int level);
// Of this level and those within it.
ir::ExprRef sum_from(const std::vector<Term>& terms, int level);
int deepest(const std::vector<Term>& terms);

// Whether it reads other memory than registers.
bool loads_memory(const ir::ExprRef& expr);

// What is known within unrolled loops: which names change with which of them.
class LoopTerms {
 public:
  static constexpr int kMostNodes = 200;

  int depth() const { return depth_; }  // of unrolled loops
  // Into a loop over `vars` with that body, and out of it.
  void enter(const std::vector<const ir::Var*>& vars, const LoopBlock& body);
  void leave();
  void name(const LoopLet& let);

  int level(const ir::ExprRef& expr) const;
  // None: there are too many, since names may each use the one before several times.
  std::vector<Term> terms_of(const ir::ExprRef& expr) const;
  // Adds them; `budget`, of nodes that are looked at, is negative behind it where there are too many.
  void collect(const ir::ExprRef& expr, bool minus, int* budget, std::vector<Term>* terms) const;

 private:
  struct Name {
    ir::ExprRef value;  // null where it is not to be looked into
    int level;
  };
  int depth_ = 0;
  std::unordered_map<const ir::Var*, Name> names_;  // that the loops change
  std::set<const ir::Buffer*> written_;             // in the outermost of them
};

}  // namespace kachel::lowering
