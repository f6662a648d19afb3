// Operands of gemms that several blocks make alike, and the part of a kernel that makes them.
//
// A tile that a gemm reads has a *slice*: the statements that its contents follow from, back to tensors. Where those
// contents are the same for all values of some grid axis, each of its blocks does the same work. If besides every value
// depends on where it belongs in one large tensor and not on how that is cut into tiles, another kernel can make that
// tensor ahead (prepare_operands.h).
//
// An axis of the tile belongs to coordinates of the tensor if a grid axis or a loop counts its tiles: where E is its
// extent, the variable v occurs as `v*E` at the beginning of a range of E that becomes this axis, or as `v*E + i` with
// the index i of this axis, and nowhere else.
#pragma once
#include <vector>

#include "derive/digits.h"

namespace kachel::derive {

struct OperandSlice {
  struct Axis {
    ir::VarRef var;        // counts the tiles; null: the tile has all of the axis
    ir::ExprRef all;       // elements that the tiles are to cover, free of tunables; without `var` the tile's extent
    int64_t multiple = 1;  // of which tiles' extents must be multiples
  };
  ir::BufferRef tile;
  bool computed = false;               // else it is one copy of rows that lie in a tensor, in a loop
  std::vector<const ir::Buffer*> fed;  // of a copy that is no operand: those that regions make of it
  std::vector<size_t> loops;  // that it is made in, from the body's on: each one's place in the block around it
  std::vector<std::vector<size_t>> statements;  // of the body, then of each loop, in order
  std::vector<Digits> digits;                   // whose variables count in place of a loop's or the grid's
  std::vector<ir::IterVar> free;                // what selects one of several such tensors, grid axes first
  std::vector<Axis> axes;                       // of the tile
  std::vector<ir::BufferRef> tensors;           // that it reads
  // Products are all that reads the tile behind the slice, each with k down its rows; each allows tf32.
  bool k_down = false, tf32 = false;
  bool turned = false;  // the tensor is to have the axes of the tile exchanged, for products to read it along k

  // Inside so many of the loops.
  const ir::Block& block_of(const ir::Kernel& kernel, size_t level) const {
    const ir::Block* block = &kernel.body;
    for (size_t i = 0; i < level; ++i) block = &std::get<ir::ForStmt>((*block)[loops[i]].node).body;
    return *block;
  }
  // In order.
  std::vector<const ir::Stmt*> statements_of(const ir::Kernel& kernel) const {
    std::vector<const ir::Stmt*> all;
    for (size_t level = 0; level < statements.size(); ++level)
      for (const size_t at : statements[level]) all.push_back(&block_of(kernel, level)[at]);
    return all;
  }
};

// In the order of the gemms, of the first 64 operands; then those of copies that regions make operands of and that stay
// in the kernel, since others read them too. REQUIRES: verify() has passed the kernel.
std::vector<OperandSlice> operand_slices(const ir::Kernel& kernel);

}  // namespace kachel::derive
