// Whether statements do the same under other names.
#pragma once
#include "ir/poly.h"
#include "lowering/tile_ir/block_copy.h"

namespace kachel::lowering {

// Compares statements of two blocks of one kernel, in order: the names that both bind stand for each other from then
// on. Buffers are the same ones; integers may be written in different ways. REQUIRES: from a concrete kernel.
class SameWork {
 public:
  // What the second block calls `name` is `value` in the first one.
  void bind(const ir::VarRef& name, ir::ExprRef value) { values_[name.get()] = std::move(value); }
  bool same(const ir::Stmt& first, const ir::Stmt& second);
  bool same(const ir::ExprRef& first, const ir::ExprRef& second);
  // Of the second block, what its names stand for in the first one.
  const Substitutions& values() const { return values_; }

 private:
  bool same(const ir::TileRef& first, const ir::TileRef& second);
  bool same(const ir::Block& first, const ir::Block& second);
  bool same(const std::vector<ir::IterVar>& first, const std::vector<ir::IterVar>& second);
  bool bound(const ir::VarRef& first, const ir::VarRef& second);
  ir::ExprRef renamed(const ir::ExprRef& second) const;

  Substitutions values_;
  ir::PolyContext polys_;
};

}  // namespace kachel::lowering
