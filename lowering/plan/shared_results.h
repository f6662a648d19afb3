// Tile IR to tile IR: a product whose result is a shared tile, which tensor cores cannot write,
//
//   shared z: f32[32, 32]   z = x @ x^T   ->   fragment z': f32[32, 32]   z' = x @ x^T   z = z'
#pragma once
#include "ir/kernel.h"
#include "lowering/lower.h"

namespace kachel::lowering {

// REQUIRES: a concrete kernel.
ir::Kernel shared_results(const ir::Kernel& kernel, const Target& target);

}  // namespace kachel::lowering
