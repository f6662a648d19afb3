// Copies under conditions of a block, which a pipelined loop can make ahead as it does others:
//
//   if c { b = B[...] } else { b = C[...] }     some copy fills the tile
//   if c { b = B[...] }                         the tile is filled where c holds, and read there alone
#pragma once
#include <optional>
#include <vector>

#include "ir/kernel.h"

namespace kachel::lowering {

// Tile IR to tile IR: in pipelined loops, what a branch copies from tensors to shared tiles, which nothing before that
// in the branch touches, becomes a branch of its own in front of it, with the same condition and without names.
ir::Kernel split_branches(const ir::Kernel& kernel);

// The tiles that a branch fills.
struct BranchTiles {
  std::vector<ir::BufferRef> always;             // whatever holds
  std::vector<ir::BufferRef> if_true, if_false;  // where its condition holds, or does not, and not else
  bool depend() const { return !if_true.empty() || !if_false.empty(); }
};

// Of a branch that holds nothing but copies to whole tiles, one to a tile, and branches that fill the same ones either
// way; nullopt of any other.
std::optional<BranchTiles> branch_tiles(const ir::IfStmt& branch);

// The copies of a producer (see Pipeline::producers), in order: itself, or those under its conditions.
std::vector<const ir::CopyStmt*> copies_of(const ir::Stmt& producer);

// The producer whose condition decides whether some of its tiles are filled; null if there is none.
const ir::IfStmt* guard_of(const std::vector<const ir::Stmt*>& producers);

// Whether all else in the loop's body that touches a tile that the branch fills in one case only stands in that case of
// a branch with the same condition.
bool read_in_its_case(const ir::Block& body, const ir::IfStmt& branch, const BranchTiles& tiles);

}  // namespace kachel::lowering
