// Products of few rows whose left operand the block makes in registers, as the second of a chain: warps cannot share
// its rows, of which there are too few, but k. Each warp has all of C and adds to it what its part of each step of k
// gives, with the columns of A that it has made itself. The parts are added up once, behind the loop.
//
// Tile IR to tile IR: C becomes another fragment in the loop, and what it was is copied from that behind it:
//
//   acc = 0   for k { acc += a @ b }        ->   parts = 0   for k { parts += a @ b }   acc = parts
//
// Where warps do come to share k (GemmChoice::warps_k), the copy adds up what they hold; else it is one.
//
// That holds for a loop that the block runs once, which nothing but its products adds to C, and in which all else that
// touches C scales it: then it does not matter in which warp a product is added. (A factor of infinity does make NaN of
// a part that is 0, where the sum is not.)
#pragma once
#include "ir/kernel.h"
#include "lowering/lower.h"

namespace kachel::lowering {

ir::Kernel parted_sums(const ir::Kernel& kernel, const Target& target);

}  // namespace kachel::lowering
