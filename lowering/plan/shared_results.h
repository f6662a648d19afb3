// Tile IR to tile IR: a product whose result is a shared tile, which tensor cores cannot write,
//
//   shared z: f32[27, 27]   z = x @ x^T   ->   fragment z': f32[32, 32]   z' = x @ x^T   z = z'
//
// and axes grow (padded_axes.h): the fragment's, whatever becomes of the tile, which gets the part that it holds. What
// it had is added where the product adds to it.
#pragma once
#include "ir/kernel.h"
#include "lowering/lower.h"

namespace kachel::lowering {

// `wide`: of padded_axes(). REQUIRES: a concrete kernel.
ir::Kernel shared_results(const ir::Kernel& kernel, const Target& target, bool wide);

}  // namespace kachel::lowering
