// Of which places in the grid the values and slices of a body depend. A pass defines the names on its way down a body.
#pragma once
#include <set>
#include <unordered_map>

#include "ir/expansion.h"
#include "ir/kernel.h"

namespace kachel::lowering {

using GridAxes = std::set<size_t>;

class GridReads {
 public:
  explicit GridReads(const ir::Kernel& kernel);
  void define(const ir::LetStmt& let);

  GridAxes of(const ir::ExprRef& value) const;
  GridAxes of(const ir::TileRef& slice) const;

  // Axes at whose places the slice begins at other places: its starts are sums of multiples of them.
  GridAxes apart(const ir::TileRef& slice) const;
  // Axes that deal out a loop's iterations: a tile's begin where those of the tile before it end.
  GridAxes dealt_out(const ir::ForStmt& loop) const;

  // Whether the bounds are short enough to be written out without names.
  bool writable(const ir::ForStmt& loop) const;
  ir::ExprRef inlined(const ir::ExprRef& value) const;

 private:
  bool multiple(const ir::ExprRef& value, size_t axis) const;
  GridAxes all() const;

  const ir::Kernel& kernel_;
  std::unordered_map<const ir::Var*, GridAxes> of_;
  std::unordered_map<const ir::Var*, ir::ExprRef> lets_;
  ir::Expansion expansion_;
};

}  // namespace kachel::lowering
