// A walk over a kernel in which some expressions move to regions of their own, before the statement that uses them:
//
//   parallel i < M { made[i] = ... }
//
// over those variables around them that they depend on. Whoever derives from it says which, and of what form.
#pragma once
#include <functional>
#include <unordered_map>
#include <vector>

#include "ir/kernel.h"

namespace kachel::lowering {

class RegionHoister {
 public:
  virtual ~RegionHoister() = default;
  // REQUIRES: a concrete kernel. The result shares the buffers and variables of `kernel`.
  ir::Kernel run(const ir::Kernel& kernel);

 protected:
  using Iters = std::vector<ir::IterVar>;
  using Lets = std::unordered_map<const ir::Var*, ir::ExprRef>;

  // `iters`: the variables around it, of the region and of reductions; `lets`: what the names of the region stand for.
  virtual bool hoists(const ir::ExprRef& expr, const Iters& iters, const Lets& lets) const = 0;
  // What takes the place of such an expression, in which the names of its region are written out.
  virtual ir::ExprRef hoisted(const ir::ExprRef& expr, const Iters& iters) = 0;
  virtual bool stays(const ir::ParallelStmt&) const { return false; }
  // The walk is behind a statement; in front of the first one of a loop or branch, and behind the last.
  virtual void passed(const ir::Stmt&) {}
  virtual void entered() {}
  virtual void left() {}

  // `in` with all that is to be hoisted replaced.
  ir::ExprRef replaced(const ir::ExprRef& in, const Iters& iters, const Lets& lets);
  static ir::ExprRef inline_lets(const ir::ExprRef& expr, const Lets& lets);
  // Those variables that a value depends on.
  static Iters used(const ir::ExprRef& value, const Iters& iters);
  static std::vector<ir::ExprRef> places(const Iters& iters);
  static ir::IterVar one();  // of an axis of one element
  ir::BufferRef make_tile(const char* name, ir::Scope scope, ir::DType type, const Iters& iters);
  // `buffer[...] = value` as a region over `iters`, appended to the present block.
  void push_region(const ir::BufferRef& buffer, const ir::ExprRef& value, const Iters& iters);

 private:
  ir::Block block(const ir::Block& in);
  ir::Block nested(const ir::Block& in);
  ir::ExprRef uniform(const ir::ExprRef& in) { return replaced(in, {}, {}); }
  ir::TileRef tile(const ir::TileRef& in);
  void statement(const ir::DeclStmt& decl, ir::Block* out);
  void statement(const ir::LetStmt& let, ir::Block* out);
  void statement(const ir::CopyStmt& copy, ir::Block* out);
  void statement(const ir::FillStmt& fill, ir::Block* out);
  void statement(const ir::GemmStmt& gemm, ir::Block* out);
  void statement(const ir::AssignStmt& assign, ir::Block* out);
  void statement(const ir::ParallelStmt& region, ir::Block* out);
  void statement(const ir::ForStmt& loop, ir::Block* out);
  void statement(const ir::IfStmt& branch, ir::Block* out);

  std::vector<ir::BufferRef> made_;
  ir::Block* out_ = nullptr;
  ir::Loc loc_;
};

// Whether any expression of the region is such a one.
bool holds(const ir::ParallelStmt& region, const std::function<bool(const ir::Expr&)>& asked);

}  // namespace kachel::lowering
