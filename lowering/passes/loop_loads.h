// What a serial loop can load ahead (loads_ahead.h), and places that it need not work out again and again
// (held_places.h).
#pragma once
#include <functional>
#include <optional>
#include <set>
#include <vector>

#include "lowering/passes/input_loads.h"

namespace kachel::lowering {

// Whether registers are to hold its elements as they are in memory: to convert one is to wait for it.
bool is_raw(ir::DType type);

// A load, which a block of the body makes `runs` times an iteration; `run` is the number of one.
struct AheadLoad {
  InputLoad load;
  const LoopBlock* block = nullptr;
  size_t at = 0;  // the statement
  ir::ExprRef run;
  int64_t runs = 1;

  // Of an iteration that is the `turn`th of those whose loads are under way.
  ir::ExprRef number(const ir::ExprRef& turn) const;
  // Whether it loads this, of the same block.
  bool is(const ir::ExprRef& expr, const LoopBlock& of) const;
};

// What stands in blocks that run equally often in each iteration, under conditions and at places that are known without
// loads.
class LoopLoads {
 public:
  enum class Wanted {
    kLoads,
    kPlaces,  // quotients and remainders of 32 bits that are the same in every iteration
  };
  // `uses`: accesses in all of the kernel; `threads` run the loop. All outlive this.
  LoopLoads(const LoopFor& loop, const LoopKernel& kernel, const BufferCounts& uses, int threads,
            Wanted wanted = Wanted::kLoads);

  std::vector<AheadLoad> all;
  // Whether iterations wait for copies that run ahead of them, and so for more than these loads.
  bool waits() const { return waits_; }
  // The statement of the loop's body in front of which none of this iteration's loads is needed any more, since its
  // products have begun; none: there are no products behind the last use.
  std::optional<size_t> behind_uses() const;
  int64_t nodes = 0;      // of expressions, that an iteration evaluates
  int64_t words() const;  // of registers, an iteration

  // The loads of the iteration for `at`, under names of their own. REQUIRES: they have registers.
  LoopBlock loads_at(const ir::ExprRef& at, const ir::ExprRef& turn, LoopKernel* kernel) const;
  // The block, which finds in registers what has been loaded.
  LoopBlock rest_of(const LoopBlock& body, const ir::ExprRef& turn) const;

 private:
  struct Level {  // a loop of the body around what is looked at, that is written out
    ir::VarRef var;
    int64_t trips;
    const ir::Var* element = nullptr;  // of a thread loop, which is another one in each round
  };
  // With a run for each one of those loops around it that counts.
  void add(AheadLoad ahead, const std::function<bool(const Level&)>& counts);
  // Of a block of the loop's, nothing but the loads.
  LoopBlock loads_of(const LoopBlock& body, const ir::ExprRef& turn) const;
  void look_at(const LoopStmt& stmt);
  void block(const LoopBlock& body, int64_t runs);
  void count(const LoopStmt& stmt, int64_t runs);  // what its blocks evaluate
  void reads(const ir::ExprRef& expr, AheadLoad ahead);
  void places(const ir::ExprRef& expr, AheadLoad ahead, bool lazily = false);
  void vector(const LoopIntrinsic& copy, AheadLoad ahead);
  ir::ExprRef with_loads(const ir::ExprRef& expr, const LoopBlock& body, const ir::ExprRef& turn) const;
  template <class Fn>
  LoopStmt mapped(const LoopStmt& stmt, const Fn& fn) const;

  const LoopFor& loop_;
  const LoopKernel& kernel_;
  const BufferCounts& uses_;
  const int threads_;
  const Wanted wanted_;
  std::vector<Level> levels_;
  std::set<const ir::Var*> changing_;  // that no name stands for
  std::set<const LoopBlock*> holds_;   // loads
  BufferCounts writes_;                // of all that is accessed
  // As far as the loop's counter tells, and what no iteration changes, without waiting for memory.
  EarlyNames names_{[this](const ir::Expr& leaf) {
    return leaf.kind == ir::ExprKind::kVar ? !changing_.count(leaf.var.get())
                                           : leaf.buffer->scope != ir::Scope::kGlobal && !writes_.at(leaf.buffer.get());
  }};
  // As far as the counter does not matter, nor any memory.
  EarlyNames fixed_{[this](const ir::Expr& leaf) {
    return leaf.kind == ir::ExprKind::kVar && !changing_.count(leaf.var.get()) && leaf.var != loop_.var;
  }};
  bool plain_ = true, waits_ = false;
};

}  // namespace kachel::lowering
