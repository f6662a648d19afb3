// How the elements of a tile lie in the tensor that its tiles make up together. Private to derive/.
#pragma once
#include <functional>
#include <map>
#include <unordered_map>
#include <vector>

#include "derive/digits.h"
#include "derive/lets.h"
#include "ir/poly.h"

namespace kachel::derive {

class Coordinates {
 public:
  // statements: the slice of `tile`, in order (copies, fills, regions and lets). All but it are borrowed.
  Coordinates(const ir::Kernel& kernel, const std::vector<const ir::Stmt*>& statements,
              const std::vector<Digits>& digits, const ir::BufferRef& tile);

  // The elements that `count` tiles of `extent` cover or, of a minimum, that they cover at most, where that is written
  // as a quotient; else null.
  ir::ExprRef covered(const ir::ExprRef& count, const ir::ExprRef& extent);
  // Whether `var` occurs, and only as the count of tiles along `axis` of the tile.
  bool counts_tiles(const ir::VarRef& var, size_t axis);
  void bind(const ir::VarRef& var, size_t axis) { bound_.push_back({var, static_cast<int>(axis)}); }
  // Whether every value depends on coordinates along the bound axes, and on no tunable. REQUIRES: all are bound.
  bool independent_of_tiles();
  // What tiles along the axis must extend to multiples of: elements that are packed, or share something, in groups.
  int64_t multiple_of(size_t axis) const { return multiples_[axis]; }
  // Of dimensions, constants and numbers.
  bool is_host_value(const ir::ExprRef& expr) const;

 private:
  struct Bound {
    ir::VarRef var;
    int axis;
  };
  // An axis of another tile: one of tile_'s, of which `by` neighbours have one element there, or groups of neighbours
  // as many elements as they are times `by`.
  struct Along {
    int axis;
    int64_t by = 1, group = by;
    bool alike(const Along& other) const { return axis == other.axis && by == other.by; }
  };
  using Forbidden = std::function<bool(const ir::Var&)>;

  static constexpr int kNone = -1;  // an axis that is none of the tile's

  bool followed() const { return followed_ && lets_.complete(); }
  ir::ExprRef written_out(const ir::ExprRef& expr) { return in_digits(lets_.expanded(expr), digits_, lets_); }
  // The same of a count with its lets written out.
  ir::ExprRef covered_by(const ir::ExprRef& count, const ir::ExprRef& extent);
  // A host's value that the expression does not exceed; or null.
  ir::ExprRef known_bound(const ir::ExprRef& expr);
  void follow(const ir::Stmt& stmt);
  void follow_assignments(const ir::ParallelStmt& region, const ir::Block& block);
  void follow_loads(const ir::Block& block);
  void relate(const ir::Buffer& tile, const std::vector<Along>& axes);
  // Elements along `a` and `b` are used for each other, and in ways that are not understood.
  void scatter(int a, int b = kNone);
  void forget_scattered();
  Along axis_of(const ir::Buffer& tile, size_t axis) const;
  int axis_of(const ir::Var* iter) const;
  // Where an index lies: one of a region's, its quotient by a number, or an element of its group's (`i / 4 * 2 + 1`).
  Along along(const ir::ExprRef& index) const;
  // Whether groups of so many neighbours along the axis never belong to two tiles. If so, that is relied on from then
  // on (multiple_of()).
  bool in_groups(int axis, int64_t by);
  // Whether an axis of such an extent has an element for each group of tile_'s.
  bool is_packed(const ir::ExprRef& extent, const Along& along);
  // A place within a group, which is the same for the coordinate as for the index.
  bool within_group(const ir::ExprRef& node);
  const Bound* bound_to(int axis, const std::vector<Bound>& bound) const;
  ir::ExprRef start_of(const Bound& bound) const;
  const Bound* coordinate(const ir::ExprRef& node, const std::vector<ir::IterVar>& iters,
                          const std::vector<Bound>& bound);

  bool walk(const std::vector<Bound>& bound, const Forbidden& forbidden, bool* occurs);
  bool walk_copy(const ir::CopyStmt& copy, const std::vector<Bound>& bound, const Forbidden& forbidden, bool* occurs);
  bool walk_block(const ir::Block& block, const std::vector<ir::IterVar>& iters, const std::vector<Bound>& bound,
                  const Forbidden& forbidden, bool* occurs);
  bool walk_expr(const ir::ExprRef& expr, const std::vector<ir::IterVar>& iters, const std::vector<Bound>& bound,
                 const Forbidden& forbidden, bool* occurs);

  const ir::Kernel& kernel_;
  const std::vector<const ir::Stmt*>& statements_;
  const std::vector<Digits>& digits_;
  ir::BufferRef tile_;
  ir::PolyContext polys_;
  Lets lets_;
  std::unordered_map<const ir::Buffer*, std::vector<Along>> tiles_;  // for each axis the one of tile_
  std::unordered_map<const ir::Var*, int> iters_;                    // the same of indices of regions
  std::vector<int64_t> multiples_;
  std::vector<Bound> bound_;
  std::vector<ir::VarRef> marks_;  // what stands for the coordinate of each axis while an expression is looked at
  std::vector<bool> scattered_;    // axes, each of which no variable can be bound to
  bool followed_ = true;           // false: a tile is used in a way that is not understood
};

}  // namespace kachel::derive
