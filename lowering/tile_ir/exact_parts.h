// Tile IR to tile IR: a product of f32 with bf16 or f16, which no tensor core has, as products of bf16,
//
//   c += a @ b
//     ->   parallel i < M, k < K { a_0[i, k] = bf16(a[i, k])  a_1[i, k] = bf16(a[i, k] - a_0[i, k])  a_2[i, k] = ... }
//          c += a_2 @ b   c += a_1 @ b   c += a_0 @ b
//
// Three parts of eight bits hold an f32, two an f16, so that products are what they were; of two operands in parts, what
// is below 2^-24 of the whole is left out. A finite number is parted into finite ones, an infinite one is its own first
// part. (Henry, Tang and Heinecke, "Leveraging the bfloat16 artificial intelligence datatype for higher-precision
// computations", 2019, for f32 times f32.)
#pragma once
#include "ir/kernel.h"
#include "lowering/lower.h"

namespace kachel::lowering {

// REQUIRES: a concrete kernel for a GPU. The result shares variables and all other buffers with `kernel`.
ir::Kernel exact_parts(const ir::Kernel& kernel, const Target& target);

}  // namespace kachel::lowering
