// Rows that a pipelined loop copies by numbers in a tile, which holds what a tensor says or something made of that,
// element by element, as tokens are of the slots of an expert,
//
//   slot = ids[m*64 +: 64]   parallel i < 64 { token[i] = slot[i] / topk }
//   pipelined k < n { x = X[token, k*BK +: BK]; ... }
//     ->   x = X[ids[m*64 +: 64] as slot: slot / topk, k*BK +: BK]
//
//   parallel i < 64 { row[i] = pages[(k*64 + i) / 16] * 16 + i % 16 }   x = X[row, :]
//     ->   x = X[i < 64: pages[(k*64 + i) / 16] * 16 + i % 16, :]
//
// so that whoever copies ahead knows them without the tile.
#pragma once
#include "ir/kernel.h"

namespace kachel::lowering {

// REQUIRES: concrete.
ir::Kernel named_rows(const ir::Kernel& kernel);

}  // namespace kachel::lowering
