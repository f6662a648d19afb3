// Regions that write tensors themselves, where fragments do it better.
//
//   parallel i < BM, j < BN { C[m*BM + i, n*BN + j] = max(acc[i, j], 0) }      acc: sums of products
//   parallel i < BM, j < BN { Y[n*BN + j, m*BM + i] = X[m*BM + i, n*BN + j] }
//
// become a region over a fragment of the results and a copy of it to the tensor: the first, since sums lie in an order
// in which no thread has neighbours enough for a wide access, the second, since what is beside each other in one tensor
// is not in the other: what is read so becomes a copy to shared memory, from which the region reads.
#pragma once
#include "ir/kernel.h"

namespace kachel::lowering {

// REQUIRES: from a concrete kernel.
ir::Kernel region_results(const ir::Kernel& kernel);

}  // namespace kachel::lowering
