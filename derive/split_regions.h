// Regions that write several operands of products, as one region for each:
//
//   parallel i < M, j < K { let h = bf16(a[i, j]);  high[i, j] = h;  low[i, j] = a[i, j] - h }
//
// so that each has statements of its own, which may be done elsewhere. Regions that write other tiles too stay as they
// are, since what both need would be worked out twice.
#pragma once
#include "ir/kernel.h"

namespace kachel::derive {

// Where no iteration reads what the region writes, but for the element that it adds to. The result shares variables and
// buffers but for the copies' own. REQUIRES: verify() has passed the kernel.
ir::Kernel split_regions(const ir::Kernel& kernel);

}  // namespace kachel::derive
