// Tile IR to tile IR: a fragment that regions alone read, at places that other iterations own, is read from the tensor
// that it is a copy of,
//
//   t = x[n, 2*h +: 2, 2*w +: 32, :]
//   parallel i < 16, j < C { o[i, j] = t[0, 2*i, j] + t[1, 2*i + 1, j] }
//     ->   parallel i < 16, j < C { o[i, j] = x[n, 2*h, 2*w + 2*i, j] + x[n, 2*h + 1, 2*w + (2*i + 1), j] }
//
// where neighbours along the region's last axis can be loaded together: windows, strides, every other row. As a
// fragment it would lie in memory, to be written by one thread and read, an element at a time, by others.
#pragma once
#include "ir/kernel.h"

namespace kachel::lowering {

// REQUIRES: a concrete kernel. The result shares variables and all other buffers with `kernel`.
ir::Kernel direct_reads(const ir::Kernel& kernel);

}  // namespace kachel::lowering
