// Tile IR to tile IR: an operand that regions make with k down its rows is made the other way round,
//
//   parallel r < K, i < M { a[r, i] = ... }   c += a^T @ b   ->   parallel i < M, r < K { t[i, r] = ... }   c += t @ b
//
// since where the elements are put is the block's own affair: of types that tensor cores read along k only, and where
// regions gather them or take them out of words. Where neighbours in the tensor are different columns, a thread then has one of them, whose
// conditions all of its elements share, and stores several together; where they are different k, rows can be copied.
#pragma once
#include <functional>
#include <optional>

#include "ir/kernel.h"

namespace kachel::lowering {

// The axis of a region along which it reads tensors element by element; nothing: it does not.
using GatheredAxis = std::function<std::optional<size_t>(const ir::ParallelStmt& region)>;

// REQUIRES: a concrete kernel. The result shares variables and all other buffers with `kernel`.
ir::Kernel turned_operands(const ir::Kernel& kernel, const GatheredAxis& gathered);

}  // namespace kachel::lowering
