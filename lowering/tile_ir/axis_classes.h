// Which axes of tiles and which variables of regions run along the same thing, such as the rows of a product: those of
// all tiles that copies, products and regions put beside each other, element by element.
#pragma once
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "lowering/tile_ir/tile_uses.h"

namespace kachel::lowering {

class AxisClasses {
 public:
  using Axis = std::pair<const ir::Buffer*, size_t>;

  // What products add up along k: with kJoined it runs along the same thing in both operands, and its elements behind
  // the last one have to be made zeros by whoever lets it grow; with kFixed it may not grow. And with kJoined regions
  // may write beyond the ends of tensors, where nothing is written.
  enum class Depth { kFixed, kJoined };
  // Of what is copied from tiles in `parted` to others, a part may be left out. REQUIRES: a concrete kernel.
  explicit AxisClasses(const ir::Kernel& kernel, Depth depth = Depth::kFixed, BufferSet parted = {});

  // Numbers of classes. Of a variable that no tile is indexed by: its own.
  int of(const ir::Buffer* tile, size_t axis) { return root(node({tile, axis})); }
  int of(const ir::Var* var) { return root(node(var)); }
  // Whether elements behind the last one of such an axis may be computed as well, because no other element depends on
  // them but by reductions over a variable of the class, or along k, and nothing outside of tiles is written from them
  // but by copies and beyond the ends of tensors.
  bool may_grow(int number) const { return !fixed_.count(number); }

 private:
  int node(Axis axis);
  int node(const ir::Var* var);
  int root(int node) const;
  void join(int a, int b, int64_t extent_a, int64_t extent_b);
  void fix(int node) { marks_.insert(node); }

  void block(const ir::Block& body);
  void region(const ir::ParallelStmt& region);
  void copy(const ir::CopyStmt& copy);
  void gemm(const ir::GemmStmt& gemm);
  void slice(const ir::TileRef& tile);
  // What an expression reads, where the variables of `inner` are those of regions and reductions around it.
  void reads(const ir::ExprRef& expr, std::vector<ir::IterVar>* inner);
  void element(const ir::Buffer& tile, const std::vector<ir::ExprRef>& indices, const std::vector<ir::IterVar>& inner);

  const Depth depth_;
  const BufferSet parted_;
  std::map<Axis, int> axes_;
  std::map<const ir::Var*, int> vars_;
  std::vector<int> parents_;
  std::set<int> marks_;  // nodes whose classes may not grow
  std::set<int> fixed_;  // their classes
};

}  // namespace kachel::lowering
