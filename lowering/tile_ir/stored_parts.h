// Parts of fragments that go to tensors,
//
//   value[n, :] = x[0 +: K]
//   rest[n, :] = x[K +: 8]
//
// are regions: `parallel j < K { value[n, j] = x[j] }`, and over all of x with a condition where the part does not
// begin at 0. Each thread stores what it holds; a slice would move the fragment to memory.
#pragma once
#include "ir/kernel.h"

namespace kachel::lowering {

// REQUIRES: from a concrete kernel.
ir::Kernel stored_parts(const ir::Kernel& kernel);

}  // namespace kachel::lowering
